//! Folder for the files of a cluster.

use anyhow::Context;
use parking_lot::Mutex;
use std::path::PathBuf;
use tempfile::TempDir;

/// Folders of all clusters, for an immediate exit, which drops nothing.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Creates the folder of a cluster, not readable by other users. Dropping the value removes the folder, which has only
/// logs and a kubeconfig of the ended cluster.
pub(super) fn make() -> anyhow::Result<TempDir> {
    let prefix = format!("zeroscale-{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir();
    let folder = folder.with_context(|| format!("cannot create a folder in {}", std::env::temp_dir().display()))?;
    FOLDERS.lock().push(folder.path().to_owned());
    Ok(folder)
}

/// Removes the folders of all clusters in this process, which is about to exit.
pub(crate) fn remove_all() {
    for folder in FOLDERS.lock().iter() {
        let _ = std::fs::remove_dir_all(folder); // It may have been removed already.
    }
}
