//! A server's handshake. A client that uses plain HTTP gets a readable response, as from Go's server.

use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};

/// First byte of every TLS handshake record.
const HANDSHAKE: u8 = 0x16;

const PLAIN: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Reports whether the first byte from a client begins a TLS handshake. Consumes nothing. Has no time limit; the caller
/// sets one. Fails if the client closed or broke the connection before it sent anything.
pub async fn speaks_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) => Ok(first[0] == HANDSHAKE),
        _ => Err(io::Error::other("the client closed the connection before the TLS handshake")),
    }
}

/// Performs the handshake with a client. Has no time limit; the caller sets one. Fails if the client closed or broke
/// the connection, does not use TLS, or does not complete the handshake.
pub async fn accept(mut stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream<TcpStream>> {
    if speaks_tls(&stream).await? {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("TLS handshake: {error}"));
        return TlsAcceptor::from(config).accept(stream).await.map_err(failed);
    }
    // Read the request first. Otherwise the close could become a reset that overtakes the response.
    let mut sent = [0; 4096];
    if stream.try_read(&mut sent).is_ok() && sent[0].is_ascii_uppercase() {
        let _ = stream.write_all(PLAIN).await;
        let _ = stream.shutdown().await;
    }
    Err(io::Error::other("the client does not use TLS"))
}
