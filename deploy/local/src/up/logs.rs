//! Pod logs, read from the node's files for the API server.

use crate::api::{PodLogQuery, PodLogs};
use crate::node::logs::{LogQuery, find, is_over, read_file};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// Interval at which a followed log is read. It is short enough for a person.
const FOLLOW_PERIOD: Duration = Duration::from_millis(200);

/// Returns the reader of logs that a node keeps in `work_dir`.
pub(super) fn of(work_dir: PathBuf) -> PodLogs {
    Arc::new(move |query| {
        let work_dir = work_dir.clone();
        Box::pin(async move { open(&work_dir, query).await })
    })
}

async fn open(work_dir: &Path, query: PodLogQuery) -> anyhow::Result<BoxStream<'static, Bytes>> {
    let PodLogQuery { namespace, pod, container, follow, previous, tail_lines, limit_bytes } = query;
    let part = LogQuery { tail_lines, previous, limit_bytes };
    let path = find(work_dir, &namespace, &pod, &container, previous)?;
    // Keep one file open: it stays readable after a new run starts or the pod is removed.
    let file = std::fs::File::open(&path)?;
    let so_far = read_file(&file, &part)?;
    let left = limit_bytes.map_or(usize::MAX, |limit| limit - so_far.len());
    let first = stream::once(async move { so_far });
    if !follow {
        return Ok(first.boxed());
    }
    Ok(first
        .chain(stream::unfold((File::from_std(file), path, left), |(mut file, path, left)| async move {
            if left == 0 {
                return None;
            }
            let mut bytes = more(&mut file, &path).await?;
            bytes.truncate(left);
            let left = left - bytes.len();
            Some((bytes, (file, path, left)))
        }))
        .boxed())
}

/// Waits for more bytes in `file`, opened at `path`. Returns `None` once its run has ended and all of it was read.
async fn more(file: &mut File, path: &Path) -> Option<Bytes> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::logs::PodLogs as Files;
    use std::io::Write;
    use tokio::time::timeout;

    /// Timeout far beyond what any step takes, so that a bug fails the test instead of hanging it.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn follow(work_dir: &Path) -> BoxStream<'static, Bytes> {
        follow_up_to(None, work_dir).await
    }

    async fn follow_up_to(limit_bytes: Option<usize>, work_dir: &Path) -> BoxStream<'static, Bytes> {
        let query = PodLogQuery {
            namespace: "ns".into(),
            pod: "p".into(),
            container: "main".into(),
            follow: true,
            limit_bytes,
            ..PodLogQuery::default()
        };
        open(work_dir, query).await.expect("a log")
    }

    async fn text(stream: BoxStream<'static, Bytes>) -> String {
        let bytes = timeout(PATIENCE, stream.collect::<Vec<_>>()).await.expect("an end").concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Goal: a follower gets every line, including those written during the first response. The log ends when its run
    /// ends or a new run starts, but not before.
    #[tokio::test]
    async fn a_followed_log_is_whole_and_ends_with_its_run() {
        for is_told in [true, false] {
            let dir = tempfile::tempdir().expect("a directory");
            let files = Files::new(dir.path(), "ns", "p", "u");
            let mut file = files.create("main", 0).expect("a file");
            writeln!(file, "a").expect("written");
            let mut stream = follow(dir.path()).await;
            writeln!(file, "b").expect("written");
            assert_eq!(timeout(PATIENCE, stream.next()).await.expect("a line"), Some("a\n".into()));
            assert_eq!(timeout(PATIENCE, stream.next()).await.expect("a line"), Some("b\n".into()));
            assert!(timeout(FOLLOW_PERIOD * 2, stream.next()).await.is_err(), "it runs");
            let stream = follow(dir.path()).await;
            writeln!(file, "c").expect("written");
            match is_told {
                true => files.end("main", 0),
                false => drop(files.create("main", 1).expect("a file")),
            }
            assert_eq!(text(stream).await, "a\nb\nc\n");
        }
    }

    /// Goal: a run that is retried with the same number, since it did not start, can be followed again.
    #[tokio::test]
    async fn a_run_that_is_tried_again_is_not_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = Files::new(dir.path(), "ns", "p", "u");
        drop(files.create("main", 0).expect("a file"));
        files.end("main", 0);
        let mut file = files.create("main", 0).expect("a file");
        let stream = follow(dir.path()).await;
        writeln!(file, "a").expect("written");
        files.end("main", 0);
        assert_eq!(text(stream).await, "a\n");
    }

    /// Goal: a follower gets the last lines of a program even if the log is deleted with its pod before they are read.
    #[tokio::test]
    async fn last_words_are_read_after_the_pod_has_gone() {
        for is_told in [true, false] {
            let dir = tempfile::tempdir().expect("a directory");
            let files = Files::new(dir.path(), "ns", "p", "u");
            let mut file = files.create("main", 0).expect("a file");
            writeln!(file, "a").expect("written");
            let stream = follow(dir.path()).await;
            writeln!(file, "b").expect("written");
            if is_told {
                files.end("main", 0);
            }
            files.remove();
            assert_eq!(text(stream).await, "a\nb\n");
        }
    }

    /// Goal: a followed log ends at the requested byte limit, even while its run continues.
    #[tokio::test]
    async fn a_followed_log_ends_at_its_limit() {
        for (limit, expected) in [(0, ""), (1, "a"), (3, "a\nb"), (4, "a\nb\n")] {
            let dir = tempfile::tempdir().expect("a directory");
            let mut file = Files::new(dir.path(), "ns", "p", "u").create("main", 0).expect("a file");
            writeln!(file, "a").expect("written");
            let stream = follow_up_to(Some(limit), dir.path()).await;
            writeln!(file, "b\nc").expect("written");
            assert_eq!(text(stream).await, expected);
        }
    }
}
