//! Why a request got no answer from a pod, as far as the network and HTTP are to blame.

use http::StatusCode;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a request failed before its response's head arrived.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// A pod could not be reached, or broke off before its response's head.
    #[error("pod {dest}: {cause}")]
    Pod {
        /// The pod's address.
        dest: SocketAddr,
        /// What went wrong.
        cause: String,
    },
    /// The request cannot be understood, or cannot be expressed towards the pod.
    #[error("{0}")]
    Malformed(&'static str),
    /// The request is well-formed and asks for what is not offered here.
    #[error("{rule}")]
    Unsupported {
        /// What HTTP has for it.
        status: StatusCode,
        /// What is not offered.
        rule: &'static str,
    },
    /// Clients have as many connections as they may, and nobody has more than this one's workload, or than this client.
    #[error(
        "no room: clients have {bound} connections already, and nobody has more than this workload's or this client"
    )]
    NoRoom {
        /// Most of them.
        bound: u64,
    },
}
