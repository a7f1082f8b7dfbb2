//! An upgraded connection: bytes both ways until both sides have said goodbye.
//!
//! The tunnel owns the body of the 101 response, and with it every guard that the layers put on: place in the breaker,
//! concurrency count, total timeout. Bytes that either side sent early are passed on; a half-close ends one direction.

use crate::body::BodyError;
use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

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
    tokio::io::copy_bidirectional(&mut TokioIo::new(client.await?), &mut pod).await?;
    Ok(())
}
