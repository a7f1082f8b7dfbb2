//! Shared machinery of controllers that reconcile Kubernetes objects.
//!
//! ```text
//! watch ─▶ Store ─▶ WorkQueue ─▶ Workers ─▶ a pass ─▶ Writer ─▶ API server
//!            ▲                                │ responses
//!            └────────────────────────────────┘
//! ```
//!
//! | part | purpose |
//! |---|---|
//! | [`Store`] | shared objects of one kind: the watch's latest state, and our own recent writes ([`store`]) |
//! | [`Cache`] | the same without a lock, for planners that read several kinds at once ([`cache`]) |
//! | [`Changes`] | a watch's events as changes of single objects, for readers that store no objects ([`changes`]) |
//! | [`WorkQueue`] | keys to reconcile, with priorities, timers and back-off ([`queue`]) |
//! | [`Workers`] | take keys, run passes, log errors, retry ([`workers`]) |
//! | [`Passes`] | frame of a pass: begins the status, reports errors, finishes and writes the status ([`pass`]) |
//! | [`Writer`] | writes: paced ([`WriteLimiter`]), counted ([`write_tally`]), guarded by a lease ([`Leadership`]) |
//! | [`Recorder`] | Kubernetes Events |
//! | [`shares`] | the objects of this process, by leases or by its ordinal |
//! | [`objects`] | objects created for another object: their controller reference, and their correction |
//!
//! # Parts of kube that are used, and those that are not
//!
//! `kube::runtime::watcher` feeds every store (`common_runtime::watching` adds pauses and reports failures). Not used:
//!
//! - `reflector`: its store holds whole objects (a PodAutoscaler takes some 4 KiB, packed less than half of that, and
//!   there are ten thousand). It does not report the previous version of a changed object, and does not show our own
//!   writes until the watch has reported them.
//! - `Controller`: its queue has no priorities, so a decision that wakes a workload would wait behind a sweep over all
//!   objects. A worker that holds a key cannot learn that a decision about it waits.
//! - `events::Recorder`: it writes events.k8s.io/v1, which upstream's roles do not allow, and the caller waits for the
//!   response.
//!
//! # Not here
//!
//! The keys that an event concerns, and the content of a pass: each controller defines them.

pub mod cache;
pub mod changes;
pub mod error;
pub mod leadership;
pub mod limiter;
pub mod objects;
pub mod packed;
pub mod pass;
pub mod queue;
pub mod recorder;
pub mod relist;
mod repeats;
pub mod shares;
pub mod status;
pub mod store;
#[cfg(test)]
mod tests;
pub mod workers;
pub mod write_tally;
pub mod writer;

pub use cache::{Cache, version_of};
pub use changes::Changes;
pub use common::RevisionKey as ObjectKey;
pub use error::{Failure, WriteError, code};
pub use leadership::{Alone, Leadership};
pub use limiter::{Pacing, WriteLimiter};
pub use pass::{Passed, Passes, Statuses, Written};
pub use queue::{Item, Priority, WorkQueue};
pub use recorder::{Recorder, Severity};
pub use relist::Relist;
pub use store::{Store, key_of, trimmed};
pub use workers::Workers;
pub use writer::{BoundedApi, Kind, WRITE_TIMEOUT, Writer};
