//! One kit for whoever reconciles objects of Kubernetes.
//!
//! ```text
//! watch ─▶ Store ─▶ WorkQueue ─▶ Workers ─▶ a pass ─▶ Writer ─▶ API server
//!            ▲                                │ answers
//!            └────────────────────────────────┘
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | [`Store`] | the objects of one kind, shared: what the watch last said, and what we just wrote ([`store`]) |
//! | [`Cache`] | the same without a lock, for who plans over several kinds at once ([`cache`]) |
//! | [`Changes`] | a watch's events as changes of single objects, for who keeps no objects ([`changes`]) |
//! | [`WorkQueue`] | keys to reconcile, with priorities, timers and back-off ([`queue`]) |
//! | [`Workers`] | take keys, run passes, tell what goes wrong, try again ([`workers`]) |
//! | [`Passes`] | what a pass has around it: a status begun, errors said, the status finished and written ([`pass`]) |
//! | [`Writer`] | writes that are paced ([`WriteLimiter`]), counted ([`tally`]), and guarded by a lease ([`Leadership`]) |
//! | [`Recorder`] | Kubernetes Events |
//! | [`shares`] | which objects are this process's, by leases or by its ordinal |
//! | [`objects`] | objects made for another object: who controls them, and how they are put right |
//!
//! # What of kube is used, and what not
//!
//! `kube::runtime::watcher` feeds every store (`common_runtime::watching` adds pauses and tells of trouble). Not used:
//!
//! - `reflector`, because its store holds objects whole (a PodAutoscaler takes some 4 KiB, packed less than half of that,
//!   and there are ten thousand), tells nobody what an object was before it changed, and does not show our own writes
//!   until the watch has told of them.
//! - `Controller`, because its queue knows no priorities: a decision that wakes a sleeping service would wait behind a
//!   sweep over all objects. Nor can somebody who holds a key hear that a decision about it waits.
//! - `events::Recorder`, because it writes events.k8s.io/v1, which upstream's roles do not allow, and because the
//!   caller waits for the answer.
//!
//! # Not here
//!
//! Which keys an event concerns, and what a pass does: that is each controller's own.

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
pub mod tally;
pub mod workers;
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
