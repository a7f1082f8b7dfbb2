//! Rows of a single autoscaler.
//!
//! The bound of a stat's cost relative to its [floor](ingest) only serves to detect regressions.

mod decision;
mod fleet_rows;
mod ingest;
mod many;
mod page;
mod wake;

use crate::report::Measurement;

/// All measurements, in the order of the output.
pub(crate) const MEASUREMENTS: &[Measurement] = &[
    decision::MEASUREMENT,
    ingest::MEASUREMENT,
    fleet_rows::SCRAPED,
    fleet_rows::ASLEEP,
    fleet_rows::STANDALONE,
    page::MEASUREMENT,
    wake::MEASUREMENT,
    many::MEASUREMENT,
    crate::idle::AUTOSCALER,
];
