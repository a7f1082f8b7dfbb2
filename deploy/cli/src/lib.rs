//! `kubectl-zeroscale`: what an operator sees of sleeping workloads, and does about them, in a terminal.
//!
//! A plugin of kubectl, and a program of its own for who has no kubectl. It needs a kubeconfig and the rights of whoever
//! it names, and no right to run anything in a pod.
//!
//! | command | module | |
//! |---|---|---|
//! | `import` | [`import`] | manifests of others as ours |
//! | `completions`, `man` | [`documents`] | made of the arguments themselves |
//!
//! # Exit codes
//!
//! 0: done. 1: not done, or not as asked. 2: the arguments make no sense.

pub mod arguments;
pub mod documents;
pub mod import;

use arguments::{Arguments, Command};
use std::io::Write;

/// Does what the arguments say, and writes what comes of it to `out`.
///
/// # Errors
/// It could not be done; or `out` has been closed.
pub fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    match arguments.command {
        Command::Import { files } => import::files::run(&files, out),
        Command::Completions { shell } => Ok(documents::completions(shell, out)?),
        Command::Man { command, out_dir } => documents::man(command.as_deref(), out_dir.as_deref(), out),
    }
}
