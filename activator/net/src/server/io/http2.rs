//! A client's HTTP/2 connection, as hyper reads and writes it. Received frames are tracked
//! ([`crate::server::io::frames`]). The memory that they hold is limited
//! ([`crate::server::memory::connection_memory`]), and so are frames that carry nothing
//! ([`crate::server::io::control_frame_limit`]). An unfinished header block has a deadline.

use crate::body::unread_frames::UnreadFrames;
use crate::client::peer::Peer;
use crate::limits::HEAD_TIMEOUT;
use crate::server::io::bounded_writes::{BoundedWrites, ClientStream};
use crate::server::io::control_frame_limit::{self, ControlFrameCredit};
use crate::server::io::frames::Frames;
use crate::server::io::linger::Linger;
use crate::server::memory::connection_memory::{self, ConnectionMemory};
use crate::server::progress::Progress;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// GOAWAY with the code ENHANCE_YOUR_CALM. Its last stream is the highest possible, so that no request that may have
/// run is repeated elsewhere.
const ENHANCE_YOUR_CALM: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 11];

/// A client's connection whose frames are tracked.
pub(crate) struct Http2Io<S> {
    io: BoundedWrites<S>,
    frames: Frames,
    credit: ControlFrameCredit,
    /// No written bytes wait for the rest of their frame.
    is_flushed: bool,
    memory: ConnectionMemory,
    unread: Arc<UnreadFrames>,
    progress: Arc<Progress>,
    linger: Linger,
    /// Set while a header block is unfinished.
    block: Option<Pin<Box<Sleep>>>,
}

impl<S: ClientStream> Http2Io<S> {
    pub(crate) fn new(io: BoundedWrites<S>, client: &Peer, progress: Arc<Progress>) -> Self {
        let (memory, unread) = (ConnectionMemory::new(progress.permit.clone()), client.unread_frames().clone());
        let (frames, linger, credit) = (Frames::default(), Linger::default(), ControlFrameCredit::default());
        Self { io, frames, credit, is_flushed: true, memory, unread, progress, linger, block: None }
    }

    fn check_block_deadline(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.frames.unfinished_block() == 0 {
            self.block = None;
            return Ok(());
        }
        match self.block.get_or_insert_with(|| Box::pin(sleep(HEAD_TIMEOUT))).as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "a header block did not end within 60 s")),
            Poll::Pending => Ok(()),
        }
    }

    /// Sends the reason for the end of the connection, unless the parser's output may stop within a frame.
    fn close_with_goaway(&mut self, cx: &mut Context<'_>) -> io::Error {
        if self.is_flushed {
            let _ = self.io.poll_write(cx, &[IoSlice::new(&ENHANCE_YOUR_CALM)]); // The connection ends in any case.
        }
        io::Error::other("the client sent too many frames without a request or data")
    }
}

impl<S: ClientStream> AsyncRead for Http2Io<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io.stream).poll_read(cx, buffer);
        let this = &mut *self;
        this.frames.follow(&buffer.filled()[before..], |since, length| this.unread.count_received(since, length));
        let received = std::mem::take(&mut this.frames.received);
        if !this.credit.spend(received, this.progress.output.frames_sent() * control_frame_limit::DATA_OUT) {
            return Poll::Ready(Err(this.close_with_goaway(cx)));
        }
        let streams = connection_memory::streams(this.progress.permit.state.running_max.load(Ordering::Relaxed));
        this.memory.set(connection_memory::block(this.frames.unfinished_block()) + this.unread.cost() + streams)?;
        this.check_block_deadline(cx)?;
        read
    }
}

impl<S: ClientStream> AsyncWrite for Http2Io<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io.stream).poll_flush(cx))?;
        self.is_flushed = true;
        self.progress.output.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, linger, .. } = &mut *self;
        linger.poll_shutdown(&mut io.stream, cx, true)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        self.io.poll_write(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::connection_permit::ConnectionPermit;
    use crate::client::peer::Trust;
    use crate::memory::{Kind, Memory};
    use crate::tcp::loopback;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// Returns a connection after reading the preface and these frames of one byte each: type and flags.
    async fn read_frames(frames: &[(u8, u8)], memory: &Memory) -> (TcpStream, Http2Io<TcpStream>, Arc<UnreadFrames>) {
        let (mut client, server) = loopback::connected().await;
        let peer = Peer::new(([127, 0, 0, 1], 5000).into(), Trust::default(), false);
        let progress = Arc::new(Progress::new(Arc::new(ConnectionPermit::charged_to(memory.clone()))));
        let mut io = Http2Io::new(BoundedWrites::new(server, None), &peer, progress);
        let mut bytes = vec![b'p'; 24];
        frames.iter().for_each(|(kind, flags)| bytes.extend([0, 0, 1, *kind, *flags, 0, 0, 0, 1, b'x']));
        client.write_all(&bytes).await.expect("open");
        let mut read = vec![0; bytes.len()];
        io.read_exact(&mut read).await.expect("within the bounds");
        assert_eq!(read, bytes, "as it was");
        (client, io, peer.unread_frames().clone())
    }

    /// Goal: a header block has 60 s; without an unfinished block there is no deadline.
    #[tokio::test(start_paused = true)]
    async fn an_unfinished_header_block_times_out() {
        let memory = Memory::new(None);
        let (_client, mut io, _) = read_frames(&[(1, 0), (9, 0)], &memory).await;
        let start = tokio::time::Instant::now();
        let error = io.read_u8().await.expect_err("closed");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= HEAD_TIMEOUT && start.elapsed() < HEAD_TIMEOUT * 2, "{:?}", start.elapsed());
        let (_client, mut io, _) = read_frames(&[(1, 0), (9, 4), (0, 0)], &memory).await;
        assert!(tokio::time::timeout(HEAD_TIMEOUT * 3, io.read_u8()).await.is_err(), "it may be silent");
    }

    /// Goal: unread frames are charged. Their charge is returned once they are read and the connection is polled.
    #[tokio::test(start_paused = true)]
    async fn frames_are_charged_until_they_are_read() {
        let memory = Memory::new(Some(8 << 20));
        let (_client, mut io, unread) = read_frames(&[(0, 0); 1000], &memory).await;
        assert!((300_000..600_000).contains(&memory.charged(Kind::Input)), "{}", memory.charged(Kind::Input));
        (0..1000).for_each(|_| unread.count_yielded());
        assert!(tokio::time::timeout(HEAD_TIMEOUT, io.read_u8()).await.is_err(), "nothing comes");
        assert_eq!(memory.charged(Kind::Input), 0);
    }
}
