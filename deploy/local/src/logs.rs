//! Logs of containers, written by the node and served by the API server: one file per run of a container, with standard
//! output and error in the order of writing.
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
use futures::stream::{self, BoxStream, StreamExt as _};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// Maximum size of a response in bytes. A longer log is cut at its start.
const ANSWER_MAX: u64 = 16 * 1024 * 1024;

/// Free bytes required to start a program. A program that cannot write its log may fail without an explanation.
const SPACE_MIN: u64 = 1 << 20;

/// Interval at which a followed log is read: short enough for a person who watches it.
const FOLLOW_PERIOD: Duration = Duration::from_millis(200);

/// Query for a log (`kubectl logs`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogQuery {
    /// Keep the stream open for later output.
    pub(crate) follow: bool,
    /// Maximum number of lines, from the end.
    pub(crate) tail_lines: Option<usize>,
    /// Maximum number of bytes, from the start of the selected part.
    pub(crate) limit_bytes: Option<usize>,
}

/// Opens a log. Fails if the file cannot be read.
pub(crate) fn open(path: PathBuf, query: &LogQuery) -> io::Result<BoxStream<'static, Bytes>> {
    // Keep one file open: it stays readable after a new run starts or the pod is removed.
    let file = File::open(&path)?;
    let mut so_far = tail(&file, ANSWER_MAX)?;
    if let Some(lines) = query.tail_lines {
        so_far.drain(..start_of_last_lines(&so_far, lines));
    }
    so_far.truncate(query.limit_bytes.unwrap_or(usize::MAX));
    let remaining = query.limit_bytes.map_or(usize::MAX, |limit| limit - so_far.len());
    let first = stream::once(async move { Bytes::from(so_far) });
    if !query.follow {
        return Ok(first.boxed());
    }
    let file = tokio::fs::File::from_std(file);
    let rest = stream::unfold((file, path, remaining), |(mut file, path, remaining)| async move {
        if remaining == 0 {
            return None;
        }
        let mut bytes = read_more(&mut file, &path).await?;
        bytes.truncate(remaining);
        let remaining = remaining - bytes.len();
        Some((bytes, (file, path, remaining)))
    });
    Ok(first.chain(rest).boxed())
}

/// Waits for more bytes in `file`, opened at `path`. Returns `None` once its run has ended and all of it was read.
async fn read_more(file: &mut tokio::fs::File, path: &Path) -> Option<Bytes> {
    loop {
        let is_over = is_over(path); // Check before reading, so that bytes written in between are not lost.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await.ok()?;
        if !bytes.is_empty() {
            return Some(bytes.into());
        }
        if is_over {
            return None;
        }
        tokio::time::sleep(FOLLOW_PERIOD).await;
    }
}

/// Reports whether the log of a run is complete: the run has ended, there is a newer run, or the log was removed with
/// its pod.
fn is_over(path: &Path) -> bool {
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
    /// Names the folder of a pod's logs in `work_dir`. It may not exist yet.
    pub(crate) fn new(work_dir: &Path, namespace: &str, pod: &str, uid: &str) -> Self {
        Self { folder: work_dir.join("logs").join(format!("{namespace}_{pod}_{uid}")) }
    }

    /// Returns the file of a container's latest run, or of the run before.
    pub(crate) fn find(&self, container: &str, previous: bool) -> Option<PathBuf> {
        let folder = self.folder.join(container);
        let runs = std::fs::read_dir(&folder).ok()?.filter_map(Result::ok);
        let mut numbers: Vec<u32> =
            runs.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect();
        numbers.sort_unstable();
        let number = numbers.iter().nth_back(usize::from(previous))?;
        Some(folder.join(format!("{number}.log")))
    }

    /// Creates the file for a run of a container. A run that did not start is retried with the same number. Fails if
    /// the folder cannot be written to or the disk is full.
    pub(crate) fn create(&self, container: &str, run: i32) -> io::Result<File> {
        let folder = self.folder.join(container);
        std::fs::create_dir_all(&folder)?;
        if let Some(full) = self.full_disk() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, full));
        }
        let path = folder.join(format!("{run}.log"));
        let _ = std::fs::set_permissions(&path, Permissions::from_mode(0o600)); // Usually the file does not exist.
        OpenOptions::new().create(true).append(true).open(&path)
    }

    /// Marks a run as ended, or as never started.
    pub(crate) fn end(&self, container: &str, run: i32) {
        let path = self.folder.join(container).join(format!("{run}.log"));
        if let Err(error) = std::fs::set_permissions(&path, Permissions::from_mode(0o400)) {
            tracing::debug!(path = %path.display(), %error, "the log could not be marked as complete");
        }
    }

    /// Returns a message with the remedy if the disk of these logs is full.
    pub(crate) fn full_disk(&self) -> Option<String> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let is_full = disk.f_bavail * disk.f_frsize < SPACE_MIN || disk.f_favail == 0 && disk.f_files > 0;
        is_full.then(|| {
            format!("no space is left at {}, where programs write their logs; free some space", self.folder.display())
        })
    }

    /// Removes all logs of the pod.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(folder = %self.folder.display(), %error, "the logs of the pod could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tempfile::TempDir;
    use tokio::time::timeout;

    /// Timeout far beyond what any step takes, so that a bug fails the test instead of hanging it.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn pod_logs() -> (TempDir, PodLogs) {
        let dir = tempfile::tempdir().expect("a directory");
        let logs = PodLogs::new(dir.path(), "ns", "p", "u");
        (dir, logs)
    }

    /// Returns logs with one run that has written a line.
    fn first_run() -> (TempDir, PodLogs, File) {
        let (dir, logs) = pod_logs();
        let mut file = logs.create("main", 0).expect("a file");
        writeln!(file, "a").expect("written");
        (dir, logs, file)
    }

    fn follow(limit_bytes: Option<usize>, logs: &PodLogs) -> BoxStream<'static, Bytes> {
        let query = LogQuery { follow: true, limit_bytes, ..LogQuery::default() };
        open(logs.find("main", false).expect("a log"), &query).expect("it can be read")
    }

    async fn text(stream: BoxStream<'static, Bytes>) -> String {
        let bytes = timeout(PATIENCE, stream.collect::<Vec<_>>()).await.expect("an end").concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[tokio::test]
    async fn logs_are_stored_per_run_and_read_from_the_end() {
        let (_dir, logs) = pod_logs();
        for run in 0..3 {
            write!(logs.create("main", run).expect("a file"), "run {run}\nb\nc\n").expect("written");
        }
        let read = async |previous, query: LogQuery| {
            text(open(logs.find("main", previous).expect("a log"), &query).expect("it can be read")).await
        };
        assert_eq!(read(false, LogQuery::default()).await, "run 2\nb\nc\n");
        assert_eq!(read(true, LogQuery::default()).await, "run 1\nb\nc\n");
        for (lines, expected) in [(0, ""), (1, "c\n"), (2, "b\nc\n"), (9, "run 2\nb\nc\n")] {
            assert_eq!(read(false, LogQuery { tail_lines: Some(lines), ..LogQuery::default() }).await, expected);
        }
        assert_eq!(read(false, LogQuery { limit_bytes: Some(3), ..LogQuery::default() }).await, "run");
        logs.remove();
        assert_eq!(logs.find("main", false), None);
    }

    /// Goal: a follower gets every line, including those written during the first response. The log ends when its run
    /// ends or a new run starts, but not before.
    #[tokio::test]
    async fn a_followed_log_is_complete_and_ends_with_its_run() {
        for has_ended in [true, false] {
            let (_dir, logs, mut file) = first_run();
            let mut stream = follow(None, &logs);
            writeln!(file, "b").expect("written");
            assert_eq!(timeout(PATIENCE, stream.next()).await.expect("a line"), Some("a\n".into()));
            assert_eq!(timeout(PATIENCE, stream.next()).await.expect("a line"), Some("b\n".into()));
            assert!(timeout(FOLLOW_PERIOD * 2, stream.next()).await.is_err(), "the run continues");
            let stream = follow(None, &logs);
            writeln!(file, "c").expect("written");
            match has_ended {
                true => logs.end("main", 0),
                false => drop(logs.create("main", 1).expect("a file")),
            }
            assert_eq!(text(stream).await, "a\nb\nc\n");
        }
    }

    /// Goal: a run that did not start and is retried with the same number can be followed again.
    #[tokio::test]
    async fn the_log_of_a_retried_run_can_be_followed() {
        let (_dir, logs) = pod_logs();
        drop(logs.create("main", 0).expect("a file"));
        logs.end("main", 0);
        let mut file = logs.create("main", 0).expect("a file");
        let stream = follow(None, &logs);
        writeln!(file, "a").expect("written");
        logs.end("main", 0);
        assert_eq!(text(stream).await, "a\n");
    }

    /// Goal: a follower gets the last lines of a program even if the log is deleted with its pod before they are read.
    #[tokio::test]
    async fn a_follower_gets_the_last_lines_of_a_removed_pod() {
        for has_ended in [true, false] {
            let (_dir, logs, mut file) = first_run();
            let stream = follow(None, &logs);
            writeln!(file, "b").expect("written");
            if has_ended {
                logs.end("main", 0);
            }
            logs.remove();
            assert_eq!(text(stream).await, "a\nb\n");
        }
    }

    /// Goal: a followed log ends at the requested byte limit, even while its run continues.
    #[tokio::test]
    async fn a_followed_log_ends_at_its_limit() {
        for (limit, expected) in [(0, ""), (1, "a"), (3, "a\nb"), (4, "a\nb\n")] {
            let (_dir, logs, mut file) = first_run();
            let stream = follow(Some(limit), &logs);
            writeln!(file, "b\nc").expect("written");
            assert_eq!(text(stream).await, expected);
        }
    }
}
