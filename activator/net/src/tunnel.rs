//! An upgraded connection: bytes in both directions until both sides have ended theirs.
//!
//! The tunnel owns the body of the 101 response, and with it every guard of the layers: the permit of the breaker, the
//! concurrency count, the total timeout. Bytes that either side sent early are forwarded. A half-close ends one
//! direction. If the pod accepts no more bytes, the bytes that it sent before are still forwarded to the client.

use crate::body::BodyError;
use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;

/// Maximum time to forward a pod's remaining bytes to the client.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Both ends of an accepted upgrade before they are connected. An extension of the 101 response.
#[derive(Clone)]
pub(crate) struct Tunnel {
    pub(crate) client: OnUpgrade,
    /// The pod's connection. Extensions are cloned but a connection cannot be, so the first taker gets it.
    pub(crate) pod: Arc<Mutex<Option<PodEnd>>>,
}

/// A bidirectional byte stream.
pub(crate) trait BothWays: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> BothWays for T {}

pub(crate) type PodEnd = Box<dyn BothWays>;

impl Tunnel {
    /// Copies until both directions have ended, one side fails, `body` reports a timeout (it never yields data), or
    /// `cut` completes.
    pub(crate) async fn run(
        self,
        body: impl Body<Data = Bytes, Error: Into<BodyError>>,
        cut: impl Future<Output = ()>,
    ) {
        let mut body = pin!(body);
        tokio::select! {
            copied = copy(self.client, self.pod) => {
                if let Err(error) = copied {
                    tracing::debug!(%error, "a tunnel failed");
                }
            }
            Some(Err(error)) = body.frame() => {
                let error: BodyError = error.into();
                tracing::debug!(%error, "a tunnel was cut");
            }
            () = cut => {}
        }
    }
}

async fn copy(client: OnUpgrade, pod: Arc<Mutex<Option<PodEnd>>>) -> Result<(), BodyError> {
    let pod = pod.lock().take();
    let mut pod = pod.ok_or("the pod's end of the tunnel was already taken")?;
    Ok(both_ways(&mut TokioIo::new(client.await?), &mut pod).await?)
}

/// Copies until both directions have ended, or one side fails.
async fn both_ways(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    pod: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<()> {
    let (from_client, to_client) = split(client);
    let (from_pod, to_pod) = split(pod);
    let (mut there, mut back) = (pin!(one_way(from_client, to_pod)), pin!(one_way(from_pod, to_client)));
    tokio::select! {
        ended = &mut there => match ended {
            Ok(()) => back.await,
            // If the pod closes while the client still sends, this direction fails. The kernel still has the pod's last
            // bytes.
            Err(broken) => {
                let _ = timeout(REST_TIMEOUT, back).await;
                Err(broken)
            }
        },
        ended = &mut back => {
            ended?;
            there.await
        }
    }
}

/// Copies until the source ends, then shuts down the destination.
async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test(start_paused = true)]
    async fn bytes_that_a_pod_sent_before_it_closed_reach_the_client() {
        // A small buffer, so that bytes are in transit when the other direction fails.
        let (mut client, mut ours) = tokio::io::duplex(4);
        let (broken, _) = tokio::io::duplex(1);
        let mut pod = tokio::io::join(&b"that was all"[..], broken);
        let both = tokio::spawn(async move { both_ways(&mut ours, &mut pod).await });
        let mut received = vec![0; 2];
        client.read_exact(&mut received).await.expect("open");
        client.write_all(b"more").await.expect("open");
        client.read_to_end(&mut received).await.expect("open");
        assert_eq!(received[2..], b"that was all"[2..]);
        let broken = both.await.expect("no panic").expect_err("it takes nothing");
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    }
}
