//! A running `local`, and what can be known of it from outside.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// How long anything may take; far more than it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Soft limit on open descriptors that it is started with.
pub(crate) const DESCRIPTORS: u32 = 1000;

/// The sample program, as pods run it.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_local");

/// A process of the binary; killed when dropped, and the folder that it leaves then is removed.
pub(crate) struct Local {
    child: Child,
    /// How its folder's name begins.
    folder: String,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its error output, if that is read.
    warnings: Option<Lines<BufReader<ChildStderr>>>,
}

/// What the first lines of output say.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) ingress: Option<SocketAddr>,
    pub(crate) dashboard: Option<SocketAddr>,
    pub(crate) api: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
}

impl Local {
    pub(crate) fn start<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start_by(Command::new("sh"), args, Stdio::inherit())
    }

    /// Starts it by a shell that `command` becomes.
    fn start_by<A: AsRef<std::ffi::OsStr>>(
        mut command: Command,
        args: impl IntoIterator<Item = A>,
        warnings: Stdio,
    ) -> Self {
        // Whoever runs the tests may ignore SIGHUP, as under nohup, and a process starts as its parent has it; and most
        // shells allow fewer descriptors than there may be. `env` takes the process over, and its number.
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

    /// `local up` on free ports, whose temporary folder is a disk of that size, mounted at `disk` for it alone.
    pub(crate) fn up_on_disk<A: AsRef<std::ffi::OsStr>>(
        disk: &Path,
        size: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let mount = format!("mount -t tmpfs -o size={size} local {} && exec sh \"$@\"", disk.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &mount, "sh"]).env("TMPDIR", disk);
        Self::start_by(command, up_args(args), Stdio::inherit())
    }

    /// `local up` on free ports, whose error output [`Local::warned`] reads.
    pub(crate) fn up_with_warnings<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start_by(Command::new("sh"), up_args(args), Stdio::piped())
    }

    /// `local up` on free ports.
    pub(crate) fn up<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::start(up_args(args))
    }

    /// Waits for a line of its error output with these words.
    pub(crate) async fn warned(&mut self, words: &str) {
        let warnings = self.warnings.as_mut().expect("its error output is read");
        let mut line = String::new();
        while !line.contains(words) {
            let next = tokio::time::timeout(PATIENCE, warnings.next_line()).await.expect("a warning in time");
            line = next.expect("readable output").expect("a warning before the end");
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("it runs")).expect("a pid")
    }

    /// Its next line of output.
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time");
        line.expect("readable output").expect("a line before the end; see the error output")
    }

    /// The `ready` line, which must be the first one and exact, and that of the dashboard, which follows it in `local up`.
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

    /// Waits for its end.
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

/// Arguments of `local up` on free ports.
fn up_args<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Vec<std::ffi::OsString> {
    let mut all: Vec<std::ffi::OsString> = vec!["up".into(), "--ingress".into(), "127.0.0.1:0".into()];
    all.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
    all
}

/// Runs the binary to its end: exit code, output and error output.
pub(crate) async fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(BINARY);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("started");
    let (mut output, mut errors) = (child.stdout.take().expect("output"), child.stderr.take().expect("errors"));
    let (mut out, mut err) = (String::new(), String::new());
    let finished = async {
        let (read, also, status) =
            tokio::join!(output.read_to_string(&mut out), errors.read_to_string(&mut err), child.wait());
        (read.expect("UTF-8"), also.expect("UTF-8"), status.expect("a status")).2
    };
    let status = tokio::time::timeout(PATIENCE, finished).await.expect("an end in time");
    (status.code(), out, err)
}

/// A process as the kernel tells it apart from a later one of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pid: i32,
    started: u64,
}

/// The children of `parent` that run.
pub(crate) fn children(parent: i32) -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut children = Vec::new();
    for pid in pids {
        if let Some((seen, of)) = look(pid)
            && of == parent
        {
            children.push(seen);
        }
    }
    children
}

impl Seen {
    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    pub(crate) fn is_alive(self) -> bool {
        look(self.pid).is_some_and(|(now, _)| now == self)
    }
}

/// A running process and its parent; none for one that has ended, though nobody has asked for its status yet.
fn look(pid: i32) -> Option<(Seen, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc_pid_stat(5): after the name in parentheses come state (3), parent (4), ..., start time (22).
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, parent, started) = (*fields.first()?, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
    (!matches!(state, "Z" | "X")).then_some((Seen { pid, started }, parent))
}

/// Waits for something that nobody tells of.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let met = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, met).await.is_ok(), "it never came to pass: {what}");
}
