//! One direction of a relayed connection.
//!
//! What comes is copied through a buffer that all connections of a thread share. A connection keeps only what the other
//! side had no room for, at most [`COPIED_MAX`]. Once a read has filled the buffer, bytes stream: they go through a
//! [pipe](super::pipe), which moves them without a copy, until the pipe was less than half as full as the buffer. With
//! many bytes that costs a fraction of copying, with few it costs more.
//!
//! What a client sends may be watched for a request line ([`Direction::without_requests`]). Its bytes are copied until it is
//! known that there is none. A request's end of line never reaches the pod, nor does anything behind it.
//!
//! A direction that goes on and on lets others of its thread have their turn after [`TURN`].

use super::Broken;
use super::end::TcpEnd;
use super::pipe::Pipe;
use crate::request_line::RequestLine;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// Most bytes that are copied at once.
pub(crate) const COPIED_MAX: usize = 16 * 1024;

/// Fewer bytes at once do not stream.
const STREAM_MIN: usize = COPIED_MAX / 2;

/// Bytes after which others have their turn: some tens of microseconds.
const TURN: usize = 1024 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; COPIED_MAX].into());
}

/// What flows from one end to the other.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Read, and not taken by the other side yet.
    unsent: Vec<u8>,
    /// While bytes stream.
    pipe: Option<Pipe>,
    /// While it is not known whether a request begins.
    watched: Option<Box<RequestLine>>,
    /// The end has been passed on.
    ended: bool,
    passed: u64,
}

impl Direction {
    /// Passes on what is no HTTP request.
    pub(crate) fn without_requests() -> Self {
        Self { watched: Some(Box::default()), ..Self::default() }
    }

    /// Bytes passed on so far.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Whether all has been passed on, the end included.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Passes on what has come. Ready when the end has been.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpEnd,
        sink: &mut TcpEnd,
    ) -> Poll<Result<(), Broken>> {
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
                    return Poll::Ready(sink.finish().map_err(|_| Broken::Sink));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => return Poll::Ready(Err(Broken::Request)),
                Err(_) => return Poll::Ready(Err(Broken::Source)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Hands on what was read before.
    fn poll_unsent(&mut self, cx: &mut Context<'_>, sink: &mut TcpEnd) -> Poll<Result<(), Broken>> {
        while !self.unsent.is_empty() {
            let written = ready!(sink.poll_write(cx, &self.unsent)).map_err(|_| Broken::Sink)?;
            self.passed += written as u64;
            self.unsent.drain(..written);
        }
        if self.unsent.capacity() > 0 {
            self.unsent = Vec::new();
        }
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Ok(())) };
        while pipe.filled() > 0 {
            let left = pipe.filled();
            let written = ready!(sink.poll_write_with(cx, left, |socket| pipe.drain(socket)));
            self.passed += written.map_err(|_| Broken::Sink)? as u64;
        }
        if (1..STREAM_MIN).contains(&pipe.came()) {
            self.stop_streaming();
        }
        Poll::Ready(Ok(()))
    }

    /// Copies once. What the sink has no room for is kept. `InvalidData`: a request has begun.
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
            // An error of the sink is told again when the rest is handed on.
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
            pipe.put();
        }
    }
}
