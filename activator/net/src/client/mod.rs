//! Clients and their requests, as the server passes them to the chain.

pub(crate) mod connection_permit;
pub(crate) mod connections;
pub(crate) mod disconnects;
pub(crate) mod interim;
pub(crate) mod peer;
pub(crate) mod timers;

use crate::body::RequestBody;
use http::Request;
use peer::Peer;
use std::sync::Arc;
use tokio::time::Instant;

/// A received request.
pub struct Inbound {
    /// Head and body.
    pub request: Request<RequestBody>,
    /// Client that sent the request.
    pub peer: Arc<Peer>,
    /// Time when its head was complete.
    pub received: Instant,
    /// Set if this is not the first request of its connection; only for HTTP/1.
    pub is_subsequent: bool,
}
