//! The dashboard with thousands of workloads in a real Chromium: the time until it shows all of them, and whether its
//! list scrolls as smoothly as with [`FEW`] while rows change.
//!
//! The list jumps by a screen with every frame, further than a user scrolls, so each frame paints only new rows. A
//! missed frame adds at least a sixtieth of a second to the time until the next one.

use crate::fleet::{self, Fleet, RevisionKind};
use crate::report::{Figures, Measurement, Row};
use crate::settings::{Settings, quantile};
use anyhow::{Context, bail, ensure};
use common_api::ZeroScaler;
use common_runtime::environment::Mode;
use e2e::browser::Browser;
use futures::FutureExt;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Number of workloads in the comparison.
const FEW: usize = 100;

const PREFIX: &str = "asleep";

/// Interval between two changes of rows.
const CHANGE_EVERY: Duration = Duration::from_millis(20);

/// Frames of one reading: ten seconds.
const FRAMES: usize = 600;

/// Maximum number of row elements in the document, on a screen that shows fifteen rows.
const ELEMENTS_MAX: u64 = 60;

pub(super) const MEASUREMENT: Measurement = Measurement {
    rows: &[
        Row::at_most("page-open", "dashboard opened → all of 10 000 workloads are shown", "s", 3.0, 1.0),
        Row::at_most(
            "page-frames",
            "time between two frames while the dashboard's list jumps by a screen with each frame and 50 rows \
             change per second, p99: 10 000 workloads ÷ 100",
            "",
            1.5,
            1.0,
        ),
    ],
    run: |settings| run(settings).boxed_local(),
};

async fn run(settings: &Settings) -> anyhow::Result<Figures> {
    let few = measure(settings, FEW).await?;
    let many = measure(settings, settings.revisions).await?;
    let mut figures = Figures::default();
    figures.row("page-open", vec![many.open.as_secs_f64()]);
    figures.row("page-frames", vec![quantile(&many.frames, 0.99) / quantile(&few.frames, 0.99)]);
    for (workloads, measured) in [(FEW, few), (settings.revisions, many)] {
        figures
            .add_context(format!("s until all of {workloads} workloads are shown"), vec![measured.open.as_secs_f64()]);
        figures.add_context(
            format!("row elements in the document with {workloads} workloads"),
            vec![measured.elements as f64],
        );
        figures.add_context(format!("MiB of the page's heap with {workloads} workloads"), vec![measured.heap]);
        figures.add_context(format!("ms between two frames with {workloads} workloads"), measured.frames);
    }
    Ok(figures)
}

struct Measured {
    open: Duration,
    /// Milliseconds from each frame to the next.
    frames: Vec<f64>,
    elements: u64,
    /// Heap of the page in mebibytes.
    heap: f64,
}

async fn measure(settings: &Settings, workloads: usize) -> anyhow::Result<Measured> {
    let mut fleet = Fleet::start(settings, Mode::Standalone).await?;
    fleet.fill(PREFIX, RevisionKind::Asleep, workloads).await?;
    let autoscaler = fleet.start_autoscaler().await?;
    fleet.until_numbered(workloads).await?;
    fleet.until_quiet().await?;

    let browser = Browser::start().await?;
    let tab = browser.tab().await?;
    tab.screen(1280, 900, false, "light").await?;
    let begin = Instant::now();
    tab.go(&format!("http://{}/", autoscaler.dashboard)).await?;
    // The header is a row, too.
    let all = format!("document.getElementById('grid').getAttribute('aria-rowcount') === '{}'", workloads + 1);
    tab.until(&all).await?;
    tab.until("document.querySelector('.row:not([hidden])') !== null").await?;
    let open = begin.elapsed();

    let scroll = format!(
        "(async () => {{
            const rows = document.getElementById('rows');
            const frames = [];
            let last = await new Promise(requestAnimationFrame);
            while (frames.length < {FRAMES}) {{
                const end = rows.scrollHeight - rows.clientHeight;
                rows.scrollTop = rows.scrollTop >= end ? 0 : rows.scrollTop + rows.clientHeight;
                const now = await new Promise(requestAnimationFrame);
                frames.push(now - last);
                last = now;
            }}
            return frames;
        }})()"
    );
    let frames = tokio::select! {
        frames = tab.evaluate(&scroll) => frames?,
        changing = change(&fleet, workloads) => {
            changing?;
            bail!("no more rows to change")
        }
    };
    let frames: Vec<f64> = serde_json::from_value(frames)?;
    let elements = tab.evaluate("document.querySelectorAll('.row').length").await?.as_u64().context("a count")?;
    ensure!(elements <= ELEMENTS_MAX, "the document has {elements} row elements, more than {ELEMENTS_MAX}");
    let heap =
        tab.evaluate("performance.memory.usedJSHeapSize").await?.as_f64().context("a size")? / f64::from(1 << 20);
    ensure!(tab.errors().is_empty(), "the page reports {:?}", tab.errors());
    Ok(Measured { open, frames, elements, heap })
}

/// Pauses all workloads one after the other, then resumes them, and so on until a request fails.
async fn change(fleet: &Fleet, workloads: usize) -> anyhow::Result<()> {
    let scalers: Api<ZeroScaler> = Api::namespaced(fleet.client(), fleet::NAMESPACE);
    let mut ticks = interval(CHANGE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for n in 0.. {
        ticks.tick().await;
        let name = fleet::name(PREFIX, u32::try_from(n % workloads)?);
        let paused = json!({"spec": {"paused": (n / workloads).is_multiple_of(2)}});
        scalers.patch(&name, &PatchParams::default(), &Patch::Merge(paused)).await?;
    }
    Ok(())
}
