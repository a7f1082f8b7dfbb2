//! Bytes of clients' connections, between the socket and hyper.

pub(crate) mod bounded_writes;
pub(crate) mod control_frame_limit;
mod frames;
pub(crate) mod head_timeout;
pub(crate) mod http1;
pub(crate) mod http2;
mod linger;
