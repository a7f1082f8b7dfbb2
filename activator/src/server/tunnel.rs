//! An upgraded connection: bytes both ways until both sides have said goodbye.
//!
//! The tunnel owns the body of the 101 response, and with it every guard that the layers put on: place in the breaker,
//! concurrency count, total timeout. Bytes that either side sent early are passed on; a half-close ends one direction.

use super::drain::Listener;
use crate::body::BodyError;
use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::pin::pin;

/// Both ends of an agreed upgrade, not connected yet. Travels as an extension of the 101 response.
#[derive(Clone)]
pub(crate) struct Tunnel {
    /// The client's connection.
    pub(crate) client: OnUpgrade,
    /// The pod's.
    pub(crate) pod: OnUpgrade,
}

impl Tunnel {
    /// Copies until both directions have ended, one side broke, `body` (which never yields data) says that time is up,
    /// or the server is cut.
    pub(super) async fn run<B>(self, body: B, mut drain: Listener)
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
            () = drain.cut() => {}
        }
    }
}

async fn copy(client: OnUpgrade, pod: OnUpgrade) -> Result<(), BodyError> {
    let (client, pod) = tokio::try_join!(client, pod)?;
    tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(pod)).await?;
    Ok(())
}
