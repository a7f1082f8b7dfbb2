//! One direction of a relayed connection.
//!
//! Bytes are copied through a buffer that all connections of a thread share. A connection keeps only the bytes that the
//! other side had no room for, at most [`COPIED_MAX`]. Once a read has filled the buffer, the direction streams: a
//! [pipe](super::pipe) moves the bytes without a copy, until a read fills less than half of the buffer's size. For many
//! bytes that costs a fraction of copying, for few it costs more.
//!
//! A client's bytes may be checked for a request line ([`Direction::watched`]). They are copied until it is
//! known that there is none. The end of a request's line, and anything after it, never reaches the pod.
//!
//! A busy direction yields to other tasks of its thread after [`TURN`] bytes.

use super::Ended;
use super::end::TcpEnd;
use super::pipe::Pipe;
use crate::request_line::RequestLine;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// Maximum number of bytes that are copied at once.
pub(crate) const COPIED_MAX: usize = 16 * 1024;

/// Minimum number of bytes per read for streaming.
const STREAM_MIN: usize = COPIED_MAX / 2;

/// Number of bytes after which other tasks run: some tens of microseconds.
const TURN: usize = 1024 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; COPIED_MAX].into());
}

/// Flow of bytes from one end to the other.
#[derive(Debug)]
pub(crate) struct Direction {
    /// Results of the relay if the source fails, and if the sink fails.
    source_fails: Ended,
    sink_fails: Ended,
    /// Bytes that were read, but not accepted by the other side yet.
    unsent: Vec<u8>,
    /// Pipe, while bytes stream.
    pipe: Option<Pipe>,
    /// Set while it is unknown whether a request begins, which is not forwarded.
    pub(super) watched: Option<Box<RequestLine>>,
    /// Everything was forwarded, including FIN.
    pub(super) ended: bool,
    /// Number of forwarded bytes.
    pub(super) passed: u64,
}

impl Direction {
    /// Creates a direction between two sides, with the results of a relay if they fail.
    pub(super) fn new(source_fails: Ended, sink_fails: Ended) -> Self {
        let (unsent, pipe, watched, ended, passed) = Default::default();
        Self { source_fails, sink_fails, unsent, pipe, watched, ended, passed }
    }

    /// Forwards available bytes. Ready when the end was forwarded.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpEnd,
        sink: &mut TcpEnd,
    ) -> Poll<Result<(), Ended>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let turn = self.passed + TURN as u64;
        while self.passed < turn {
            ready!(self.poll_unsent(cx, sink))?;
            let read = match &mut self.pipe {
                Some(pipe) => ready!(source.poll_read_with(cx, |socket| pipe.fill(socket))),
                None => ready!(self.poll_copy(cx, source, sink)),
            };
            match read {
                Ok(0) => {
                    self.ended = true;
                    self.stop_streaming();
                    return Poll::Ready(sink.finish().map_err(|_| self.sink_fails));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => return Poll::Ready(Err(Ended::Request)),
                Err(_) => return Poll::Ready(Err(self.source_fails)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Forwards bytes that were read before.
    fn poll_unsent(&mut self, cx: &mut Context<'_>, sink: &mut TcpEnd) -> Poll<Result<(), Ended>> {
        while !self.unsent.is_empty() {
            let written = ready!(sink.poll_write(cx, &self.unsent)).map_err(|_| self.sink_fails)?;
            self.passed += written as u64;
            self.unsent.drain(..written);
        }
        if self.unsent.capacity() > 0 {
            self.unsent = Vec::new();
        }
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Ok(())) };
        while pipe.filled > 0 {
            let left = pipe.filled;
            let written = ready!(sink.poll_write_with(cx, left, |socket| pipe.drain(socket)));
            self.passed += written.map_err(|_| self.sink_fails)? as u64;
        }
        if (1..STREAM_MIN).contains(&pipe.last_read) {
            self.stop_streaming();
        }
        Poll::Ready(Ok(()))
    }

    /// Copies once, and keeps the bytes that the sink has no room for. The error `InvalidData` means that a request has
    /// begun.
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpEnd,
        sink: &mut TcpEnd,
    ) -> Poll<std::io::Result<usize>> {
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            let read = ready!(source.poll_read(cx, &mut buffer))?;
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            let bytes = buffer.filled();
            match self.watched.as_mut().map(|line| line.read(bytes)) {
                Some(Some(true)) => return Poll::Ready(Err(ErrorKind::InvalidData.into())),
                Some(Some(false)) => self.watched = None,
                Some(None) | None => {}
            }
            // The next write reports an error of the sink again.
            let written = match sink.poll_write(cx, bytes) {
                Poll::Ready(Ok(written)) => written,
                _ => 0,
            };
            self.passed += written as u64;
            self.unsent.extend_from_slice(&bytes[written..]);
            if read == COPIED_MAX && self.watched.is_none() {
                self.pipe = Pipe::get();
            }
            Poll::Ready(Ok(read))
        })
    }

    fn stop_streaming(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.recycle();
        }
    }
}
