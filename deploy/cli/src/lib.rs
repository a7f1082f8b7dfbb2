//! `kubectl-zeroscale`: shows and controls sleeping workloads from a terminal.
//!
//! The program works as a kubectl plugin and without kubectl. It needs a kubeconfig and the rights of that user, and no
//! right to run anything in a pod.
//!
//! | command | module | |
//! |---|---|---|
//! | `status` | [`status`] | all workloads, or named ones in full |
//! | `top` | [`top`] | workloads by load |
//! | `why` | [`why`] | explanation of a decision |
//! | `wake`, `sleep`, `pause`, `resume` | [`actions`] | edits of ZeroScaler fields |
//! | `check` | [`check`] | problems and their remedies |
//! | `ui` | [`ui`] | the dashboard in a browser |
//! | `release` | [`release`] | restores Services and replicas if no autoscaler runs any more |
//! | `import` | [`import`] | converts manifests of other autoscalers |
//! | `completions`, `man` | [`documents`] | generated from the argument definition |
//!
//! # Data sources
//!
//! ZeroScalers come from the API server, with the rights of the kubeconfig's user. Load, wakes and reasons come from
//! the dashboard ([`dashboard`]). If it cannot be reached, the output is based on ZeroScalers alone and standard error
//! says so.
//!
//! # Exit codes
//!
//! 0: done. 1: not done, or not as requested. 2: invalid arguments.

pub mod actions;
pub mod arguments;
pub mod check;
pub mod cluster;
pub mod dashboard;
pub mod documents;
pub mod forward;
pub mod gather;
pub mod import;
pub mod model;
pub mod release;
pub mod status;
pub mod text;
pub mod top;
pub mod ui;
pub mod why;

use arguments::{Arguments, Command};
use common_api::zeroscaler::request;
use std::io::Write;

/// Runs the command of the arguments and writes its output to `out`. Fails if the command fails or `out` is closed.
pub async fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let place = &arguments.place;
    match arguments.command {
        Command::Status(args) => status::run(place, &args, out).await,
        Command::Top(args) => top::run(place, &args, out).await,
        Command::Why(args) => why::run(place, &args, out).await,
        Command::Wake(args) => actions::request(place, &args, request::AWAKE, out).await,
        Command::Sleep(args) => actions::request(place, &args, request::ASLEEP, out).await,
        Command::Pause(args) => actions::pause(place, &args, true, out).await,
        Command::Resume(args) => actions::pause(place, &args, false, out).await,
        Command::Check(args) => check::run(place, &args, out).await,
        Command::Ui(args) => ui::run(place, &args, out).await,
        Command::Release(args) => release::run(place, &args, out).await,
        Command::Import { files } => import::run(&files, out),
        Command::Completions { shell } => Ok(documents::completions(shell, out)?),
        Command::Man { command, out_dir } => documents::man(command.as_deref(), out_dir.as_deref(), out),
    }
}
