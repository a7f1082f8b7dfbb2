//! A body that is written piece by piece, at the pace of its reader and in bounded memory.
//!
//! Pieces wait for the reader, [`AHEAD`] of them at most. A reader who takes none for [`PATIENCE`] loses the connection:
//! whoever opens a stream and never reads it costs its pieces, the connection's buffer, and that for so long.

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Pieces that wait for the reader.
const AHEAD: usize = 1;
/// Bytes of a piece, about.
pub(super) const PIECE: usize = 32 * 1024;
/// How long a reader may take for a piece.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Any body that the dashboard sends.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The reader has gone, or has not read for too long.
#[derive(Debug)]
pub(super) struct Gone;

/// Writes a body.
pub(super) struct Writer {
    pieces: mpsc::Sender<Bytes>,
    text: String,
    /// Ends the connection.
    connection: CancellationToken,
}

impl Writer {
    /// A body, and who writes it. `connection` is cancelled if nobody reads it.
    pub(super) fn new(connection: CancellationToken) -> (Self, Body) {
        let (pieces, taken) = mpsc::channel(AHEAD);
        let taken = futures::stream::unfold(taken, async |mut taken| Some((taken.recv().await?, taken)));
        let body = StreamBody::new(taken.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        (Self { pieces, text: String::new(), connection }, body.boxed_unsync())
    }

    /// Adds text, and sends a piece if there is enough for one.
    pub(super) async fn write(&mut self, text: &str) -> Result<(), Gone> {
        self.text.push_str(text);
        if self.text.len() < PIECE {
            return Ok(());
        }
        self.flush().await
    }

    /// Sends what has been added.
    ///
    /// Not cancel safe: a dropped call may lose a piece.
    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        if self.text.is_empty() {
            return Ok(());
        }
        match timeout(PATIENCE, self.pieces.send(std::mem::take(&mut self.text).into())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Gone),
            Err(_) => {
                self.connection.cancel();
                Err(Gone)
            }
        }
    }

    /// Waits until the reader has gone.
    pub(super) async fn gone(&self) {
        self.pieces.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who reads gets everything in order; who stops reading holds two pieces back and loses the connection in time.
    #[tokio::test(start_paused = true)]
    async fn a_reader_who_stops_loses_the_connection() {
        let connection = CancellationToken::new();
        let (mut writer, body) = Writer::new(connection.clone());
        let reading = tokio::spawn(body.collect());
        for _ in 0..100 {
            writer.write(&"x".repeat(PIECE / 3)).await.expect("a reader");
        }
        writer.flush().await.expect("a reader");
        drop(writer);
        let read = reading.await.expect("no panic").map(|read| read.to_bytes().len());
        assert_eq!(read.ok(), Some(100 * (PIECE / 3)));

        let (mut writer, body) = Writer::new(connection.clone());
        let mut written = 0;
        while writer.write(&"x".repeat(PIECE)).await.is_ok() {
            written += 1;
        }
        assert_eq!(written, AHEAD);
        assert!(connection.is_cancelled());
        drop(body);
    }
}
