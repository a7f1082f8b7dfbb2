//! What an autoscaler keeps resident with 100 sleeping revisions, in standalone, where it does most by itself.

use crate::fleet::{Fleet, Rules, State};
use crate::idle::{REVISIONS, ROW, settled};
use crate::lab::Lab;
use crate::report::{Figures, Measurement};
use futures::FutureExt;

pub(super) const MEASUREMENT: Measurement = Measurement { rows: &[ROW], run: |lab| run(lab).boxed_local() };

async fn run(lab: &Lab) -> anyhow::Result<Figures> {
    let mut fleet = Fleet::start(lab, Rules::Standalone).await?;
    fleet.fill("asleep", State::Asleep, REVISIONS).await?;
    let autoscaler = fleet.autoscaler().await?;
    fleet.until_reconciled(2 * REVISIONS).await?;
    settled(&autoscaler.process).await
}
