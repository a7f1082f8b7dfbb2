//! Backend of the HTTP/1.1 rows. It answers each head with the same response, and costs little relative to a proxy.
//!
//! Requests must not have bodies.

use super::announce::{BODY, serve_each};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) async fn run() -> anyhow::Result<()> {
    let answer: &'static str = Box::leak(answer().into_boxed_str());
    serve_each(|stream| serve(stream, move || answer)).await
}

/// Returns one whole response, with the fields that every server sends.
pub(crate) fn answer() -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

/// Responds to each head on one connection.
pub(crate) async fn serve<A: AsRef<[u8]>>(mut stream: TcpStream, answer: impl Fn() -> A) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 8192];
    let mut filled = 0;
    loop {
        let n = stream.read(&mut buffer[filled..]).await?;
        if n == 0 {
            return Ok(());
        }
        let end = filled + n;
        let mut start = 0;
        while let Some(length) = head_length(&buffer[start..end]) {
            stream.write_all(answer().as_ref()).await?;
            start += length;
        }
        buffer.copy_within(start..end, 0);
        filled = end - start;
        if filled == buffer.len() {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    }
}

/// Returns the length of a request's or response's head, including the empty line. Returns `None` if it is incomplete.
pub(crate) fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_at_the_first_empty_line() {
        assert_eq!(head_length(b"GET / HTTP/1.1\r\nhost: a\r\n"), None);
        assert_eq!(head_length(b"GET /\r\n\r\n"), Some(9));
        assert_eq!(head_length(b"A\r\n\r\nB\r\n\r\n"), Some(5));
        assert!(answer().ends_with(BODY) && answer().contains("content-length: 36\r\n"));
    }
}
