//! HTTP/1.1 to pods: heads and bodies, without a connection. This module does not read, wait or keep time. Only
//! [`Sending`] writes, to a writer that it is given.
//!
//! hyper's client has a task or a dispatcher, to which requests and responses pass through channels: half a dozen
//! allocations per request, and 11 KiB of channels and buffers per idle connection. Here the sender of a request waits
//! for its response anyway, so a connection needs none of that ([`connection`]). Clients' connections use hyper.
//! `httparse` parses heads, chunk sizes and trailers, as in hyper. The same input is rejected, unless a test states
//! otherwise.

pub(crate) mod connection;
mod decoder;
mod interim;
mod request;
mod response_head;
mod sending;

pub(crate) use decoder::Decoder;
pub(crate) use interim::interim_bytes;
pub(crate) use response_head::{Head, ResponseHead, read_head};
pub(crate) use sending::Sending;

use crate::body::BodyError;
use std::io;

/// Error for bytes of a pod that are not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Malformed {
    /// Bytes that begin like an HTTP/2 frame: every frame below 64 KiB begins with a zero, and no HTTP/1 response does.
    pub(crate) const HTTP2: Self = Self("the response is HTTP/2, not HTTP/1");
}

/// Reason why an exchange has no response, or only a part of one, in either protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The connection was closed in order, but too early.
    #[error("the pod closed the connection before the response was complete")]
    Closed,
    #[error("connection error")]
    Io(#[source] io::Error),
    /// The pod's bytes are not HTTP/1.1.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The stream failed, or the pod has ended the connection.
    #[error(transparent)]
    Http2(h2::Error),
    /// The client's body failed.
    #[error("the request's body could not be read from the client")]
    Upload(#[source] BodyError),
    /// The client's body differs in length from its head.
    #[error("the request's body does not have the length that its head states")]
    Length,
}

#[cfg(test)]
mod tests;
