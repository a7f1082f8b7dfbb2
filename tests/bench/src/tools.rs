//! Peers and load generators: Debian packages, installed if they are missing and the process has the permission.

use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::{Command, Stdio};

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
    /// Returns the path of the program.
    ///
    /// # Errors
    /// Fails if the program is not installed and cannot be.
    pub(crate) fn path(self) -> anyhow::Result<PathBuf> {
        if let Some(path) = self.find() {
            return Ok(path);
        }
        eprintln!("{} is missing, installing Debian's {}", self.program, self.package);
        let installed = Command::new("apt-get")
            .args(["install", "--yes", "--no-install-recommends", self.package])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status();
        ensure!(
            installed.is_ok_and(|status| status.success()),
            "{} cannot be installed here; as root: apt-get install {}",
            self.program,
            self.package
        );
        self.find().with_context(|| format!("{} contains no {}", self.package, self.program))
    }

    fn find(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        folders.map(|folder| folder.join(self.program)).find(|candidate| candidate.is_file())
    }
}
