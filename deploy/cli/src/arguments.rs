//! The arguments, and the name that the program goes by.
//!
//! kubectl calls a plugin by the whole path that it has found on `PATH`; a shell hands on what was typed. So usage lines
//! say `kubectl zeroscale` where the program was called by the path of a folder of `PATH`, else `kubectl-zeroscale`.

use crate::check::CheckArgs;
use crate::cluster::Where;
use crate::giving_back::ReleaseArgs;
use crate::orders::{PauseArgs, RequestArgs};
use crate::status::StatusArgs;
use crate::top::TopArgs;
use crate::ui::UiArgs;
use crate::why::WhyArgs;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The program's own name.
pub const NAME: &str = "kubectl-zeroscale";
/// The same as a plugin.
const PLUGIN: &str = "kubectl zeroscale";

/// What it is for. The options of [`Where`] would say otherwise.
const ABOUT: &str = "Shows sleeping workloads, wakes them, and says why they are as they are";

/// All arguments.
#[derive(Debug, Parser)]
#[command(name = NAME, version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done; 1 not done, or not as asked; 2 the arguments make no sense.")]
pub struct Arguments {
    /// Where to look.
    #[command(flatten)]
    pub place: Where,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show workloads: their state, pods, load, and why they are so; one that is named, in full.
    Status(StatusArgs),
    /// Show workloads by their load, again and again.
    Top(TopArgs),
    /// Say why a workload has the scale that it has, and what was decided before.
    Why(WhyArgs),
    /// Wake workloads once, as a request would; they sleep again after a window without requests.
    Wake(RequestArgs),
    /// Put workloads to sleep once, unless somebody is being served; they wake with the next request.
    Sleep(RequestArgs),
    /// Keep workloads as they are: replicas, and whom their Services lead to (`spec.paused`).
    Pause(PauseArgs),
    /// Have paused workloads decided about again.
    Resume(PauseArgs),
    /// Look for what keeps workloads from sleeping and waking, and say what to do.
    Check(CheckArgs),
    /// Open the live page in a browser.
    Ui(UiArgs),
    /// Give workloads back that ZeroScalers hold, where no autoscaler runs any more: replicas, Services, finalizers.
    Release(ReleaseArgs),
    /// Print manifests of KEDA's HTTP add-on, HorizontalPodAutoscalers, Knative Services and workloads with Sablier's labels
    /// as ours, and what has no equivalent.
    Import {
        /// Files of YAML documents; `-` reads standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print a shell's completions of this program: `source <(kubectl-zeroscale completions bash)`.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page: `kubectl-zeroscale man status | man -l -`.
    Man {
        /// The command that it is about; none: the whole.
        command: Option<String>,
        /// Write the pages of all commands as files into this folder instead.
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        out_dir: Option<PathBuf>,
    },
}

impl Arguments {
    /// Those of the process. What makes no sense ends it.
    pub fn read() -> Self {
        let called = std::env::args_os().next().unwrap_or_default();
        let command = named(&called, std::env::var_os("PATH").unwrap_or_default());
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

/// The definition.
pub fn definition() -> clap::Command {
    Arguments::command().about(ABOUT)
}

/// The same, with the name that usage lines say.
fn named(called: &OsString, path: OsString) -> clap::Command {
    let folder = Path::new(called).parent().filter(|folder| folder.is_absolute());
    let is_plugin = folder.is_some_and(|folder| std::env::split_paths(&path).any(|known| known == folder));
    definition().bin_name(if is_plugin { PLUGIN } else { NAME })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_makes_sense() {
        definition().debug_assert();
        assert!(definition().render_help().to_string().starts_with(ABOUT));
    }

    #[test]
    fn usage_lines_say_how_it_was_called() {
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
