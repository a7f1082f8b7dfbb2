//! Body of a response. It reads from its connection and returns it to the pool at its end.

use super::Http1;
use super::idle::Http1Pool;
use super::input::Input;
use crate::http1::{Decoder, ExchangeError};
use crate::pod::tls::PodIo;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf};
use tokio_util::task::AbortOnDropHandle;

/// Body of a pod's response.
pub(crate) struct Http1Body {
    /// Complete body, if it arrived with the head.
    pub(super) whole: Option<Bytes>,
    pub(super) decoder: Decoder,
    pub(super) source: Source,
}

pub(super) enum Source {
    None,
    Own {
        connection: Box<Http1>,
        pool: Arc<Http1Pool>,
    },
    /// Read half of a connection whose request is not complete yet. The connection ends with the body.
    Half(Box<Half>),
    /// The connection became a tunnel: no data, and no end before the tunnel's end.
    Tunnel,
}

pub(super) struct Half {
    pub(super) read: ReadHalf<PodIo>,
    pub(super) input: Input,
    /// Task of the upload. Dropping it ends the upload, because the response is complete or given up.
    pub(super) _upload: AbortOnDropHandle<()>,
}

impl Http1Body {
    pub(crate) fn of_tunnel() -> Self {
        Self { whole: None, decoder: Decoder::UntilClose, source: Source::Tunnel }
    }

    /// Returns the connection after a 101, or `None` if it is in use.
    pub(crate) fn into_tunnel(self) -> Option<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        let Source::Own { connection, .. } = self.source else { return None };
        let Http1 { io, input, .. } = *connection;
        let (read, write) = tokio::io::split(io);
        let early = std::io::Cursor::new(input.bytes.freeze());
        Some(tokio::io::join(AsyncReadExt::chain(early, read), write))
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        loop {
            let input = match &mut self.source {
                Source::None => return Poll::Ready(None),
                Source::Tunnel => return Poll::Pending,
                Source::Own { connection, .. } => &mut connection.input,
                Source::Half(half) => &mut half.input,
            };
            let frame = self.decoder.decode(&mut input.bytes)?;
            if self.decoder.is_done() {
                self.finish();
            }
            if let Some(frame) = frame {
                return Poll::Ready(Some(Ok(frame)));
            }
            let read = match &mut self.source {
                Source::None | Source::Tunnel => return Poll::Ready(None),
                Source::Own { connection, .. } => connection.input.poll_more(cx, &mut connection.io),
                Source::Half(half) => half.input.poll_more(cx, &mut half.read),
            };
            match ready!(read) {
                Ok(0) if self.decoder == Decoder::UntilClose => self.decoder = Decoder::Done,
                Ok(0) => return Poll::Ready(Some(Err(ExchangeError::Closed))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(ExchangeError::Io(error)))),
            }
        }
    }

    fn finish(&mut self) {
        if let Source::Own { connection, pool } = std::mem::replace(&mut self.source, Source::None) {
            pool.return_idle(connection);
        }
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        if let Some(whole) = this.whole.take() {
            return Poll::Ready(Some(Ok(Frame::data(whole))));
        }
        let frame = ready!(this.poll_source(cx));
        if matches!(frame, Some(Err(_))) {
            this.source = Source::None; // This closes the connection.
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_none() && self.decoder.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.whole {
            Some(whole) => SizeHint::with_exact(whole.len() as u64),
            None => self.decoder.size_hint(),
        }
    }
}
