//! Pods' logs, from the node's files to the API server.

use crate::api::{PodLogQuery, PodLogs};
use crate::node::logs::{LogQuery, find, is_over, read_file};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// How often a followed log is looked at for more. A person reads it.
const FOLLOW_PERIOD: Duration = Duration::from_millis(200);

/// The logs that a node keeps in `work_dir`.
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
    // One file throughout, whatever run is the current one meanwhile, and also after it has gone with its pod.
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

/// Waits until there is more in `file`, which is or was at `path`; `None` once its run is over and all of it was read.
async fn more(file: &mut File, path: &Path) -> Option<Bytes> {
    loop {
        let is_over = is_over(path); // Before it is read, or else what comes in between would be lost.
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

    /// Far beyond what anything here takes: only there so that a bug fails a test and does not hang it.
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

    /// Goal: who follows has every line, also those written while the first answer was on its way, and an end when the run
    /// has one or there is another run, but not before.
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

    /// Goal: a run that is tried again with its number, as it did not start, is followed anew.
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

    /// Goal: who follows has a program's last words, although the log has gone with its pod before they were read.
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

    /// Goal: a followed log ends with the last byte that was asked for, while its run goes on.
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
