//! What a plane keeps resident while nothing happens, with some sleeping revisions: a row that both planes have.

use crate::process::Process;
use crate::report::{Figures, Good, MEDIAN, Row};
use std::time::Duration;

/// Revisions that sleep meanwhile.
pub(crate) const REVISIONS: usize = 100;

/// Until start-up's own memory has been given back, which takes jemalloc ten seconds.
pub(crate) const SETTLE: Duration = Duration::from_secs(12);

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) const ROW: Row = Row {
    name: "idle-memory",
    what: "resident with 100 sleeping revisions",
    unit: "MiB",
    good: Good::Small,
    judged: MEDIAN,
    must: 25.0,
    aim: 12.0,
};

/// The row's figure, once the process has settled; beside it, how much of that is the process's own, and how much
/// pages of files, the program above all, which all processes of an image share and the kernel can drop at any time.
pub(crate) async fn settled(process: &Process) -> anyhow::Result<Figures> {
    tokio::time::sleep(SETTLE).await;
    let (resident, anonymous) = (process.resident()? as f64 / MIB, process.anonymous()? as f64 / MIB);
    let mut figures = Figures::default();
    figures.row(ROW.name, vec![resident]);
    figures.beside("MiB of it anonymous", vec![anonymous]);
    figures.beside("MiB of it pages of files", vec![resident - anonymous]);
    Ok(figures)
}
