//! Logs of pods, which the server does not have itself: whoever runs the pods lends it a source.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Which log a client wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodLogQuery {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Whether the stream goes on with what is still to come.
    pub follow: bool,
    /// Whether the log of the previous run of the container is wanted.
    pub previous: bool,
    /// Only so many of the last lines.
    pub tail_lines: Option<usize>,
    /// Only so many bytes from the start of what would be answered.
    pub limit_bytes: Option<usize>,
}

/// Finds a log: a stream of bytes, or the reason why there is none.
pub type PodLogs =
    Arc<dyn Fn(PodLogQuery) -> BoxFuture<'static, anyhow::Result<BoxStream<'static, Bytes>>> + Send + Sync>;
