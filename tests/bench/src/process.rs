//! Starts processes, and reads their CPU time and memory from the kernel.
//!
//! Each process is started through [`crate::role::Role::Exec`]. Therefore the kernel ends it when this process
//! ends, for whatever reason.

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A process. It is killed when dropped, together with its children at that time.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` without input. Its output is discarded; its errors go to ours.
    pub(crate) fn start<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        env: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let mut command = through_exec(program.as_ref(), args)?;
        command.envs(env.iter().map(|(name, value)| (name, value))).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("{} cannot be started", program.as_ref().display()))?;
        Ok(Self { child })
    }

    /// Starts this program in another role, and waits for the line that it prints when it is ready.
    pub(crate) fn role(args: &[&str]) -> anyhow::Result<(Self, String)> {
        let (process, line, _) = Self::start_role(args)?;
        Ok((process, line))
    }

    /// Starts like `Self::role`, for a role that prints its address.
    pub(crate) fn server(args: &[&str]) -> anyhow::Result<(Self, SocketAddr)> {
        let (process, address) = Self::role(args)?;
        Ok((process, address.parse()?))
    }

    /// Starts a plane as the pod `name` at `ip`, with `more` in its environment. It logs at `level` unless `RUST_LOG`
    /// is set.
    pub(crate) fn plane(
        plane: &str,
        kubeconfig: String,
        (name, ip): (&str, IpAddr),
        level: &str,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> anyhow::Result<Self> {
        let usual = [
            ("KUBECONFIG", kubeconfig),
            ("POD_NAME", name.to_owned()),
            ("POD_IP", ip.to_string()),
            ("SYSTEM_NAMESPACE", e2e::bare::SYSTEM.to_owned()),
            ("ZEROSCALE_LISTEN_ADDRESS", ip.to_string()),
            ("RUST_LOG", std::env::var("RUST_LOG").unwrap_or(level.to_owned())),
        ];
        let env: Vec<_> = usual.into_iter().chain(more).collect();
        Self::start(program(plane)?, [] as [&str; 0], &env)
    }

    /// Starts like `Self::role`, for a role that continues to print. Returns the lines after the first one.
    pub(crate) fn role_with_output(args: &[&str]) -> anyhow::Result<(Self, UnboundedReceiver<String>)> {
        let (process, _, output) = Self::start_role(args)?;
        let (sender, lines) = unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok((process, lines))
    }

    fn start_role(args: &[&str]) -> anyhow::Result<(Self, String, BufReader<ChildStdout>)> {
        let own = std::env::current_exe()?;
        let mut command = through_exec(own.as_os_str(), ["role"].iter().chain(args))?;
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?);
        let process = Self { child };
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "role {args:?} ended before it was ready");
        Ok((process, line.trim().to_owned(), output))
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("its id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Asks the process to end gracefully, and waits until it has.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "ended with {status}");
        Ok(())
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time used by the process and its children.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        self.pids().iter().map(|pid| cpu_of(*pid)).sum()
    }

    /// Returns the resident memory in bytes, without children.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        self.smaps_bytes("Rss:")
    }

    /// Returns the anonymous part of the resident memory in bytes.
    pub(crate) fn anonymous(&self) -> anyhow::Result<u64> {
        self.smaps_bytes("Anonymous:")
    }

    fn smaps_bytes(&self, field: &str) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let line =
            text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("{path}: {field}"))?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    }

    /// Returns the ids of the process and its children.
    fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.child.id()];
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(path).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        pids
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Children first: a killed parent does not end them.
        for pid in self.pids().into_iter().rev() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

fn through_exec<A: AsRef<OsStr>>(program: &OsStr, args: impl IntoIterator<Item = A>) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["role", "exec", "--"]).arg(program).args(args).stdin(Stdio::null());
    Ok(command)
}

/// Returns the CPU time of all threads of a process, from the scheduler's statistics.
fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let mut nanos = 0;
    for thread in std::fs::read_dir(&folder).with_context(|| folder.clone())? {
        let path = thread?.path().join("schedstat");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        nanos += text.split_whitespace().next().context("schedstat is empty")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Builds the planes in this program's profile if cargo started it, so that the figures belong to the current source.
pub(crate) fn build(planes: &[&str]) -> anyhow::Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    let own = std::env::current_exe()?;
    // Cargo names the folder of a profile after it, except for `dev`.
    let folder = own.parent().and_then(Path::file_name).context("a folder")?;
    let profile = if folder == "debug" { "dev".as_ref() } else { folder };
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--profile"]).arg(profile);
    for plane in planes {
        command.args(["-p", plane, "--bin", plane]);
    }
    ensure!(command.status()?.success(), "the planes do not build");
    Ok(())
}

/// Returns the path of a plane's program in cargo's target directory.
pub(crate) fn program(plane: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.parent().map(|folder| folder.join(plane)).context("a folder")?;
    ensure!(Path::is_file(&path), "{} is missing: build {plane} in the same profile", path.display());
    Ok(path)
}
