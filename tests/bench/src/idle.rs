//! Resident memory of an idle plane with 100 sleeping revisions: of an activator, and of an autoscaler in standalone,
//! where it does the most work itself.

use crate::cluster::TestActivator;
use crate::fleet::{Fleet, RevisionKind};
use crate::process::Process;
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use common::backend::Protocol;
use common_runtime::environment::Mode;
use futures::FutureExt;
use std::time::Duration;

/// Number of sleeping revisions.
const REVISIONS: usize = 100;

/// Wait before memory is read: jemalloc takes ten seconds to release what was used only during the start.
pub(crate) const SETTLE: Duration = Duration::from_secs(12);

const MIB: f64 = 1024.0 * 1024.0;

const ROW: Row = Row::at_most("idle-memory", "resident memory with 100 revisions at zero", "MiB", 25.0, 12.0);

pub(crate) const ACTIVATOR: Measurement =
    Measurement { rows: &[ROW], run: |settings| activator(settings).boxed_local() };

pub(crate) const AUTOSCALER: Measurement =
    Measurement { rows: &[ROW], run: |settings| autoscaler(settings).boxed_local() };

async fn activator(settings: &Settings) -> anyhow::Result<Figures> {
    let activator = TestActivator::start(settings).await?;
    let mut last = String::new();
    for n in 0..REVISIONS {
        last = format!("asleep-{n}");
        activator.create_revision(&last, Protocol::Http1).await?;
    }
    activator.until_known(&last).await?;
    settled(&activator.process).await
}

async fn autoscaler(settings: &Settings) -> anyhow::Result<Figures> {
    let mut fleet = Fleet::start(settings, Mode::Standalone).await?;
    let autoscaler = fleet.start_filled("asleep", RevisionKind::Asleep, REVISIONS).await?;
    settled(&autoscaler.process).await
}

/// Measures the row after the process has settled.
async fn settled(process: &Process) -> anyhow::Result<Figures> {
    tokio::time::sleep(SETTLE).await;
    let mut figures = Figures::default();
    figures.row(ROW.name, vec![process.resident()? as f64 / MIB]);
    Ok(figures)
}
