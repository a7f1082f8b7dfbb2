//! A server's handshake. A client that speaks plain HTTP gets an answer that says so, as Go's server gives, instead of
//! bytes that mean nothing to it.

use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};

/// What every TLS record of a handshake starts with.
const HANDSHAKE: u8 = 0x16;

const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// It closed, or broke, before it said anything.
    #[error("closed before a handshake")]
    Closed,
    /// It speaks no TLS. If it looked like HTTP, it was answered.
    #[error("the client speaks no TLS")]
    Plain,
    /// The handshake failed.
    #[error("TLS handshake: {0}")]
    Handshake(io::Error),
}

/// Whether what a client sends first begins a TLS handshake. Nothing is read. Not bounded in time: that is the caller's
/// part.
///
/// # Errors
/// It closed, or broke, before it said anything.
pub async fn speaks_tls(stream: &TcpStream) -> Result<bool, HandshakeError> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) => Ok(first[0] == HANDSHAKE),
        _ => Err(HandshakeError::Closed),
    }
}

/// Shakes hands with a client. Not bounded in time: that is the caller's part.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn accept(mut stream: TcpStream, config: Arc<ServerConfig>) -> Result<TlsStream<TcpStream>, HandshakeError> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] == HANDSHAKE => {
            TlsAcceptor::from(config).accept(stream).await.map_err(HandshakeError::Handshake)
        }
        Ok(1) => {
            if first[0].is_ascii_uppercase() {
                // Read what it sent, lest the close become a reset that overtakes the answer.
                let mut sent = [0; 4096];
                let _ = stream.try_read(&mut sent);
                let _ = stream.write_all(PLAIN).await;
                let _ = stream.shutdown().await;
            }
            Err(HandshakeError::Plain)
        }
        _ => Err(HandshakeError::Closed),
    }
}
