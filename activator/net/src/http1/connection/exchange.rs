//! A request to a pod, until the head of its response arrives.

use super::body::{Half, Http1Body, Source};
use super::expected::{Expected, ToActivator};
use super::idle::Http1Pool;
use super::{Failed, Http1};
use crate::body::{EndsConnection, RequestBody};
use crate::client::interim::Passing;
use crate::client::peer::Peer;
use crate::http1::{ExchangeError, Head, Malformed, ResponseHead, Sending, interim_bytes, read_head};
use crate::limits::HEAD_MAX;
use http::{Method, Response, StatusCode, request};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of bytes before the head of a response is complete, including interim responses (1xx).
const BEFORE_ANSWER_MAX: usize = 1024 * 1024;

/// An exchange. Written by hand instead of an async function, so that nothing is moved into a future.
pub(crate) struct Exchange<'a> {
    /// `None` once it is over.
    under_way: Option<UnderWay<'a>>,
}

/// State of an exchange until the response's head.
struct UnderWay<'a> {
    connection: Box<Http1>,
    method: &'a Method,
    body: &'a mut RequestBody,
    sending: Sending,
    /// Reason why no more can be written.
    stopped: Option<io::Error>,
    is_to_activator: bool,
    /// Set while the body is held.
    expected: Option<Expected>,
    /// Number of bytes received so far.
    received: usize,
    /// Number of them that are known not to end a head.
    searched: usize,
    polled: bool,
    /// Client that receives interim responses.
    client: Option<&'a Peer>,
    /// Interim response that is being written to the client. Nothing more is read before that.
    passing: Option<Passing<'a>>,
    pool: &'a Arc<Http1Pool>,
}

impl Http1 {
    /// Sends a request. The future completes with the response's head; dropping it closes the connection. After
    /// [`Failed::unsent`], `body` is unchanged. Interim responses go to `client`, which uses HTTP/1.1; without a client
    /// they are discarded.
    pub(crate) fn exchange<'a>(
        self: Box<Self>,
        head: &'a request::Parts,
        body: &'a mut RequestBody,
        client: Option<&'a Peer>,
        pool: &'a Arc<Http1Pool>,
    ) -> Exchange<'a> {
        let expected = Expected::from_head(head, body);
        let sending = Sending::new(head, body);
        let under_way = UnderWay {
            connection: self,
            method: &head.method,
            body,
            sending,
            stopped: None,
            is_to_activator: head.extensions.get::<ToActivator>().is_some(),
            expected,
            received: 0,
            searched: 0,
            polled: false,
            client,
            passing: None,
            pool,
        };
        Exchange { under_way: Some(under_way) }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if let Some(under_way) = self.under_way.as_ref().filter(|under_way| under_way.is_to_activator) {
            under_way.connection.tracked.iter().for_each(|tracked| tracked.socket.reset_on_close());
        }
    }
}

impl Future for Exchange<'_> {
    type Output = Result<Response<Http1Body>, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(under_way) = &mut self.under_way else { return Poll::Pending };
        let answered = std::task::ready!(under_way.poll(cx));
        let Some(under_way) = self.under_way.take() else { return Poll::Pending };
        Poll::Ready(match answered {
            Ok(answer) => Ok(under_way.answered(answer)),
            Err(error) => {
                let unsent =
                    !under_way.sending.has_begun && matches!(error, ExchangeError::Closed | ExchangeError::Io(_));
                Err(Failed { unsent, begun: under_way.received > 0, error })
            }
        })
    }
}

impl UnderWay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, ExchangeError>> {
        // Bytes that arrive before the request are not its response. A connection that was idle has just been checked.
        let was_idle = self.connection.was_idle && !std::mem::replace(&mut self.polled, true);
        if !self.sending.has_begun && !was_idle && !self.connection.is_alive(false) {
            return Poll::Ready(Err(ExchangeError::Closed));
        }
        if self.expected.as_mut().is_some_and(|expected| expected.is_over(cx)) {
            self.open_body();
        }
        self.write(cx)?;
        loop {
            if let Some(passing) = &self.passing {
                std::task::ready!(passing.poll(cx));
                self.passing = None;
            }
            match self.head()? {
                Some(Head::Final(answer)) => return Poll::Ready(Ok(answer)),
                Some(Head::Interim(interim)) => {
                    self.interim(cx, interim)?;
                    continue;
                }
                None => {}
            }
            if self.received > BEFORE_ANSWER_MAX {
                return Poll::Ready(Err(Malformed("the response has no complete head within 1 MiB").into()));
            }
            let connection = &mut *self.connection;
            let read = match connection.input.poll_more(cx, &mut connection.io) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(self.stopped.take().map_or(ExchangeError::Closed, ExchangeError::Io)));
                }
                Poll::Ready(Ok(read)) => read,
                // If we closed the connection, the error says why.
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ExchangeError::Io(error))),
                Poll::Pending => return Poll::Pending,
            };
            self.received += read;
        }
    }

    /// Handles an interim response. 100 answers our own `Expect`, and the client's own 100 follows from it. All others
    /// are for the client.
    fn interim(&mut self, cx: &mut Context<'_>, interim: Response<()>) -> Result<(), ExchangeError> {
        match (interim.status(), self.client) {
            (StatusCode::CONTINUE, _) => {
                self.open_body();
                self.write(cx)?;
            }
            (_, Some(client)) => self.passing = Some(client.interims().pass(interim_bytes(interim))),
            (_, None) => {}
        }
        Ok(())
    }

    fn open_body(&mut self) {
        self.expected = None;
        self.body.set_held(false);
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        if self.stopped.is_some() || self.sending.is_over {
            return Ok(());
        }
        match self.sending.poll(cx, self.body, &mut self.connection.io) {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(ExchangeError::Io(error))) if self.sending.has_begun && is_of_peer(&error) => {
                // The response may have arrived, and reading will end in any case.
                self.stopped = Some(error);
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Returns the next head, if it is complete. A head that arrives in many parts is not parsed from its start with
    /// each part.
    fn head(&mut self) -> Result<Option<Head>, Malformed> {
        let input = &mut self.connection.input.bytes;
        let new_part = &input[self.searched.saturating_sub(2).min(input.len())..];
        let may_be_whole = self.searched == 0 || input.len() > HEAD_MAX || has_empty_line(new_part);
        let head = if may_be_whole && !input.is_empty() { read_head(input, self.method)? } else { None };
        self.searched = if head.is_some() { 0 } else { input.len() };
        Ok(head)
    }

    /// Splits the work after the response's head: the body reads on, and an unfinished upload writes on.
    fn answered(self, answer: ResponseHead) -> Response<Http1Body> {
        let Self { mut connection, body, sending, stopped, expected, pool, .. } = self;
        let ResponseHead { mut head, body: mut decoder, keep_alive } = answer;
        let uploads = !sending.is_over;
        connection.spent |= uploads || !keep_alive || head.status() == StatusCode::SWITCHING_PROTOCOLS;
        let whole = decoder.take_whole(&mut connection.input.bytes);
        // A body that still waits for a 100 is not sent, and its client is told that it will not be read.
        let is_refused = uploads && expected.is_some();
        if is_refused {
            head.extensions_mut().insert(EndsConnection);
        }
        let left = (uploads && !is_refused).then(|| std::mem::replace(body, RequestBody::Empty));
        let source = if head.status() == StatusCode::SWITCHING_PROTOCOLS {
            Source::Own { connection, pool: pool.clone() }
        } else if let Some(body) = left {
            match (decoder.is_done(), stopped) {
                (false, None) => Source::Half(Box::new(upload_on(*connection, sending, body))),
                (false, Some(_)) => Source::Own { connection, pool: pool.clone() },
                (true, _) => {
                    head.extensions_mut().insert(EndsConnection);
                    Source::None
                }
            }
        } else if decoder.is_done() {
            pool.return_idle(connection);
            Source::None
        } else {
            Source::Own { connection, pool: pool.clone() }
        };
        head.map(|()| Http1Body { whole, decoder, source })
    }
}

/// Moves the rest of an upload to its own task, so that it does not depend on the response being read. Returns the read
/// half. Dropping that ends the upload.
fn upload_on(connection: Http1, mut sending: Sending, mut body: RequestBody) -> Half {
    let (read, mut write) = tokio::io::split(connection.io);
    let upload = tokio::spawn(async move {
        if let Err(error) = poll_fn(|cx| sending.poll(cx, &mut body, &mut write)).await {
            tracing::debug!(?error, "an upload failed after its response had begun");
        }
    });
    Half { read, input: connection.input, _upload: AbortOnDropHandle::new(upload) }
}

/// Reports whether the pod, or its kernel, has ended the connection. A read reports the same, after the bytes that were
/// received.
fn is_of_peer(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::TimedOut)
}

/// Reports whether a line end follows another one.
fn has_empty_line(bytes: &[u8]) -> bool {
    let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.any(|(end, _)| matches!(&bytes[end + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}
