//! The workspace's binaries as processes.

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
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
    pub async fn terminate(mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("SIGTERM did not end it")?.map_err(Into::into)
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.kill_now().await
    }

    /// Does the same and leaves the value, so that another process can replace it.
    pub async fn kill_now(&mut self) -> anyhow::Result<()> {
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
    let built = tests.parent().and_then(std::path::Path::parent).context("tests lie in a folder of a folder")?;
    let path = built.join(binary);
    let release = if built.ends_with("release") { " --release" } else { "" };
    anyhow::ensure!(
        path.is_file(),
        "{} is missing. Tests of the whole workspace build it; for these alone run first: \
         cargo build{release} -p local -p activator -p autoscaler -p hpa",
        path.display()
    );
    Ok(path)
}
