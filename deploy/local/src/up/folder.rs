//! Folder for the files of a cluster.

use anyhow::Context;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Existing folders, for an exit that drops nothing.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Folder of this cluster, not readable by other users. Dropping it removes it: it holds only logs and a kubeconfig
/// that is of no use afterwards.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn make() -> anyhow::Result<Self> {
        let prefix = format!("zeroscale-{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir();
        let folder = folder.with_context(|| format!("cannot create a folder in {}", std::env::temp_dir().display()))?;
        FOLDERS.lock().push(folder.path().to_owned());
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.path());
        FOLDERS.lock().retain(|folder| folder != self.path());
    }
}

/// Removes the folders of all clusters in this process, which is about to exit.
pub(crate) fn remove_all() {
    for folder in FOLDERS.lock().iter() {
        let _ = std::fs::remove_dir_all(folder);
    }
}
