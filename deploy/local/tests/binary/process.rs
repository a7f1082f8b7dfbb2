//! A running `local`, observed from outside.

use procfs::process::{Process, Stat, all_processes};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// Maximum duration of any step; far more than needed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Soft limit of open descriptors for the process.
pub(crate) const DESCRIPTORS: u32 = 1000;

/// Sample program that pods run.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_local");

/// A process of the binary. Dropping it kills the process and removes the folder that it leaves.
pub(crate) struct Local {
    child: Child,
    /// Prefix of its folder's name.
    folder: String,
    lines: Lines<BufReader<ChildStdout>>,
    /// Error output, if it is read.
    warnings: Option<Lines<BufReader<ChildStderr>>>,
}

/// Contents of the first lines of output.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) ingress: Option<SocketAddr>,
    pub(crate) dashboard: Option<SocketAddr>,
    pub(crate) api: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
}

impl Local {
    pub(crate) fn start<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start_by(Command::new("sh"), args, Stdio::inherit())
    }

    /// Starts the binary by a shell, which `command` runs.
    fn start_by<A: AsRef<OsStr>>(mut command: Command, args: impl IntoIterator<Item = A>, warnings: Stdio) -> Self {
        // The tests may run with SIGHUP ignored, as under nohup, which child processes inherit. Most shells also have a
        // low limit of descriptors. `env` replaces the shell and keeps its process id.
        command
            .args(["-c", &format!("ulimit -Sn {DESCRIPTORS}; exec env --default-signal=HUP \"$@\""), "sh", BINARY])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(warnings)
            .kill_on_drop(true);
        let mut child = command.spawn().expect("started");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let warnings = child.stderr.take().map(|stderr| BufReader::new(stderr).lines());
        let folder = format!("zeroscale-{}-", child.id().expect("it runs"));
        Self { child, folder, lines, warnings }
    }

    /// Starts `local up` on free ports. Its temporary folder is a disk of this size, mounted at `disk` only for this
    /// process.
    pub(crate) fn up_on_disk(disk: &Path, size: &str, manifest: &Path) -> Self {
        let mount = format!("mount -t tmpfs -o size={size} local {} && exec sh \"$@\"", disk.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &mount, "sh"]).env("TMPDIR", disk);
        Self::start_by(command, up_args([manifest]), Stdio::inherit())
    }

    /// Starts `local up` on free ports, with error output for [`Local::warned`].
    pub(crate) fn up_with_warnings<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start_by(Command::new("sh"), up_args(args), Stdio::piped())
    }

    /// Starts `local up` on free ports.
    pub(crate) fn up<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start(up_args(args))
    }

    /// Waits for a line of error output with these words.
    pub(crate) async fn warned(&mut self, words: &str) {
        let warnings = self.warnings.as_mut().expect("its error output is read");
        while !next_line(warnings).await.contains(words) {}
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("it runs")).expect("a pid")
    }

    /// Returns its next line of output.
    pub(crate) async fn line(&mut self) -> String {
        next_line(&mut self.lines).await
    }

    /// Returns its next line of output that contains all of these words.
    pub(crate) async fn line_with(&mut self, words: &[&str]) -> String {
        loop {
            let line = self.line().await;
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }

    /// Parses the `ready` line, which must be the first one and exact, and, for `local up`, the dashboard line after
    /// it.
    pub(crate) async fn ready(&mut self) -> Ready {
        let line = self.line().await;
        let fields: Vec<(&str, &str)> =
            line.strip_prefix("ready ").expect(&line).split(' ').map(|f| f.split_once('=').expect(&line)).collect();
        let http = |text: &str| text.strip_prefix("http://").and_then(|t| t.parse().ok()).expect(&line);
        match *fields.as_slice() {
            [("ingress", ingress), ("api", api), ("kubeconfig", file)] => {
                let line = self.line().await;
                let dashboard = Some(http(line.strip_prefix("  dashboard ").expect(&line)));
                Ready { ingress: Some(http(ingress)), dashboard, api: http(api), kubeconfig: file.into() }
            }
            [("api", api), ("kubeconfig", file)] => {
                Ready { ingress: None, dashboard: None, api: http(api), kubeconfig: file.into() }
            }
            _ => panic!("{line}"),
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self, patience: Duration) -> ExitStatus {
        tokio::time::timeout(patience, self.child.wait()).await.expect("an end in time").expect("a status")
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.folder) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

async fn next_line(lines: &mut Lines<impl AsyncBufRead + Unpin>) -> String {
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line in time");
    line.expect("readable output").expect("a line before the end; see the error output")
}

/// Returns the arguments of `local up` on free ports.
fn up_args<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["up".into(), "--ingress".into(), "127.0.0.1:0".into()];
    all.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
    all
}

/// Runs the binary to its end, which must be a failure without output. Returns its error output.
pub(crate) async fn refused(args: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(PATIENCE, command.output()).await.expect("an end in time").expect("started");
    let errors = String::from_utf8(ended.stderr).expect("UTF-8");
    assert_eq!((ended.status.code(), &ended.stdout[..]), (Some(1), &b""[..]), "{errors}");
    errors
}

/// A process, distinguished from a later one with the same id by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    started: u64,
}

/// Returns the running children of `parent`.
pub(crate) fn children(parent: i32) -> Vec<ProcessId> {
    let stats = all_processes().expect("/proc").filter_map(|process| process.ok()?.stat().ok());
    let children = stats.filter(|stat| stat.ppid == parent && is_running(stat));
    children.map(|stat| ProcessId { pid: stat.pid, started: stat.starttime }).collect()
}

impl ProcessId {
    pub(crate) fn is_alive(self) -> bool {
        let stat = Process::new(self.pid).and_then(|process| process.stat());
        stat.is_ok_and(|stat| stat.starttime == self.started && is_running(&stat))
    }
}

/// Reports whether a process has not ended. One that has may not be reaped yet.
fn is_running(stat: &Stat) -> bool {
    !matches!(stat.state, 'Z' | 'X')
}

/// Polls a condition that no event reports.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let met = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, met).await.is_ok(), "timed out waiting for {what}");
}
