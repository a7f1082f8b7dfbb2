//! Resident memory of an idle plane with some sleeping revisions. Both planes have this row.

use crate::process::Process;
use crate::report::{Figures, Row};
use std::time::Duration;

/// Number of sleeping revisions.
pub(crate) const REVISIONS: usize = 100;

/// Wait before memory is read: jemalloc takes ten seconds to release what was used only during the start.
pub(crate) const SETTLE: Duration = Duration::from_secs(12);

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) const ROW: Row =
    Row::at_most("idle-memory", "resident memory with 100 revisions at zero", "MiB", 25.0, 12.0);

/// Measures the row after the process has settled. Context figures split it into anonymous memory and file pages. The
/// latter are mostly the program itself; all processes of an image share them, and the kernel can drop them at any
/// time.
pub(crate) async fn settled(process: &Process) -> anyhow::Result<Figures> {
    tokio::time::sleep(SETTLE).await;
    let (resident, anonymous) = (process.resident()? as f64 / MIB, process.anonymous()? as f64 / MIB);
    let mut figures = Figures::default();
    figures.row(ROW.name, vec![resident]);
    figures.add_context("MiB of it anonymous memory", vec![anonymous]);
    figures.add_context("MiB of it file pages", vec![resident - anonymous]);
    Ok(figures)
}
