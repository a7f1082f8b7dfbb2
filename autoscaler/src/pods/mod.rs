//! Pods of each revision, counted as they come and go.
//!
//! Upstream lists and filters the pods of a namespace at every tick and every scrape. Here one watch feeds an index:
//! each event touches the revisions that the pod belongs to, and a count is a lookup. Of a pod only its labels, state
//! address and failure are kept ([`seen`] does not even read the rest; in the drop-in, of the labels the revision alone).
//!
//! # Odd cases
//!
//! - Until the first full list has arrived nothing is known, and [`PodIndex::ready`] says so: unknown is not zero.
//! - While the API server is away the last known state stays.
//! - A selector without labels would match every pod; it matches none.
//! - Labels may be another workload's, too. In standalone only those pods count whose controller leads to the target
//!   ([`ownership`]); the drop-in's carry the revision's name, as Knative has it.

mod asking;
mod index;
mod labels;
mod listening;
mod ownership;
mod seen;
pub(crate) mod warnings;
mod watch;

pub use index::{PodIndex, PodState, ScrapeTarget};
pub use ownership::Controller;
pub use watch::{PodScope, run};
