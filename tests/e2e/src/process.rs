//! The workspace's binaries as processes.

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Longest wait for a line that was promised, and for an end that was asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running binary; killed when dropped.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts one of the workspace's binaries with nothing but `env` for environment, so that the test says all that it
    /// is told. `RUST_LOG` is passed on; without it only warnings are logged.
    ///
    /// # Errors
    /// It is not built: cargo builds binaries of other packages only where it tests those too.
    pub fn start(binary: &str, args: &[&str], env: &[(&str, String)]) -> anyhow::Result<Self> {
        let mut command = Command::new(find(binary)?);
        command.args(args).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        command.env("RUST_LOG", std::env::var_os("RUST_LOG").unwrap_or("warn".into()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{binary} cannot be started"))?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { child, lines })
    }

    /// Its next line of output.
    ///
    /// # Errors
    /// It ends before there is one.
    pub async fn line(&mut self) -> anyhow::Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.context("no line of output")??;
        line.context("it ended; its error output tells why")
    }

    /// Asks it to end by SIGTERM, and waits until it has.
    ///
    /// # Errors
    /// It does not end in 30 s.
    pub async fn terminate(mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("SIGTERM did not end it")?.map_err(Into::into)
    }

    /// Takes it away in an instant, by SIGKILL.
    ///
    /// # Errors
    /// It has ended before.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        self.child.wait().await?;
        Ok(())
    }

    /// Makes it stand still, by SIGSTOP, with all its connections open.
    ///
    /// # Errors
    /// It has ended before.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on, by SIGCONT.
    ///
    /// # Errors
    /// It has ended before.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        Ok(kill_process(pid.context("it has ended already")?, signal)?)
    }
}

/// Where cargo has put a binary of the workspace.
///
/// # Errors
/// It is not built.
pub fn find(binary: &str) -> anyhow::Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let built = tests.parent().and_then(std::path::Path::parent).context("tests lie in a folder of a folder")?;
    let path = built.join(binary);
    let release = if built.ends_with("release") { " --release" } else { "" };
    anyhow::ensure!(
        path.is_file(),
        "{} is missing. Tests of the whole workspace build it; for these alone run first: \
         cargo build{release} -p local -p activator -p autoscaler",
        path.display()
    );
    Ok(path)
}
