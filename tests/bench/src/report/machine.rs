//! Describes the machine and the code that figures belong to.

use crate::process::{self, Tool};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// Code under measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Code {
    /// Commit, with a plus if files have changed since.
    pub(super) commit: String,
    /// Date of the commit.
    pub(super) date: String,
    /// Cargo's profile.
    pub(super) profile: String,
}

impl Code {
    /// Returns the code of this program, according to the working directory.
    pub(super) fn here() -> Self {
        let (commit, date) = match first_line("git", &["log", "-1", "--format=%h %cs"]).split_once(' ') {
            Some((commit, date)) => (commit.to_owned(), date.to_owned()),
            None => ("unknown".to_owned(), String::new()),
        };
        // The page itself is not code.
        let changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!deploy/docs"];
        let changed = if first_line("git", &changes).is_empty() { "" } else { "+" };
        let own = std::env::current_exe().ok();
        let profile = own.as_deref().and_then(Path::parent).and_then(Path::file_name).unwrap_or_default();
        Self { commit: commit + changed, date, profile: profile.to_string_lossy().into_owned() }
    }
}

/// Returns properties of the machine that affect the figures, as pairs of name and value.
pub(super) fn facts() -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = field("/proc/cpuinfo", "model name");
    let memory = field("/proc/meminfo", "MemTotal");
    let gib = memory.trim_end_matches(" kB").parse::<f64>().map_or(0.0, |kib| kib / 1024.0 / 1024.0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = |tool: Tool, args: &[&str]| tool.path().map_or_else(|_| String::new(), |path| first_line(path, args));
    vec![
        ("processor", format!("{processor}, {cores} cores")),
        ("memory", format!("{gib:.0} GiB")),
        ("kernel", format!("Linux {}", kernel.trim())),
        ("compiler", first_line("rustc", &["--version"])),
        ("HAProxy", version(process::HAPROXY, &["-v"])),
        ("nginx", version(process::NGINX, &["-v"])),
        ("wrk", version(process::WRK, &["-v"])),
        ("h2load", version(process::H2LOAD, &["--version"])),
    ]
}

/// Returns the value of a field of a file like `/proc/meminfo`.
fn field(path: &str, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns the first line of a program's output, standard or error. Returns an empty string if the program does not
/// run.
fn first_line(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(args).output() else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned()
}
