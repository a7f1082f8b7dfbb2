//! Logs of pods. The server stores none; the node's owner provides a source.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Query for a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodLogQuery {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Keep the stream open for later output.
    pub follow: bool,
    /// Return the log of the container's previous run.
    pub previous: bool,
    /// Maximum number of lines, from the end.
    pub tail_lines: Option<usize>,
    /// Maximum number of bytes, from the start of the selected part.
    pub limit_bytes: Option<usize>,
}

/// Function that opens a log: a stream of bytes, or the reason why there is none.
pub type PodLogs =
    Arc<dyn Fn(PodLogQuery) -> BoxFuture<'static, anyhow::Result<BoxStream<'static, Bytes>>> + Send + Sync>;
