//! Command-line arguments and the program name shown in usage lines.
//!
//! kubectl starts a plugin by the full path that it found on `PATH`; a shell passes the name as typed. So usage lines
//! say `kubectl zeroscale` if the program was started by an absolute path in a `PATH` folder, else `kubectl-zeroscale`.

use crate::actions::{PauseArgs, RequestArgs};
use crate::check::CheckArgs;
use crate::cluster::ClusterArgs;
use crate::release::ReleaseArgs;
use crate::status::StatusArgs;
use crate::top::TopArgs;
use crate::ui::UiArgs;
use crate::why::WhyArgs;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Name of the program.
pub const NAME: &str = "kubectl-zeroscale";
/// Name of the program as a kubectl plugin.
const PLUGIN: &str = "kubectl zeroscale";

/// Summary in the help. It is set explicitly because the doc comment of the flattened [`ClusterArgs`] would replace it.
const ABOUT: &str = "Show, control and explain workloads that scale to zero";

/// All command-line arguments.
#[derive(Debug, Parser)]
#[command(name = NAME, version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success; 1 failure, or another result than requested; 2 invalid arguments.")]
pub struct Arguments {
    /// Cluster and dashboard options.
    #[command(flatten)]
    pub place: ClusterArgs,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show workloads: state, pods, load and reason. Named workloads are shown in full.
    Status(StatusArgs),
    /// Show workloads by load, refreshed continuously.
    Top(TopArgs),
    /// Explain the current scale of a workload and its earlier decisions.
    Why(WhyArgs),
    /// Wake workloads once, as a request would; they sleep again after a window without requests.
    Wake(RequestArgs),
    /// Put workloads to sleep once, unless requests are in flight; they wake with the next request.
    Sleep(RequestArgs),
    /// Pause workloads: keep replicas and Service routing as they are (`spec.paused`).
    Pause(PauseArgs),
    /// Resume scaling of paused workloads.
    Resume(PauseArgs),
    /// Check what keeps workloads from sleeping or waking, and say how to fix it.
    Check(CheckArgs),
    /// Open the dashboard in a browser.
    Ui(UiArgs),
    /// Restore replicas, Services and finalizers of workloads if no autoscaler is running any more.
    Release(ReleaseArgs),
    /// Convert manifests of KEDA's HTTP add-on, HorizontalPodAutoscalers, Knative Services and workloads with Sablier
    /// labels to ZeroScalers, and list what has no equivalent.
    Import {
        /// YAML files; `-` reads standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print shell completions: `source <(kubectl-zeroscale completions bash)`.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page: `kubectl-zeroscale man status | man -l -`.
    Man {
        /// Command to print the page of [default: the whole program].
        command: Option<String>,
        /// Write the pages of all commands into this folder instead.
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        out_dir: Option<PathBuf>,
    },
}

impl Arguments {
    /// Parses the arguments of the process. Exits the process if they are invalid.
    pub fn read() -> Self {
        let called = std::env::args_os().next().unwrap_or_default();
        let command = named(&called, std::env::var_os("PATH").unwrap_or_default());
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

/// Returns the clap definition of the program.
pub fn definition() -> clap::Command {
    Arguments::command().about(ABOUT)
}

/// Returns the definition with the program name for usage lines.
fn named(called: &OsString, path: OsString) -> clap::Command {
    let folder = Path::new(called).parent().filter(|folder| folder.is_absolute());
    let is_plugin = folder.is_some_and(|folder| std::env::split_paths(&path).any(|known| known == folder));
    definition().bin_name(if is_plugin { PLUGIN } else { NAME })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_valid() {
        definition().debug_assert();
        assert!(definition().render_help().to_string().starts_with(ABOUT));
    }

    #[test]
    fn usage_lines_name_the_program_as_it_was_called() {
        let rows = [
            ("kubectl-zeroscale", NAME),
            ("./kubectl-zeroscale", NAME),
            ("/usr/local/bin/kubectl-zeroscale", PLUGIN),
            ("/home/me/target/kubectl-zeroscale", NAME),
            ("", NAME),
        ];
        for (called, expected) in rows {
            let usage = named(&called.into(), "/bin:/usr/local/bin".into()).render_usage().to_string();
            assert!(usage.starts_with(&format!("Usage: {expected} ")), "{called}: {usage}");
        }
    }
}
