//! Errors of the network and of HTTP that leave a request without a pod's response.

use http::StatusCode;
use std::net::SocketAddr;
use thiserror::Error;

/// Reason why a request failed before the response's head arrived.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// A pod could not be reached, or closed the connection before it sent the response's head.
    #[error("pod {dest}: {cause}")]
    Pod {
        /// Address of the pod.
        dest: SocketAddr,
        /// Description of the failure.
        cause: String,
    },
    /// The request cannot be parsed, or cannot be sent in the pod's protocol.
    #[error("{0}")]
    Malformed(&'static str),
    /// The request is well-formed, but uses a feature that is not supported.
    #[error("{rule}")]
    Unsupported {
        /// Status code for this error.
        status: StatusCode,
        /// Description of the unsupported feature.
        rule: &'static str,
    },
    /// The limit of client connections is reached, and no workload or client has more connections than those of this
    /// request.
    #[error(
        "too many connections: {bound} connections are open, and no other workload or client has more than this one"
    )]
    NoRoom {
        /// Maximum number of client connections.
        bound: u64,
    },
}
