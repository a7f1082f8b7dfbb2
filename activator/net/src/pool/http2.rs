//! HTTP/2 connections to one address.
//!
//! The first connection of the caller's worker whose pod permits one more stream takes the request; where none does,
//! another is dialled. There are at most [`HTTP2_MAX`]: beyond that, requests wait for a stream. Those that stand idle
//! beside another are closed by the sweep.
//!
//! A new connection takes one request at once; others wait, before they dial, for the pod to say how many it permits
//! there ([`crate::http2::connection`]).
//!
//! The first of each worker has few streams with large windows, and is preferred as long as it has room; the others have
//! many with small ones ([`Windows`]). So what lies here of answers that nobody reads is 4 MiB for each worker and pod,
//! and 20 KiB for each stream beyond those.

use crate::http2::connection::{Alive, Http2, Stream, Windows};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// HTTP/2 connections to one address. A pod that permits one stream on each is no worse off than one that speaks
/// HTTP/1.1 to a client with this many connections.
const HTTP2_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Http2Pool {
    pub(super) connections: Mutex<Vec<Http2>>,
    /// Those of large windows; also those that take no more requests.
    wide: Mutex<Vec<Alive>>,
    /// Connections so far.
    made: AtomicUsize,
    /// Held by whoever dials another.
    pub(super) dialling: tokio::sync::Mutex<()>,
}

impl Http2Pool {
    /// How the window of the caller's next connection is divided.
    pub(super) fn next_windows(&self) -> Windows {
        let mut wide = self.wide.lock();
        wide.retain(Alive::is_alive);
        if wide.iter().any(Alive::is_here) { Windows::Narrow } else { Windows::Wide }
    }

    pub(super) fn put(&self, mut connection: Http2) {
        connection.number = self.made.fetch_add(1, Ordering::Relaxed);
        if connection.windows() == Windows::Wide {
            self.wide.lock().push(connection.alive());
        }
        let mut connections = self.connections.lock();
        if connections.len() < HTTP2_MAX {
            connections.push(connection);
        }
    }

    /// A place on the first connection of the caller's worker that has room. On the last of any worker whether or not,
    /// where there may be no more: of those whose limit is known, so that what is beyond it waits.
    pub(super) fn open(&self) -> Option<Stream> {
        let mut connections = self.connections.lock();
        let mut here = connections.iter().filter(|connection| connection.is_here() && !connection.is_closed());
        let with_room = here.find_map(Http2::try_reserve);
        with_room.or_else(|| {
            connections.retain(|connection| !connection.is_closed());
            let is_full = connections.len() >= HTTP2_MAX;
            let last = connections.iter().rfind(|connection| connection.is_settled()).filter(|_| is_full)?;
            Some(last.reserve())
        })
    }

    /// Connections so far.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// A place on the newest connection of the caller's worker, if it was made after so many, and has room.
    pub(super) fn open_since(&self, made: usize) -> Option<Stream> {
        self.newest_since(made)?.try_reserve()
    }

    /// The newest connection of the caller's worker, if it was made after so many, and the pod has not said yet how many
    /// streams it takes there.
    pub(super) fn unsettled_since(&self, made: usize) -> Option<Http2> {
        self.newest_since(made).filter(|newest| !newest.is_settled())
    }

    /// The newest connection of the caller's worker, if it was made after so many, and is open.
    fn newest_since(&self, made: usize) -> Option<Http2> {
        let connections = self.connections.lock();
        let newest = connections.iter().rfind(|connection| connection.is_here() && connection.number >= made)?;
        (!newest.is_closed()).then(|| newest.clone())
    }

    /// New requests take another connection than that of `left`, on which others may still run.
    pub(super) fn leave(&self, left: &Stream) {
        self.connections.lock().retain(|connection| !connection.is_of(left));
    }

    /// Lets go of all. What is in flight runs on.
    pub(super) fn clear(&self) {
        self.connections.lock().clear();
    }

    /// Whether there is none that is open.
    pub(super) fn is_empty(&self) -> bool {
        self.connections.lock().iter().all(Http2::is_closed)
    }

    /// Takes out those that stand idle beside another.
    pub(super) fn sweep(&self) -> Vec<Http2> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| !connection.is_closed());
        let first = connections.len().min(1);
        connections.extract_if(first.., |connection| connection.is_idle()).collect()
    }
}
