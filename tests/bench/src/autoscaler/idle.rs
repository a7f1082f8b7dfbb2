//! Resident memory of an autoscaler with 100 sleeping revisions in standalone, where it does the most work itself.

use crate::fleet::{Fleet, RevisionKind};
use crate::idle::{REVISIONS, ROW, settled};
use crate::report::{Figures, Measurement};
use crate::settings::Settings;
use common_runtime::environment::Mode;
use futures::FutureExt;

pub(super) const MEASUREMENT: Measurement = Measurement { rows: &[ROW], run: |settings| run(settings).boxed_local() };

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let mut fleet = Fleet::start(settings, Mode::Standalone).await?;
    fleet.fill("asleep", RevisionKind::Asleep, REVISIONS).await?;
    let autoscaler = fleet.start_autoscaler().await?;
    fleet.until_reconciled(2 * REVISIONS).await?;
    settled(&autoscaler.process).await
}
