//! What a server is given to serve: the chain that answers requests, and what makes answers of its errors.

use crate::body::BodyError;
use crate::client::Inbound;
use crate::error::ProxyError;
use bytes::Bytes;
use http::{Response, Version};
use http_body::Body;
use http_body_util::Full;
use tower::Service;

/// What the chain must be, seen from the server.
pub trait Chain:
    Service<Inbound, Response = Response<<Self as Chain>::Body>, Error: From<ProxyError>, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static;
}

impl<S, B> Chain for S
where
    S: Service<Inbound, Response = Response<B>, Error: From<ProxyError>, Future: Send> + Clone + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Body = B;
}

/// Marks an answer that says that what a workload's port stood for is not served here, or no more. A connection to such a
/// port means what the port stood for when it came: it is closed, so that its client makes another. Without effect on
/// ports that all share, where the next request may be for somebody else.
#[derive(Clone, Copy, Debug)]
pub struct PortGone;

/// Makes responses of the chain's errors.
pub trait ErrorResponder<E>: Clone + Send + Sync + 'static {
    /// The response to a request of this version, which may be a gRPC call; none if nobody is there to be answered.
    fn respond(&self, error: &E, grpc: bool, version: Version) -> Option<Response<Full<Bytes>>>;
}
