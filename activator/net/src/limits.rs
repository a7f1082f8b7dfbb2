//! What heads may be at most, in both protocols and both directions, and what of an upload comes before it is asked for.

/// Most fields of a head, and of trailers. A field costs a hundred bytes of memory, however few it has on the wire, and
/// [`http::HeaderMap`] panics beyond 24 576 names, which ours would be added to.
pub(crate) const FIELDS_MAX: usize = 1024;

/// Largest head of an HTTP/1 request, and of a pod's answer in either protocol, in bytes (upstream's: 1 MiB and 10 MiB).
/// hyper's buffers grow up to this for bodies too, so it bounds what a connection occupies. Of HTTP/2 the decoded size
/// counts, with 32 bytes more for each field (RFC 9113, 6.5.2): a reference to the table of fields has a byte.
pub(crate) const HEAD_MAX: u32 = 400 * 1024;

/// Largest trailers of a pod's answer, in bytes of names and values: nobody is charged for them.
pub(crate) const TRAILERS_MAX: usize = 16 * 1024;

/// Receive window of a client's HTTP/2 stream: what a held upload costs at most (upstream's is 1 MiB).
pub const STREAM_WINDOW: u32 = 64 * 1024;
