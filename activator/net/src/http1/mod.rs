//! HTTP/1.1 as it is spoken to pods: heads and bodies, without a connection. Nothing here reads, waits or keeps time,
//! but for [`Sending`], which is handed what it writes to.
//!
//! hyper's client has a task, or somebody in its place, to which requests and answers pass through channels: half a
//! dozen allocations for a request, and 11 KiB of channels and buffers for a connection that is idle. Whoever
//! sends a request here waits for its answer anyway, so a connection needs none of that
//! ([`connection`]). Clients' connections are hyper's. Heads, chunk sizes and trailers are parsed by
//! `httparse`, as in hyper, and what is refused is the same, unless a test says otherwise.

mod answer;
pub(crate) mod connection;
mod decoder;
mod interim;
mod request;
mod sending;

pub(crate) use answer::{Answer, HEAD_MAX, Head, read_head};
pub(crate) use decoder::Decoder;
pub(crate) use interim::Interim;
pub(crate) use sending::{Sending, Stopped};

/// What a pod sent is not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Malformed {
    /// It begins as a frame of HTTP/2: every frame with less than 64 KiB begins with a zero, and no answer of HTTP/1 does.
    pub(crate) const HTTP2: Self = Self("its answer is HTTP/2, not HTTP/1");
}

#[cfg(test)]
mod beside_hyper;
