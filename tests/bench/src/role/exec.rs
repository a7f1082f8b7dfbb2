//! Another program in place of this process, bound to the life of whoever started us.

use anyhow::{Context, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Never returns but with an error. The kernel keeps the order for the end across the change of programs.
pub(crate) fn run(command: &[OsString]) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("the kernel takes no order for our end")?;
    let (program, args) = command.split_first().context("no program")?;
    let error = Command::new(program).args(args).exec();
    bail!("{}: {error}", program.display())
}
