//! Limits for heads, in both protocols and directions, and for the part of an upload that is received before it is
//! read.

use std::time::Duration;

/// Maximum number of fields of a head, and of trailers. Each field costs a hundred bytes of memory, however short it is
/// on the wire. [`http::HeaderMap`] panics beyond 24 576 names, and our own fields are added later.
pub(crate) const FIELDS_MAX: usize = 1024;

/// Maximum head of an HTTP/1 request, and of a pod's response in either protocol, in bytes (upstream: 1 MiB and 10
/// MiB). hyper's buffers grow up to this size for bodies too, so it bounds a connection's memory. In HTTP/2 the decoded
/// size counts, plus 32 bytes for each field (RFC 9113, 6.5.2), because a reference to the header table takes a single
/// byte.
pub(crate) const HEAD_MAX: usize = 400 * 1024;

/// Maximum trailers of a pod's response, in bytes of names and values. They are not charged to any workload.
pub(crate) const TRAILERS_MAX: usize = 16 * 1024;

/// Maximum time for a request's head, and for the first byte of a new connection.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Receive window of a client's HTTP/2 stream: the maximum cost of a held upload (upstream: 1 MiB).
pub const STREAM_WINDOW: u32 = 64 * 1024;
