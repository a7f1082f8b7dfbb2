//! When pods may start: as long as a test says so, and not for a time that a busy machine outlives.

use crate::workload::Workload;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Names the file whose being there lets a pod of the tests' program start.
const FILE: &str = "E2E_STARTS_WITH";
/// From one look at it to the next.
const LOOK: Duration = Duration::from_millis(10);

/// Keeps pods from starting while it is closed, as it is at first.
pub struct Gate(TempDir);

impl Gate {
    /// A closed one.
    ///
    /// # Errors
    /// The file system's.
    pub fn new() -> std::io::Result<Self> {
        tempfile::tempdir().map(Self)
    }

    /// The workload, with pods that wait for it.
    pub fn before(&self, workload: Workload) -> Workload {
        workload.env(FILE, self.file().display())
    }

    /// Lets pods start.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(&self) -> std::io::Result<()> {
        std::fs::write(self.file(), "")
    }

    /// Keeps those that come from now on.
    ///
    /// # Errors
    /// The file system's, or it is closed.
    pub fn close(&self) -> std::io::Result<()> {
        std::fs::remove_file(self.file())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("open")
    }
}

/// In a pod: waits until it may start.
pub fn pass() {
    if let Some(file) = std::env::var_os(FILE).map(PathBuf::from) {
        while !file.exists() {
            std::thread::sleep(LOOK);
        }
    }
}
