//! Folder for the files of a cluster.

use anyhow::Context;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};

/// Existing folders, for an exit that drops nothing.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Folder of this cluster, not readable by other users. Dropping it removes it: it holds only logs and a kubeconfig
/// that is of no use afterwards.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn make() -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let base: &Path = &std::env::temp_dir();
        for turn in 0..1000 {
            let folder = base.join(format!("zeroscale-{}-{turn}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {
                    FOLDERS.lock().push(folder.clone());
                    return Ok(Self(folder));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", folder.display())),
            }
        }
        anyhow::bail!("no free folder name zeroscale-{}-N in {}", std::process::id(), base.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        FOLDERS.lock().retain(|folder| *folder != self.0);
    }
}

/// Removes the folders of all clusters in this process, which is about to exit.
pub(crate) fn remove_all() {
    for folder in FOLDERS.lock().iter() {
        let _ = std::fs::remove_dir_all(folder);
    }
}
