//! Rows of a single autoscaler.
//!
//! Rows without a bound in the project's table have a bound of our own, which shows regressions: the cost of a stat
//! relative to its [floor](ingest), and the lateness of a tick (phases are 10 ms apart).

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

/// All measurements, in the order of the table.
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
