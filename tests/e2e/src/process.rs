//! The workspace's binaries as processes.

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// Longest wait for an expected line, and for a requested exit.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines that a process has written to standard error.
#[derive(Clone, Default)]
pub struct LogLines(Arc<Mutex<Vec<String>>>);

impl LogLines {
    /// Returns the lines that contain all of `parts`.
    pub fn with(&self, parts: &[&str]) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
    }

    async fn read(self, stderr: ChildStderr) {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }
}

/// Running binary; killed when dropped.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts one of the workspace's binaries with only `env` as environment, so the test controls all its settings.
    /// `RUST_LOG` is passed on; without it only warnings are logged. Fails if the binary is not built: cargo builds
    /// binaries of other packages only if it tests those too.
    pub fn start(binary: &str, args: &[&str], env: &[(&str, String)]) -> anyhow::Result<Self> {
        let mut command = command(binary, args, env)?;
        command.env("RUST_LOG", std::env::var_os("RUST_LOG").unwrap_or("warn".into()));
        Self::spawn(command)
    }

    /// Starts a binary with the log settings of a cluster, and also returns its log.
    pub fn start_logged(binary: &str, args: &[&str], env: &[(&str, String)]) -> anyhow::Result<(Self, LogLines)> {
        let mut command = command(binary, args, env)?;
        command.stderr(Stdio::piped());
        let mut process = Self::spawn(command)?;
        let log = LogLines::default();
        tokio::spawn(log.clone().read(process.child.stderr.take().context("its error output")?));
        Ok((process, log))
    }

    /// Starts a command and pipes its output.
    pub fn spawn(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{command:?} cannot be started"))?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { child, lines })
    }

    /// Returns the process id while the process runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the next line of output. Fails if the process ends first.
    pub async fn line(&mut self) -> anyhow::Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.context("no line of output")??;
        line.context("it ended; its error output tells why")
    }

    /// Waits up to a minute until the process ends by itself.
    pub async fn ended(mut self) -> anyhow::Result<ExitStatus> {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("it does not end")?.map_err(Into::into)
    }

    /// Sends SIGTERM, and waits up to a minute until the process has ended.
    pub async fn terminate(self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.ended().await
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        self.child.wait().await?;
        Ok(())
    }

    /// Stops the process with SIGSTOP; its connections stay open.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes the process with SIGCONT.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        Ok(kill_process(pid.context("it has ended already")?, signal)?)
    }
}

/// Builds the command of one of the workspace's binaries with only `env` as environment.
fn command(binary: &str, args: &[&str], env: &[(&str, String)]) -> anyhow::Result<Command> {
    let mut command = Command::new(find(binary)?);
    command.args(args).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// Returns the path of a binary of the workspace.
pub fn find(binary: &str) -> anyhow::Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let built = tests.parent().and_then(Path::parent).context("tests lie in a folder of a folder")?;
    let path = built.join(binary);
    let release = if built.ends_with("release") { " --release" } else { "" };
    ensure!(
        path.is_file(),
        "{} is missing. Tests of the whole workspace build it; for these alone run first: \
         cargo build{release} -p local -p activator -p autoscaler -p hpa",
        path.display()
    );
    Ok(path)
}

/// Builds planes in this program's profile if cargo started it, so that the figures belong to the current source.
pub fn build(planes: &[&str]) -> anyhow::Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    let own = std::env::current_exe()?;
    // Cargo names the folder of a profile after it, except for `dev`.
    let folder = own.parent().and_then(Path::file_name).context("a folder")?;
    let profile = if folder == "debug" { "dev".as_ref() } else { folder };
    let mut command = std::process::Command::new(cargo);
    command.args(["build", "--quiet", "--profile"]).arg(profile);
    for plane in planes {
        command.args(["-p", plane, "--bin", plane]);
    }
    ensure!(command.status()?.success(), "the planes do not build");
    Ok(())
}

/// Returns the path of a plane's program in cargo's target directory.
pub fn program(plane: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.parent().map(|folder| folder.join(plane)).context("a folder")?;
    ensure!(Path::is_file(&path), "{} is missing: build {plane} in the same profile", path.display());
    Ok(path)
}
