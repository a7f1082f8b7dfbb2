//! What an activator keeps resident with 100 sleeping revisions.

use crate::cluster::Plane;
use crate::lab::Lab;
use crate::report::{Figures, Good, MEDIAN, Measurement, Row};
use common::backend::Protocol;
use futures::FutureExt;
use std::time::Duration;

const REVISIONS: usize = 100;

/// Until start-up's own memory has been given back, as far as it is.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[Row {
        name: "idle-memory",
        what: "resident with 100 sleeping revisions",
        unit: "MiB",
        good: Good::Small,
        judged: MEDIAN,
        must: 25.0,
        aim: 12.0,
    }],
    run: |lab| run(lab).boxed_local(),
};

async fn run(lab: &Lab) -> anyhow::Result<Figures> {
    let plane = Plane::start(lab).await?;
    let mut last = String::new();
    for n in 0..REVISIONS {
        last = format!("asleep-{n}");
        plane.revision(&last, Protocol::Http1).await?;
    }
    plane.until_known(&last).await?;
    tokio::time::sleep(SETTLE).await;
    let mut figures = Figures::default();
    figures.row("idle-memory", vec![plane.process.resident()? as f64 / 1024.0 / 1024.0]);
    Ok(figures)
}
