//! A client's connection over HTTP/1, as hyper reads and writes it: every byte that comes passes the check of its
//! framing first ([`super::framing`]).

use super::framing::Framing;
use crate::client::peer::Peer;
use crate::tcp::coalesced_write;
use common_runtime::tls::server::TlsStream;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A client's connection, in plain or encrypted.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// What carries it.
    fn socket(&self) -> &TcpStream;
}

impl ClientStream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// What a connection's reads tell those who serve it. All of a connection happens in one task, one after the other.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How often something was read.
    reads: AtomicU32,
    /// Heads that are complete and in order.
    heads: AtomicU64,
    /// It is HTTP no longer.
    tunnel: AtomicBool,
}

impl Progress {
    /// How often something was read.
    pub(super) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Heads that were seen, complete and in order.
    pub(super) fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    /// From now on nobody looks at what is read.
    pub(super) fn becomes_tunnel(&self) {
        self.tunnel.store(true, Ordering::Relaxed);
    }
}

/// A client's connection whose framing is followed.
pub(super) struct ClientIo<S> {
    stream: S,
    framing: Framing,
    progress: Arc<Progress>,
    client: Arc<Peer>,
}

impl<S: ClientStream> ClientIo<S> {
    /// The connection of `client`.
    pub(super) fn new(stream: S, client: Arc<Peer>, progress: Arc<Progress>) -> Self {
        Self { stream, framing: Framing::default(), progress, client }
    }

    fn follow(&mut self, bytes: &[u8]) {
        if self.progress.tunnel.load(Ordering::Relaxed) {
            return;
        }
        self.framing.follow(bytes);
        self.progress.heads.store(self.framing.heads(), Ordering::Relaxed);
        if self.framing.had_body() {
            self.client.share_socket(self.stream.socket());
        }
    }
}

/// A socket that is closed is nobody's to look at.
impl<S> Drop for ClientIo<S> {
    fn drop(&mut self) {
        self.client.close_socket();
    }
}

impl<S: ClientStream> AsyncRead for ClientIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.follow(&buffer.filled()[before..]);
        self.progress.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: ClientStream> AsyncWrite for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        coalesced_write::poll_write(Pin::new(&mut self.stream), cx, slices)
    }
}
