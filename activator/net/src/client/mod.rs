//! Clients and their requests, as the server hands them to the chain.

pub(crate) mod disconnects;
pub(crate) mod host;
pub(crate) mod interim;
pub(crate) mod peer;
pub(crate) mod timers;

use crate::body::RequestBody;
use http::Request;
use peer::Peer;
use std::sync::Arc;
use tokio::time::Instant;

/// A request as it was read.
pub struct Inbound {
    /// Head and body.
    pub request: Request<RequestBody>,
    /// Who sent it.
    pub peer: Arc<Peer>,
    /// When its head had been read.
    pub received: Instant,
    /// Whether it is not the first of its connection; told of HTTP/1 alone.
    pub again: bool,
}
