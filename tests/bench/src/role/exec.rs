//! Replaces this process by another program, which the kernel ends when the process that started this one ends.

use anyhow::{Context, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs `command` in place of this process. Returns only on errors. The kernel keeps the death signal when the program
/// changes.
pub(crate) fn run(command: &[OsString]) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot set the signal for the end of the parent")?;
    let (program, args) = command.split_first().context("no program")?;
    let error = Command::new(program).args(args).exec();
    bail!("{}: {error}", program.display())
}
