//! Controls when pods may start: a test decides, instead of a fixed time that a slow machine may exceed.

use crate::workload::Workload;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Variable with the path of a file whose existence lets a pod of the tests' program start.
const FILE: &str = "E2E_STARTS_WITH";
/// Interval at which the file is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Keeps pods from starting while it is closed.
pub struct Gate(TempDir);

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> std::io::Result<Self> {
        tempfile::tempdir().map(Self)
    }

    /// Makes the workload's pods wait for the gate.
    pub fn before(&self, workload: Workload) -> Workload {
        workload.env(FILE, self.file().display())
    }

    /// Lets pods start.
    pub fn open(&self) -> std::io::Result<()> {
        std::fs::write(self.file(), "")
    }

    /// Holds back pods that start from now on. Fails if the gate is closed.
    pub fn close(&self) -> std::io::Result<()> {
        std::fs::remove_file(self.file())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("open")
    }
}

/// Waits in a pod until it may start.
pub fn pass() {
    if let Some(file) = std::env::var_os(FILE).map(PathBuf::from) {
        while !file.exists() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
