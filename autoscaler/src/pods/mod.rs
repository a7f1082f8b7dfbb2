//! Pods of each revision, counted as they change.
//!
//! Upstream lists and filters the pods of a namespace at every tick and every scrape. Here one watch feeds an index:
//! each event updates the revisions of its pod, and a count is a lookup. Only labels, state, address, controller and
//! failure of a pod are kept ([`parsed`]). In a Knative install, of the labels only the revision is kept.
//!
//! # Edge cases
//!
//! - Before the first full list nothing is known, and [`PodIndex::ready`] returns an error: unknown is not zero.
//! - While the API server is unreachable, the last known state stays.
//! - A selector without labels would match every pod; here it matches none.
//! - Another workload may have the same labels. In standalone only pods count whose chain of controllers leads to the
//!   target ([`ownership`]). In a Knative install pods carry the revision's name, as Knative defines.

mod index;
mod labels;
mod ownership;
mod parsed;
pub(crate) mod warnings;
mod watch;

pub use index::{PodIndex, PodState};
pub use ownership::Controller;
pub use watch::{PodScope, run};
