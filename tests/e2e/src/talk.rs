//! A workload that does not use HTTP, as databases do. If the server speaks first (MySQL), it greets each client;
//! otherwise (PostgreSQL) it waits for the client. Either way it echoes the client's bytes after [`ANSWER`]. With a
//! certificate it uses TLS.

use crate::server;
use common_runtime::tls::{ClientAuth, Identity, Parameters, TlsAcceptor, pem, server_config};
use std::process::ExitCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Greeting of a server that speaks first: the beginning of a MySQL packet.
pub const GREETING: &[u8] = b"\x4a\x00\x00\x00\x0a8.4.0\x00";
/// Beginning of a reply.
pub const ANSWER: &[u8] = b"R";

/// Name of the variable with a certificate and its key, in PEM, one after the other.
pub const CERTIFICATE: &str = "E2E_TALKS_TLS";

/// Serves until the process is killed.
pub fn main(speaks_first: bool) -> ExitCode {
    let acceptor = std::env::var(CERTIFICATE).ok().map(|pem| acceptor(&pem).expect("a certificate and its key"));
    server::run("5432", move |stream| {
        let acceptor = acceptor.clone();
        async move {
            match acceptor {
                Some(acceptor) => talk(acceptor.accept(stream).await?, speaks_first).await,
                None => talk(stream, speaks_first).await,
            } // An error means that the client has disconnected.
        }
    })
}

fn acceptor(pem: &str) -> anyhow::Result<TlsAcceptor> {
    let pair = pem::key_pair((CERTIFICATE, pem.as_bytes()), (CERTIFICATE, pem.as_bytes()))?;
    Ok(server_config(&Identity::new(pair), &Parameters::default(), ClientAuth::None, &[])?.into())
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, speaks_first: bool) -> std::io::Result<()> {
    if speaks_first {
        stream.write_all(GREETING).await?;
    }
    let mut received = [0; 4096];
    loop {
        match stream.read(&mut received).await? {
            0 => return Ok(()),
            length => stream.write_all(&[ANSWER, &received[..length]].concat()).await?,
        }
    }
}
