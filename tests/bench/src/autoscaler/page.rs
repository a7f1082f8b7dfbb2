//! The dashboard with thousands of workloads in a real Chromium: the time until it shows all of them. The document must
//! contain only the rows near the screen.

use crate::fleet::{Fleet, RevisionKind};
use crate::report::{Figures, Measurement, Row};
use crate::settings::Settings;
use anyhow::{Context, ensure};
use common_runtime::environment::Mode;
use e2e::browser::Browser;
use futures::FutureExt;
use tokio::time::Instant;

/// Maximum number of row elements in the document, on a screen that shows fifteen rows.
const ELEMENTS_MAX: u64 = 60;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[Row::at_most("page-open", "dashboard opened → all of 10 000 workloads are shown", "s", 3.0, 1.0)],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let mut fleet = Fleet::start(settings, Mode::Standalone).await?;
    let autoscaler = fleet.start_filled("asleep", RevisionKind::Asleep, settings.revisions).await?;

    let browser = Browser::start().await?;
    let tab = browser.tab().await?;
    tab.screen(1280, 900, false, "light").await?;
    let begin = Instant::now();
    tab.go(&format!("http://{}/", autoscaler.dashboard)).await?;
    // The header is a row, too.
    let all = settings.revisions + 1;
    tab.until(&format!("document.getElementById('grid').getAttribute('aria-rowcount') === '{all}'")).await?;
    tab.until("document.querySelector('.row:not([hidden])') !== null").await?;
    let open = begin.elapsed();
    let elements = tab.evaluate("document.querySelectorAll('.row').length").await?.as_u64().context("a count")?;
    ensure!(elements <= ELEMENTS_MAX, "the document has {elements} row elements, more than {ELEMENTS_MAX}");
    ensure!(tab.errors().is_empty(), "the page reports {:?}", tab.errors());
    let mut figures = Figures::default();
    figures.row("page-open", vec![open.as_secs_f64()]);
    Ok(figures)
}
