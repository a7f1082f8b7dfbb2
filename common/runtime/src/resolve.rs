//! From a host name to addresses: a port with two adapters, so that the planes run where there is no cluster DNS.

use futures::future::BoxFuture;
use std::io;
use std::net::SocketAddr;

/// Looks up where a host may be reached.
pub trait Resolve: Send + Sync + 'static {
    /// Addresses of `host:port`, best first.
    ///
    /// # Errors
    /// The host is not known, or nobody could be asked.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The system's own resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dns;

impl Resolve for Dns {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}
