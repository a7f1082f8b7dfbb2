//! What is remembered of one workload to be shown, and how little that is.
//!
//! | | bytes |
//! |---|---|
//! | one that sleeps and has not been awake | 48, and its place in a table |
//! | the last [`wakes::KEPT`] wakes | some 350 |
//! | ten minutes with load | at most 4 KiB, given back ten minutes after |

pub(crate) mod saved;
pub(crate) mod timeline;
pub(crate) mod wakes;

use saved::Saved;
use timeline::Timeline;
use wakes::Wakes;

/// One workload's.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What its sleep has saved.
    pub(crate) saved: Saved,
    /// The version of the object that `saved` goes by.
    pub(crate) version: u64,
    /// Load and scale; none: nothing has happened.
    pub(crate) timeline: Option<Box<Timeline>>,
    /// Its last wakes; none: there was none.
    pub(crate) wakes: Option<Box<Wakes>>,
}

const _: () = assert!(size_of::<Record>() <= 48);

/// A time of whole seconds, as in every object of Kubernetes.
pub(crate) fn time(secs: i64) -> String {
    jiff::Timestamp::from_second(secs).unwrap_or_default().to_string()
}

/// A time of milliseconds.
pub(crate) fn time_ms(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}
