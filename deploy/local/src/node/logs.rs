//! Logs of containers: one file per run of a container, with standard output and error in the order of writing.
//!
//! The path is `DIR/logs/NAMESPACE_POD_UID/CONTAINER/N.log`, where N counts restarts. Programs write to the file
//! themselves, so logging costs this process nothing. After a run, its file becomes read-only, which tells followers
//! that it is complete. This works on a full disk too. The folder is removed with the pod. No program starts with less
//! than [`SPACE_MIN`] free for its log.
//!
//! # Limits
//!
//! There is no rotation, no timestamp per line (so no `sinceTime`), and no separate stream for errors.

use bytes::Bytes;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Maximum size of a response in bytes. Of a longer log, the end is returned.
const ANSWER_MAX: u64 = 16 * 1024 * 1024;

/// Free bytes required to start a program. A program that cannot write its log may fail without an explanation.
const SPACE_MIN: u64 = 1 << 20;

/// Requested part of a log (`kubectl logs`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Maximum number of lines, from the end.
    pub tail_lines: Option<usize>,
    /// Maximum number of bytes, from the start of the selected part.
    pub limit_bytes: Option<usize>,
    /// Selects the run before the current one.
    pub previous: bool,
}

/// Returns the file of the current run of a container, or of the one before (`previous`). If several pods had the same
/// name, the newest one is used.
///
/// # Errors
/// Fails if there is no log.
pub(crate) fn find(
    work_dir: &Path,
    namespace: &str,
    pod: &str,
    container: &str,
    previous: bool,
) -> io::Result<PathBuf> {
    let found = || {
        let prefix = format!("{namespace}_{pod}_");
        let folders = std::fs::read_dir(work_dir.join("logs")).ok()?.filter_map(Result::ok);
        let folder = folders
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)))
            .max_by_key(|entry| entry.metadata().and_then(|meta| meta.modified()).ok())?;
        let runs = std::fs::read_dir(folder.path().join(container)).ok()?.filter_map(Result::ok);
        let mut numbers: Vec<u32> =
            runs.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect();
        numbers.sort_unstable();
        let number = numbers.len().checked_sub(if previous { 2 } else { 1 }).map(|at| numbers[at])?;
        Some(folder.path().join(container).join(format!("{number}.log")))
    };
    found().ok_or_else(|| {
        let which = if previous { "previous run of container" } else { "container" };
        io::Error::new(io::ErrorKind::NotFound, format!("{which} {container:?} of pod {namespace}/{pod} has no log"))
    })
}

/// Reads a container's log.
///
/// # Errors
/// Fails if there is no log or it cannot be read.
pub fn read(work_dir: &Path, namespace: &str, pod: &str, container: &str, query: &LogQuery) -> io::Result<Bytes> {
    let path = find(work_dir, namespace, pod, container, query.previous)?;
    read_file(&File::open(path)?, query)
}

/// Reads the log of one run. Later reads from `file` return what is written afterwards.
pub(crate) fn read_file(file: &File, query: &LogQuery) -> io::Result<Bytes> {
    let mut bytes = tail(file, ANSWER_MAX)?;
    if let Some(lines) = query.tail_lines {
        let from = start_of_last_lines(&bytes, lines);
        bytes.drain(..from);
    }
    bytes.truncate(query.limit_bytes.unwrap_or(usize::MAX));
    Ok(bytes.into())
}

/// Reports whether the log of a run is complete: the run has ended, there is a newer run, or the log was removed with
/// its pod.
pub(crate) fn is_over(path: &Path) -> bool {
    let number = path.file_stem().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newer = number.and_then(|number| number.checked_add(1)).map(|next| path.with_file_name(format!("{next}.log")));
    path.metadata().is_ok_and(|file| file.permissions().readonly())
        || !path.exists()
        || newer.is_some_and(|newer| newer.exists())
}

/// Returns the last `max` bytes of a file.
fn tail(mut file: &File, max: u64) -> io::Result<Vec<u8>> {
    let from = file.metadata()?.len().saturating_sub(max);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the start of the last `lines` lines.
fn start_of_last_lines(bytes: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return bytes.len();
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').nth(lines - 1).map_or(0, |(at, _)| at + 1)
}

/// Folder of a pod's logs.
#[derive(Clone, Debug)]
pub(crate) struct PodLogs {
    folder: PathBuf,
}

impl PodLogs {
    /// Returns the folder of this pod.
    pub(crate) fn new(work_dir: &Path, namespace: &str, pod: &str, uid: &str) -> Self {
        Self { folder: work_dir.join("logs").join(format!("{namespace}_{pod}_{uid}")) }
    }

    /// Creates the file for a run of a container. A run that did not start is retried with the same number.
    ///
    /// # Errors
    /// Fails if the folder cannot be written to or the disk is full.
    pub(crate) fn create(&self, container: &str, run: i32) -> io::Result<File> {
        let folder = self.folder.join(container);
        std::fs::create_dir_all(&folder)?;
        if let Some(full) = self.full_disk() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, full));
        }
        let path = folder.join(format!("{run}.log"));
        let _ = std::fs::set_permissions(&path, Permissions::from_mode(0o600)); // Usually there is none.
        OpenOptions::new().create(true).append(true).open(&path)
    }

    /// Marks a run as ended, or as never started.
    pub(crate) fn end(&self, container: &str, run: i32) {
        let path = self.folder.join(container).join(format!("{run}.log"));
        if let Err(error) = std::fs::set_permissions(&path, Permissions::from_mode(0o400)) {
            tracing::debug!(path = %path.display(), %error, "who follows a log does not see that it is over");
        }
    }

    /// Returns a message with the remedy if the disk of these logs is full.
    pub(crate) fn full_disk(&self) -> Option<String> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let is_full = disk.f_bavail * disk.f_frsize < SPACE_MIN || disk.f_favail == 0 && disk.f_files > 0;
        is_full.then(|| {
            format!("no space is left at {}, where programs write their logs: free some", self.folder.display())
        })
    }

    /// Removes all logs of the pod.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(folder = %self.folder.display(), %error, "a pod's logs could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn logs_are_kept_by_run_and_read_from_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let logs = PodLogs::new(dir.path(), "ns", "p", "u");
        for run in 0..3 {
            write!(logs.create("main", run).expect("a file"), "run {run}\nb\nc\n").expect("written");
        }
        let read = |query: LogQuery| {
            read(dir.path(), "ns", "p", "main", &query)
                .map(|b| String::from_utf8_lossy(&b).into_owned())
                .expect("a log")
        };
        assert_eq!(read(LogQuery::default()), "run 2\nb\nc\n");
        assert_eq!(read(LogQuery { previous: true, ..LogQuery::default() }), "run 1\nb\nc\n");
        for (lines, expected) in [(0, ""), (1, "c\n"), (2, "b\nc\n"), (9, "run 2\nb\nc\n")] {
            assert_eq!(read(LogQuery { tail_lines: Some(lines), ..LogQuery::default() }), expected);
        }
        assert_eq!(read(LogQuery { limit_bytes: Some(3), ..LogQuery::default() }), "run");
        logs.remove();
        assert!(find(dir.path(), "ns", "p", "main", false).is_err());
    }
}
