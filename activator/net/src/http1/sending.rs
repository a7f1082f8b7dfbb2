//! Sends a request.
//!
//! The head and small parts of the body are coalesced in a buffer, which the thread keeps between requests. Larger
//! parts are not copied. The body is polled again only when its last part is written, so that a pod that does not read
//! stops its client.

use super::ExchangeError;
use super::request::{Coding, announced_trailers, write_field, write_head};
use crate::body::BodyError;
use crate::tcp::coalesced_write;
use bytes::{Buf, Bytes};
use http::header::HeaderName;
use http::request;
use http_body::{Body, Frame};
use std::cell::Cell;
use std::io::{ErrorKind, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Maximum part of a body that is copied into the buffer, in bytes.
const SMALL: usize = 1024;

/// Number of coalesced bytes after which they are written.
const COALESCED_MAX: usize = 8 * 1024;

/// Size of the buffer. A buffer that has grown is not kept.
const BUFFER: usize = 8 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The rest of a request that is being written.
pub(crate) struct Sending {
    coalesced: Vec<u8>,
    /// Number of bytes of `coalesced` that are written.
    written: usize,
    /// Data to write after `coalesced`.
    data: Bytes,
    /// Bytes to write after `data`.
    line_end: &'static [u8],
    coding: Coding,
    trailers: Vec<HeaderName>,
    /// The whole request is in `coalesced`, `data` and `line_end`.
    ended: bool,
    /// Some bytes were written, or the body was read.
    pub(crate) has_begun: bool,
    /// The whole request is written and flushed.
    pub(crate) is_over: bool,
}

impl Sending {
    /// Starts a request. Writes nothing yet.
    pub(crate) fn new(head: &request::Parts, body: &impl Body) -> Self {
        let mut coalesced = SPARE.take();
        coalesced.reserve_exact(BUFFER);
        let coding = write_head(head, body, &mut coalesced);
        let trailers = if coding == Coding::Chunked { announced_trailers(&head.headers) } else { Vec::new() };
        let (written, data, line_end, has_begun, is_over) = Default::default();
        let ended = body.is_end_stream();
        Self { coalesced, written, data, line_end, coding, trailers, ended, has_begun, is_over }
    }

    /// Writes as much as is available and `io` accepts. Ready when everything is written. An error means that no more
    /// can be written.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
        io: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), ExchangeError>> {
        loop {
            let more = self.coalesce(cx, body)?;
            while !self.is_written() {
                let slices = [&self.coalesced[self.written..], &self.data[..], self.line_end].map(IoSlice::new);
                let used = slices.iter().rposition(|slice| !slice.is_empty()).map_or(0, |last| last + 1);
                let first = slices[..used].iter().position(|slice| !slice.is_empty()).unwrap_or(0);
                let taken = coalesced_write::poll_write(Pin::new(&mut *io), cx, &slices[first..used]);
                match std::task::ready!(taken).map_err(ExchangeError::Io)? {
                    0 => return Poll::Ready(Err(ExchangeError::Io(ErrorKind::WriteZero.into()))),
                    taken => self.advance(taken),
                }
            }
            if self.ended {
                self.recycle_buffer();
            }
            if self.ended || !more {
                // TLS may buffer bytes.
                std::task::ready!(Pin::new(&mut *io).poll_flush(cx)).map_err(ExchangeError::Io)?;
                self.is_over = self.ended;
                return if self.is_over { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
        }
    }

    /// Takes what the body has. Returns whether it may have more at once.
    fn coalesce(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
    ) -> Result<bool, ExchangeError> {
        while !self.ended {
            // Bytes added to `coalesced` would precede the other two.
            if !self.data.is_empty() || !self.line_end.is_empty() || self.coalesced.len() >= COALESCED_MAX {
                return Ok(true);
            }
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Some(Ok(frame))) => {
                    self.has_begun = true;
                    self.add(frame)?;
                    // HTTP/2 may send the end in its own frame. If the length is known, there is no need to wait for
                    // it.
                    if !self.ended && (body.is_end_stream() || self.coding == Coding::Length(0)) {
                        self.end(None)?;
                    }
                }
                Poll::Ready(Some(Err(error))) => return Err(ExchangeError::Upload(error.into())),
                Poll::Ready(None) => self.end(None)?,
            }
        }
        Ok(false)
    }

    fn add(&mut self, frame: Frame<Bytes>) -> Result<(), ExchangeError> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return self.end(Some(&other)),
        };
        match &mut self.coding {
            _ if data.is_empty() => return Ok(()), // An empty chunk would end the body.
            Coding::Length(left) => *left = left.checked_sub(data.len() as u64).ok_or(ExchangeError::Length)?,
            Coding::Chunked => {
                // Writing to memory cannot fail.
                let _ = write!(self.coalesced, "{:x}\r\n", data.len());
                self.line_end = b"\r\n";
            }
        }
        if data.len() <= SMALL {
            self.coalesced.extend_from_slice(&data);
            self.coalesced.extend_from_slice(std::mem::take(&mut self.line_end));
        } else {
            self.data = data;
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<&Frame<Bytes>>) -> Result<(), ExchangeError> {
        self.ended = true;
        match self.coding {
            Coding::Length(0) => {}
            Coding::Length(_) => return Err(ExchangeError::Length),
            Coding::Chunked if !self.data.is_empty() => self.line_end = b"\r\n0\r\n\r\n",
            Coding::Chunked => {
                self.coalesced.extend_from_slice(b"0\r\n");
                let fields = trailers.and_then(Frame::trailers_ref).into_iter().flatten();
                for (name, value) in fields.filter(|(name, _)| self.trailers.contains(name)) {
                    write_field(name, value.as_bytes(), &mut self.coalesced);
                }
                self.coalesced.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }

    fn is_written(&self) -> bool {
        self.written == self.coalesced.len() && self.data.is_empty() && self.line_end.is_empty()
    }

    fn advance(&mut self, bytes: usize) {
        self.has_begun = true;
        let of_coalesced = bytes.min(self.coalesced.len() - self.written);
        let of_data = (bytes - of_coalesced).min(self.data.len());
        self.written += of_coalesced;
        self.data.advance(of_data);
        self.line_end = &self.line_end[bytes - of_coalesced - of_data..];
        if self.is_written() {
            self.coalesced.clear();
            self.written = 0;
        }
    }

    fn recycle_buffer(&mut self) {
        let spare = std::mem::take(&mut self.coalesced);
        if spare.capacity() == BUFFER {
            SPARE.set(spare);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.coalesced.clear();
        self.recycle_buffer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::request::tests::head;
    use futures::stream;
    use http::{HeaderMap, HeaderValue};
    use http_body_util::{Empty, Full, StreamBody};
    use std::convert::Infallible;
    use std::io;
    use tokio_test::{assert_pending, assert_ready_ok};

    /// A writer that accepts `at_once` bytes per write, pauses before each write if `pauses` is set, and delays as many
    /// flushes as `flushes_delayed`.
    struct Narrow {
        taken: Vec<u8>,
        at_once: usize,
        pauses: bool,
        paused: bool,
        flushes_delayed: usize,
    }

    impl Narrow {
        fn new(at_once: usize) -> Self {
            Self { taken: Vec::new(), at_once, pauses: false, paused: false, flushes_delayed: 0 }
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.paused = self.pauses && !self.paused;
            if self.paused {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.at_once);
            self.taken.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            let is_delayed = self.flushes_delayed > 0;
            self.flushes_delayed = self.flushes_delayed.saturating_sub(1);
            if is_delayed { Poll::Pending } else { Poll::Ready(Ok(())) }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn frames(frames: Vec<Frame<Bytes>>) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        StreamBody::new(stream::iter(frames.into_iter().map(Ok)))
    }

    /// Returns everything written to a writer that pauses and accepts `at_once` bytes per write.
    fn sent<B>(fields: &[(&str, &str)], mut body: B, at_once: usize) -> Result<String, ExchangeError>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
        let mut io = Narrow { pauses: true, ..Narrow::new(at_once) };
        let mut sending = Sending::new(&head("POST", "/", fields), &body);
        assert!(!sending.has_begun && !sending.is_over);
        let mut turn = tokio_test::task::spawn(());
        loop {
            match turn.enter(|cx, _| sending.poll(cx, &mut body, &mut io)) {
                Poll::Pending => assert!(turn.is_woken(), "nothing is waited for"),
                Poll::Ready(result) => break result?,
            }
        }
        assert!(sending.has_begun && sending.is_over);
        Ok(String::from_utf8(io.taken).expect("text"))
    }

    /// Goal: small and large parts, chunks and trailers are written in order, however little is accepted at once.
    #[test]
    fn bodies_are_written_completely_and_in_order() {
        let large = "l".repeat(SMALL + 1);
        let data = |text: &str| Frame::data(Bytes::copy_from_slice(text.as_bytes()));
        let trailers = HeaderMap::from_iter(
            ["x-sum", "x-secret"].map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1"))),
        );
        for at_once in [1, 7, 1000, usize::MAX] {
            let parts = || vec![data("small"), data(""), data(&large), data("end")];
            let head = "POST / HTTP/1.1\r\n";
            let chunked = sent(&[], frames(parts()), at_once).expect("well-formed");
            let chunks = format!("5\r\nsmall\r\n401\r\n{large}\r\n3\r\nend\r\n0\r\n\r\n");
            assert_eq!(chunked, format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}"), "{at_once}");

            let length = (large.len() + 8).to_string();
            let sized = sent(&[("content-length", &length)], frames(parts()), at_once).expect("well-formed");
            assert_eq!(sized, format!("{head}content-length: {length}\r\n\r\nsmall{large}end"), "{at_once}");

            let mut trailed = parts();
            trailed.push(Frame::trailers(trailers.clone()));
            let trailed = sent(&[("trailer", "x-sum")], frames(trailed), at_once).expect("well-formed");
            let expected = chunks.replace("0\r\n\r\n", "0\r\nx-sum: 1\r\n\r\n");
            assert!(trailed.ends_with(&expected), "{at_once}: {trailed}");

            let full = sent(&[], Full::new(Bytes::from(large.clone())), at_once).expect("well-formed");
            assert_eq!(full, format!("{head}content-length: {}\r\n\r\n{large}", large.len()), "{at_once}");
            let nothing = sent(&[], Empty::<Bytes>::new(), at_once).expect("well-formed");
            assert_eq!(nothing, format!("{head}\r\n"), "{at_once}");
        }
    }

    #[test]
    fn a_known_end_is_written_with_the_last_data() {
        for length in [1, SMALL + 1] {
            let body = Full::new(Bytes::from(vec![b'x'; length]));
            let mut sending = Sending::new(&head("POST", "/", &[]), &body);
            sending.coding = Coding::Chunked;
            let mut body = body;
            tokio_test::task::spawn(()).enter(|cx, _| sending.coalesce(cx, &mut body)).expect("well-formed");
            let is_large = length > SMALL;
            assert_eq!((sending.ended, sending.data.len()), (true, if is_large { length } else { 0 }));
            assert_eq!(sending.line_end == b"\r\n0\r\n\r\n", is_large);
        }
    }

    #[test]
    fn wrong_lengths_and_failures_are_reported() {
        for (length, parts) in [("3", ["ab", ""]), ("3", ["ab", "cd"]), ("0", ["a", ""])] {
            let parts = parts.map(|part| Frame::data(Bytes::from_static(part.as_bytes()))).into();
            let stopped = sent(&[("content-length", length)], frames(parts), usize::MAX);
            assert!(matches!(stopped, Err(ExchangeError::Length)), "{stopped:?}");
        }
        let broken = StreamBody::new(stream::iter([Err(io::Error::other("gone"))]));
        assert!(matches!(sent(&[], broken, usize::MAX), Err(ExchangeError::Upload(_))));
        let closed = sent(&[], Empty::<Bytes>::new(), 0);
        assert!(matches!(closed, Err(ExchangeError::Io(error)) if error.kind() == ErrorKind::WriteZero));
    }

    /// Goal: a head does not wait for its body, and a body is not polled before there is room for it.
    #[test]
    fn a_head_does_not_wait_for_its_body() {
        let mut body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut io = Narrow::new(usize::MAX);
        let mut sending = Sending::new(&head("POST", "/", &[]), &body);
        tokio_test::task::spawn(()).enter(|cx, _| assert_pending!(sending.poll(cx, &mut body, &mut io)));
        assert!(sending.has_begun && !sending.is_over);
        assert!(io.taken.ends_with(b"chunked\r\n\r\n"));
        let mut body = frames(vec![]);
        tokio_test::task::spawn(()).enter(|cx, _| assert_ready_ok!(sending.poll(cx, &mut body, &mut io)));
        assert!(io.taken.ends_with(b"\r\n\r\n0\r\n\r\n"));
    }

    /// Goal: sending is not over while written bytes are buffered, as in TLS, because the flush must be polled again.
    #[test]
    fn sending_is_not_over_before_the_flush() {
        let mut io = Narrow { flushes_delayed: 1, ..Narrow::new(usize::MAX) };
        let (mut body, head) = (Empty::<Bytes>::new(), head("POST", "/", &[]));
        let mut sending = Sending::new(&head, &body);
        tokio_test::task::spawn(()).enter(|cx, _| assert_pending!(sending.poll(cx, &mut body, &mut io)));
        assert!(sending.has_begun && !sending.is_over);
        tokio_test::task::spawn(()).enter(|cx, _| assert_ready_ok!(sending.poll(cx, &mut body, &mut io)));
        assert!(sending.is_over);
    }
}
