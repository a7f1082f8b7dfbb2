//! An upgraded connection: bytes both ways until both sides have said goodbye.
//!
//! The tunnel owns the body of the 101 response, and with it every guard that the layers put on: place in the breaker,
//! concurrency count, total timeout. Bytes that either side sent early are passed on; a half-close ends one direction.
//! Where the pod takes nothing more, what it has said last still reaches the client.

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

/// How long a pod's last words may take to the client.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Both ends of an agreed upgrade, not connected yet. Travels as an extension of the 101 response.
#[derive(Clone)]
pub(crate) struct Tunnel {
    /// The client's connection.
    pub(crate) client: OnUpgrade,
    /// The pod's. An extension can be cloned, a connection cannot: whoever comes first has it.
    pub(crate) pod: Arc<Mutex<Option<PodEnd>>>,
}

/// A connection as nothing but bytes both ways.
pub(crate) trait BothWays: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> BothWays for T {}

/// The pod's end of a tunnel.
pub(crate) type PodEnd = Box<dyn BothWays>;

impl Tunnel {
    /// Copies until both directions have ended, one side broke, `body` (which never yields data) says that time is up,
    /// or `cut` has come.
    pub(crate) async fn run<B>(self, body: B, cut: impl Future<Output = ()>)
    where
        B: Body<Data = Bytes, Error: Into<BodyError>>,
    {
        let mut body = pin!(body);
        tokio::select! {
            copied = copy(self.client, self.pod) => {
                if let Err(error) = copied {
                    tracing::debug!(%error, "tunnel broke");
                }
            }
            Some(Err(error)) = body.frame() => {
                let error: BodyError = error.into();
                tracing::debug!(%error, "tunnel cut");
            }
            () = cut => {}
        }
    }
}

async fn copy(client: OnUpgrade, pod: Arc<Mutex<Option<PodEnd>>>) -> Result<(), BodyError> {
    let pod = pod.lock().take();
    let mut pod = pod.ok_or("its pod's end is taken")?;
    Ok(both_ways(&mut TokioIo::new(client.await?), &mut pod).await?)
}

/// Copies until both directions have ended, or one side broke.
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
            // A pod that closes while the client goes on sending breaks the way there. The kernel has its last words still.
            Err(broken) => {
                let _ = timeout(LAST_WORDS, back).await;
                Err(broken)
            }
        },
        ended = &mut back => {
            ended?;
            there.await
        }
    }
}

/// Copies to the end, and passes that on.
async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::AsyncReadExt;

    /// A way on which nothing goes any more.
    struct Broken;

    impl AsyncWrite for Broken {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Goal: what a pod said before it closed reaches a client that goes on sending.
    #[tokio::test(start_paused = true)]
    async fn a_pods_last_words_are_passed_on() {
        // With room for little, so that something is on its way when the other direction breaks.
        let (mut client, mut ours) = tokio::io::duplex(4);
        let mut pod = tokio::io::join(&b"that was all"[..], Broken);
        let both = tokio::spawn(async move { both_ways(&mut ours, &mut pod).await });
        let mut heard = vec![0; 2];
        client.read_exact(&mut heard).await.expect("open");
        client.write_all(b"more").await.expect("open");
        client.read_to_end(&mut heard).await.expect("open");
        assert_eq!(heard[2..], b"that was all"[2..]);
        let broken = both.await.expect("no panic").expect_err("it takes nothing");
        assert_eq!(broken.kind(), io::ErrorKind::ConnectionReset);
    }
}
