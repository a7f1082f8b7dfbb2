//! Pods' logs, from the node's files to the API server.

use crate::api::{PodLogQuery, PodLogs};
use crate::node::logs::{LogQuery, path, read};
use anyhow::Context;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

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
    let PodLogQuery { namespace, pod, container, follow, previous, tail_lines } = query;
    let container = container.context("the container must be named")?;
    let part = LogQuery { tail_lines, previous, limit_bytes: None };
    let so_far = read(work_dir, &namespace, &pod, &container, &part)?;
    let first = stream::once(async move { so_far });
    if !follow {
        return Ok(first.boxed());
    }
    let file = path(work_dir, &namespace, &pod, &container, previous).context("the log has gone")?;
    let end = std::fs::metadata(&file)?.len();
    Ok(first
        .chain(stream::unfold((file, end), |(file, from)| async move {
            let (bytes, end) = more(&file, from).await?;
            Some((bytes, (file, end)))
        }))
        .boxed())
}

/// Waits until `file` is longer than `from`; `None` once it is gone, as it goes with its pod.
async fn more(file: &Path, from: u64) -> Option<(Bytes, u64)> {
    loop {
        let mut log = tokio::fs::File::open(file).await.ok()?;
        log.seek(std::io::SeekFrom::Start(from)).await.ok()?;
        let mut bytes = Vec::new();
        let count = log.read_to_end(&mut bytes).await.ok()?;
        if count > 0 {
            return Some((bytes.into(), from + u64::try_from(count).unwrap_or(0)));
        }
        tokio::time::sleep(FOLLOW_PERIOD).await;
    }
}
