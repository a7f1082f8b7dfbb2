//! Parts that the caller supplies to a server: the chain that handles requests, and the responder for its errors.

use crate::body::BodyError;
use crate::client::Inbound;
use crate::error::ProxyError;
use bytes::Bytes;
use http::{Response, Version};
use http_body::Body;
use http_body_util::Full;
use tower::Service;

/// Requirements of the server for the chain.
pub trait Chain:
    Service<Inbound, Response = Response<<Self as Chain>::Body>, Error: From<ProxyError>, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// Body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static;
}

impl<S, B> Chain for S
where
    S: Service<Inbound, Response = Response<B>, Error: From<ProxyError>, Future: Send> + Clone + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    type Body = B;
}

/// Marker of a response that reports that the workload of its port is no longer served here. A connection to a
/// dedicated port keeps the identity that the port had when it was accepted. So the connection is closed, and its
/// client connects again. There is no effect on shared ports, where the next request may be for another workload.
#[derive(Clone, Copy, Debug)]
pub struct PortGone;

/// Converter of the chain's errors into responses.
pub trait ErrorResponder<E>: Clone + Send + Sync + 'static {
    /// Returns the response to a request of this version, which may be a gRPC call. Returns `None` if the client is
    /// gone.
    fn respond(&self, error: &E, grpc: bool, version: Version) -> Option<Response<Full<Bytes>>>;
}
