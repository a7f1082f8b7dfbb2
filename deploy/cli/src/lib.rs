//! `kubectl-zeroscale`: what an operator sees of sleeping workloads, and does about them, in a terminal.
//!
//! A plugin of kubectl, and a program of its own for who has no kubectl. It needs a kubeconfig and the rights of whoever
//! it names, and no right to run anything in a pod.
//!
//! | command | module | |
//! |---|---|---|
//! | `status` | [`status`] | all workloads, or one in full |
//! | `top` | [`top`] | workloads by their load |
//! | `why` | [`why`] | a decision in words |
//! | `wake`, `sleep`, `pause`, `resume` | [`orders`] | fields of ZeroScalers |
//! | `check` | [`check`] | what is wrong, and what to do |
//! | `ui` | [`ui`] | the live page in a browser |
//! | `release` | [`giving_back`] | what the autoscaler holds, where none runs any more |
//! | `import` | [`import`] | manifests of others as ours |
//! | `completions`, `man` | [`documents`] | made of the arguments themselves |
//!
//! # Where numbers come from
//!
//! ZeroScalers are read from the API server, with the rights of whoever the kubeconfig names. Load, wakes and reasons are
//! the dashboard's ([`dashboard`]); where it cannot be reached, what ZeroScalers say is shown, and standard error says so.
//!
//! # Exit codes
//!
//! 0: done. 1: not done, or not as asked. 2: the arguments make no sense.

pub mod arguments;
pub mod check;
pub mod cluster;
pub mod dashboard;
pub mod documents;
pub mod forward;
pub mod gather;
pub mod giving_back;
pub mod import;
pub mod model;
pub mod orders;
pub mod status;
pub mod text;
pub mod top;
pub mod ui;
pub mod why;

use arguments::{Arguments, Command};
use common_api::zeroscaler::request;
use std::io::Write;

/// Does what the arguments say, and writes what comes of it to `out`.
///
/// # Errors
/// It could not be done; or `out` has been closed.
pub async fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let place = &arguments.place;
    match arguments.command {
        Command::Status(args) => status::run(place, &args, out).await,
        Command::Top(args) => top::run(place, &args, out).await,
        Command::Why(args) => why::run(place, &args, out).await,
        Command::Wake(args) => orders::ask(place, &args, request::AWAKE, out).await,
        Command::Sleep(args) => orders::ask(place, &args, request::ASLEEP, out).await,
        Command::Pause(args) => orders::pause(place, &args, true, out).await,
        Command::Resume(args) => orders::pause(place, &args, false, out).await,
        Command::Check(args) => check::run(place, &args, out).await,
        Command::Ui(args) => ui::run(place, &args, out).await,
        Command::Release(args) => giving_back::run(place, &args, out).await,
        Command::Import { files } => import::files::run(&files, out),
        Command::Completions { shell } => Ok(documents::completions(shell, out)?),
        Command::Man { command, out_dir } => documents::man(command.as_deref(), out_dir.as_deref(), out),
    }
}
