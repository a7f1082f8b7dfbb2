//! Rows of a single autoscaler.
//!
//! The bounds of two rows only serve to detect regressions: the cost of a stat relative to its [floor](ingest), and the
//! lateness of a tick (phases are 10 ms apart).

mod decision;
mod fleet_rows;
mod idle;
mod ingest;
mod links;
mod many;
mod numbers;
mod page;
mod wake;

use crate::report::Measurement;

/// All measurements, in the order of the output.
pub(crate) const MEASUREMENTS: &[Measurement] = &[
    decision::MEASUREMENT,
    ingest::MEASUREMENT,
    links::MEASUREMENT,
    fleet_rows::SCRAPED,
    fleet_rows::ASLEEP,
    fleet_rows::STANDALONE,
    numbers::MEASUREMENT,
    page::MEASUREMENT,
    wake::MEASUREMENT,
    many::MEASUREMENT,
    idle::MEASUREMENT,
];
