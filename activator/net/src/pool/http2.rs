//! HTTP/2 connections to one address.
//!
//! A request takes the first connection of its worker on which the pod permits another stream. If there is none,
//! another is dialled. There are at most [`HTTP2_MAX`]; beyond that, requests wait for a stream. The sweep closes idle
//! connections except one. Retries take only connections that were made after they began.
//!
//! A new connection carries one request at once. Other requests, before they dial, wait for the pod's stream limit on
//! it ([`crate::http2::connection`]).

use crate::http2::connection::{Http2, Stream};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of HTTP/2 connections to one address. A pod that permits one stream on each is no worse off than an
/// HTTP/1.1 pod with a client that opens as many connections.
const HTTP2_MAX: usize = 256;

/// HTTP/2 connections of all workers.
#[derive(Default)]
pub(crate) struct Http2Pool {
    pub(super) connections: Mutex<Vec<Http2>>,
    /// Held while another connection is dialled.
    pub(super) dialling: tokio::sync::Mutex<()>,
}

impl Http2Pool {
    pub(crate) fn put(&self, connection: Http2) {
        let mut connections = self.connections.lock();
        if connections.len() < HTTP2_MAX {
            connections.push(connection);
        }
    }

    /// Reserves a place on the first connection of the caller's worker that has room. If there may be no more
    /// connections, reserves one on the last connection of any worker whose limit is known, regardless of the limit, so
    /// that the request waits there. Connections that were made before `since` are not used.
    #[inline]
    pub(crate) fn open(&self, since: Option<Instant>) -> Option<Stream> {
        let mut connections = self.connections.lock();
        let may_open = |one: &&Http2| one.is_here() && !one.is_closed() && one.is_made_since(since);
        let mut here = connections.iter().filter(may_open);
        let with_room = here.find_map(Http2::try_reserve);
        with_room.or_else(|| {
            connections.retain(|connection| !connection.is_closed());
            let is_full = connections.len() >= HTTP2_MAX;
            let may_wait = |connection: &&Http2| connection.is_settled() && connection.is_made_since(since);
            let last = connections.iter().rfind(may_wait).filter(|_| is_full)?;
            Some(last.reserve())
        })
    }

    /// Returns the newest connection of the caller's worker, if it was made since then, is open, and the pod has not
    /// sent its stream limit there yet.
    pub(super) fn unsettled(&self, since: Option<Instant>) -> Option<Http2> {
        let connections = self.connections.lock();
        let newest = connections.iter().rfind(|connection| connection.is_here() && connection.is_made_since(since))?;
        (!newest.is_closed() && !newest.is_settled()).then(|| newest.clone())
    }

    /// Removes the connection of `left`, so that new requests take another one. Its streams continue.
    pub(crate) fn leave(&self, left: &Stream) {
        self.connections.lock().retain(|connection| !connection.is_of(left));
    }

    /// Removes all connections. Requests in flight continue.
    pub(super) fn clear(&self) {
        self.connections.lock().clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.lock().iter().all(Http2::is_closed)
    }

    /// Removes and returns idle connections, except the first.
    pub(super) fn sweep(&self) -> Vec<Http2> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| !connection.is_closed());
        let first = connections.len().min(1);
        connections.extract_if(first.., |connection| connection.is_idle()).collect()
    }
}
