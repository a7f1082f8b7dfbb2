//! Resident memory of an activator with 100 sleeping revisions.

use crate::cluster::Plane;
use crate::idle::{REVISIONS, ROW, settled};
use crate::report::{Figures, Measurement};
use crate::settings::Settings;
use common::backend::Protocol;
use futures::FutureExt;

pub(super) const MEASUREMENT: Measurement = Measurement { rows: &[ROW], run: |settings| run(settings).boxed_local() };

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let plane = Plane::start(settings).await?;
    let mut last = String::new();
    for n in 0..REVISIONS {
        last = format!("asleep-{n}");
        plane.create_revision(&last, Protocol::Http1).await?;
    }
    plane.until_known(&last).await?;
    settled(&plane.process).await
}
