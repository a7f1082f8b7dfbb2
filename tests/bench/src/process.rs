//! Starts processes, and reads their CPU time and memory from the kernel.
//!
//! Each process is started through [`crate::role::Role::Exec`]. Therefore the kernel ends it when this process
//! ends, for whatever reason.
//!
//! Peers and load generators are programs of Debian packages ([`Tool`]).

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
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
        Self::start(e2e::process::program(plane)?, [] as [&str; 0], &env)
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
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).with_context(|| path.clone())?;
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

/// A program, and the package that contains it.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
}

pub(crate) const HAPROXY: Tool = Tool { program: "haproxy", package: "haproxy" };
pub(crate) const NGINX: Tool = Tool { program: "nginx", package: "nginx-light" };
pub(crate) const WRK: Tool = Tool { program: "wrk", package: "wrk" };
pub(crate) const H2LOAD: Tool = Tool { program: "h2load", package: "nghttp2-client" };

impl Tool {
    /// Returns the path of the program, if it is installed.
    pub(crate) fn path(self) -> anyhow::Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        let found = folders.map(|folder| folder.join(self.program)).find(|candidate| candidate.is_file());
        found.with_context(|| format!("{} is missing: apt-get install {}", self.program, self.package))
    }
}
