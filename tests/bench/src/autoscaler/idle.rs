//! What an autoscaler keeps resident with 100 sleeping revisions, in standalone, where it does most by itself.

use crate::fleet::{Fleet, Rules, State};
use crate::lab::Lab;
use crate::report::{Figures, Good, MEDIAN, Measurement, Row};
use futures::FutureExt;
use std::time::Duration;

const REVISIONS: usize = 100;

/// Until start-up's own memory has been given back: heaps are tidied every ten seconds.
const SETTLE: Duration = Duration::from_secs(12);

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
    let mut fleet = Fleet::start(lab, Rules::Standalone).await?;
    fleet.fill("asleep", State::Asleep, REVISIONS).await?;
    let autoscaler = fleet.autoscaler().await?;
    fleet.until_reconciled(2 * REVISIONS).await?;
    tokio::time::sleep(SETTLE).await;
    let mut figures = Figures::default();
    figures.row("idle-memory", vec![autoscaler.process.resident()? as f64 / 1024.0 / 1024.0]);
    Ok(figures)
}
