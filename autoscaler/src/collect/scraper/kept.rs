//! One kept HTTP/1.1 connection for each pod, for one small question at a time.
//!
//! There may be ten thousand, each used once a second for a moment, so what matters is what one costs while nobody
//! looks: a socket and an entry in a table, no task, no buffer. A general client has both for each connection, some 14
//! KiB.
//!
//! # What is understood
//!
//! A final answer with a `Content-Length`, as queue-proxies give. Any other form (chunks, a body that ends with its
//! connection, an interim answer) is [`AnswerError::Unsupported`]: whoever asks does it again by means that understand
//! everything. The body of a failure is not read, its connection not kept.
//!
//! # Odd cases
//!
//! - A kept connection may have been closed while nobody looked. If nothing of an answer has come, the question is
//!   asked once more over a new one; it changes nothing, so that is safe.
//! - What comes unasked, or after the end of an answer, ends its connection.
//! - Two questions to one pod at a time use two connections; one of them is kept.
//!
//! Cancel safe: a connection whose question was given up is closed.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Connections are closed when they were not used for so long.
const IDLE: Duration = Duration::from_secs(90);
/// Bytes of an answer that are read: six numbers, a name of 256 bytes and some.
pub const BODY_MAX: usize = 336;
/// Bytes of an answer's head that are read.
const HEAD_MAX: usize = 4096;
/// Header fields of an answer.
const FIELDS_MAX: usize = 32;
/// What an answer usually takes is less.
const BUFFER: usize = 512;

/// What a pod has answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Its status.
    pub(super) status: u16,
    /// `Content-Type`; empty: none, or not in letters.
    pub(super) media_type: String,
    /// The body of a success, else nothing.
    pub(super) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// The connection failed before anything of an answer.
    #[error("{0}")]
    Unanswered(io::Error),
    /// The connection failed in the middle of an answer.
    #[error("{0}")]
    Broken(io::Error),
    /// It is no HTTP.
    #[error("no HTTP/1 answer: {0}")]
    Head(#[from] httparse::Error),
    /// The head is longer than [`HEAD_MAX`], or the body than [`BODY_MAX`].
    #[error("length limit exceeded")]
    TooLong,
    /// An answer of a form that is not understood here.
    #[error("an answer of another form")]
    Unsupported,
}

/// The connections.
#[derive(Debug, Default)]
pub(super) struct Kept {
    idle: Mutex<HashMap<SocketAddr, Connection>>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    used: Instant,
}

impl Kept {
    /// Sends `request`, which has no body, to `pod` and reads the answer.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub(super) async fn ask(&self, pod: SocketAddr, request: &[u8]) -> Result<Answer, AnswerError> {
        let kept = self.idle.lock().remove(&pod);
        if let Some(mut connection) = kept {
            match exchange(&mut connection.stream, request).await {
                Err(AnswerError::Unanswered(_)) => {}
                outcome => return self.done(pod, connection.stream, outcome),
            }
        }
        let mut stream = TcpStream::connect(pod).await.map_err(AnswerError::Unanswered)?;
        stream.set_nodelay(true).map_err(AnswerError::Unanswered)?;
        let outcome = exchange(&mut stream, request).await;
        self.done(pod, stream, outcome)
    }

    /// Closes what was not used for long, and what the pod has closed.
    pub(super) fn sweep(&self, now: Instant) {
        let mut idle = self.idle.lock();
        idle.retain(|_, connection| now.saturating_duration_since(connection.used) < IDLE && connection.is_silent());
        if idle.len() < idle.capacity() / 4 {
            idle.shrink_to_fit();
        }
    }

    fn done(
        &self,
        pod: SocketAddr,
        stream: TcpStream,
        outcome: Result<(Answer, bool), AnswerError>,
    ) -> Result<Answer, AnswerError> {
        let (answer, reusable) = outcome?;
        if reusable {
            self.idle.lock().insert(pod, Connection { stream, used: Instant::now() });
        }
        Ok(answer)
    }
}

impl Connection {
    /// Neither closed, nor anything said unasked.
    fn is_silent(&self) -> bool {
        matches!(self.stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The answer, and whether the connection can be used again.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<(Answer, bool), AnswerError> {
    stream.write_all(request).await.map_err(AnswerError::Unanswered)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let failed = if buffer.is_empty() { AnswerError::Unanswered } else { AnswerError::Broken };
        match stream.read_buf(&mut buffer).await {
            Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) => return Err(failed(error)),
        }
        if let Some(done) = parse(&buffer)? {
            return Ok(done);
        }
        if buffer.len() > HEAD_MAX + BODY_MAX {
            return Err(AnswerError::TooLong);
        }
    }
}

/// The answer, once it is whole, and whether its connection can be used again.
fn parse(bytes: &[u8]) -> Result<Option<(Answer, bool)>, AnswerError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head_length) = head.parse(bytes)? else { return Ok(None) };
    let status = head.code.unwrap_or_default();
    if status < 200 {
        return Err(AnswerError::Unsupported);
    }
    let (mut length, mut media_type, mut reusable) = (None, "", head.version == Some(1));
    for field in &*head.headers {
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        match field.name {
            name if name.eq_ignore_ascii_case("content-type") => media_type = value,
            name if name.eq_ignore_ascii_case("connection") => reusable &= !value.eq_ignore_ascii_case("close"),
            name if name.eq_ignore_ascii_case("transfer-encoding") => return Err(AnswerError::Unsupported),
            name if name.eq_ignore_ascii_case("content-length") => {
                let number: usize = value.parse().map_err(|_| AnswerError::Unsupported)?;
                if length.replace(number).is_some_and(|other| other != number) {
                    return Err(AnswerError::Unsupported);
                }
            }
            _ => {}
        }
    }
    let media_type = media_type.to_owned();
    if !(200..300).contains(&status) {
        return Ok(Some((Answer { status, media_type, body: Vec::new() }, false)));
    }
    let length = length.ok_or(AnswerError::Unsupported)?;
    if length > BODY_MAX {
        return Err(AnswerError::TooLong);
    }
    let body = &bytes[head_length..];
    Ok((body.len() >= length).then(|| {
        let reusable = reusable && body.len() == length;
        (Answer { status, media_type, body: body[..length].to_vec() }, reusable)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/protobuf\r\nContent-Length: 3\r\n\r\nabc";

    fn answer(status: u16, body: &[u8]) -> Answer {
        Answer { status, media_type: "application/protobuf".to_owned(), body: body.to_vec() }
    }

    #[test]
    fn an_answer_is_read_when_it_is_whole() {
        for cut in 0..WHOLE.len() {
            assert!(matches!(parse(&WHOLE[..cut]), Ok(None)), "{cut}");
        }
        assert_eq!(parse(WHOLE).expect("sound"), Some((answer(200, b"abc"), true)));
        let more = [WHOLE, b"d"].concat();
        assert_eq!(parse(&more).expect("sound"), Some((answer(200, b"abc"), false)), "more than was asked for");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let text = |head: &str| parse(format!("{head}\r\n\r\n").as_bytes());
        assert!(matches!(text("HTTP/1.1 200 OK"), Err(AnswerError::Unsupported)), "ends with the connection");
        assert!(matches!(text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"), Err(AnswerError::Unsupported)));
        assert!(matches!(
            text("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2"),
            Err(AnswerError::Unsupported)
        ));
        assert!(matches!(text("HTTP/1.1 200 OK\r\nContent-Length: -1"), Err(AnswerError::Unsupported)));
        assert!(matches!(text("HTTP/1.1 103 Early Hints"), Err(AnswerError::Unsupported)));
        assert!(matches!(text("HTTP/1.1 200 OK\r\nContent-Length: 337"), Err(AnswerError::TooLong)));
        assert!(matches!(text("SSH-2.0-OpenSSH"), Err(AnswerError::Head(_))));
        let reusable = |head: &str| text(head).ok().flatten().map(|(answer, reusable)| (answer.status, reusable));
        assert_eq!(reusable("HTTP/1.1 503 Service Unavailable"), Some((503, false)));
        assert_eq!(reusable("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close"), Some((200, false)));
        assert_eq!(reusable("HTTP/1.0 200 OK\r\nContent-Length: 0"), Some((200, false)));
    }

    /// A pod that answers the first `answers` questions on each connection and then closes it. Counts connections.
    async fn pod(answers: usize) -> (SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let connections = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                tokio::spawn(async move {
                    for _ in 0..answers {
                        let _ = stream.read(&mut [0; 64]).await;
                        let _ = stream.write_all(WHOLE).await;
                    }
                });
            }
        });
        (address, connections)
    }

    /// Goal: one connection serves as long as it lives; one that died meanwhile is replaced and nobody notices; a pod
    /// that is gone is an error.
    #[tokio::test]
    async fn a_connection_is_kept_and_replaced() {
        let (address, connections) = pod(3).await;
        let kept = Kept::default();
        for turn in 0..6 {
            assert_eq!(kept.ask(address, b"GET").await.expect("an answer"), answer(200, b"abc"));
            assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1 + turn / 3, "turn {turn}");
        }
        let nobody = TcpListener::bind("127.0.0.1:0").await.expect("bind").local_addr().expect("bound");
        assert!(matches!(kept.ask(nobody, b"GET").await, Err(AnswerError::Unanswered(_))));
    }

    /// Goal: what was not used for long goes, and what the pod has closed goes sooner.
    #[tokio::test]
    async fn idle_connections_go() {
        let (address, _) = pod(2).await;
        let kept = Kept::default();
        kept.ask(address, b"GET").await.expect("an answer");
        kept.sweep(Instant::now());
        assert_eq!(kept.idle.lock().len(), 1, "in use");
        kept.sweep(Instant::now() + IDLE);
        assert_eq!(kept.idle.lock().len(), 0);

        let (closing, _) = pod(1).await;
        kept.ask(closing, b"GET").await.expect("an answer");
        let closed = async {
            while !kept.idle.lock().is_empty() {
                kept.sweep(Instant::now());
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), closed).await.expect("the pod has closed it");
    }
}
