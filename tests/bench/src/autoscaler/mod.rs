//! The rows of a single autoscaler.
//!
//! What has no bound in the project's table has one of ours, beside which a change for the worse is seen: what a stat
//! may cost beside its [floor](ingest), and how late a tick may be (phases are 10 ms apart).

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

/// All of them, in the table's order.
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
