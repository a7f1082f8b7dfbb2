//! Resident memory of an activator with 100 sleeping revisions.

use crate::cluster::TestActivator;
use crate::idle::{REVISIONS, ROW, settled};
use crate::report::{Figures, Measurement};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;

pub(super) const MEASUREMENT: Measurement = Measurement { rows: &[ROW], run: |settings| run(settings).boxed_local() };

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let activator = TestActivator::start(settings).await?;
    let mut last = String::new();
    for n in 0..REVISIONS {
        last = format!("asleep-{n}");
        activator.create_revision(&last, Protocol::Http1).await?;
    }
    activator.until_known(&last).await?;
    settled(&activator.process).await
}
