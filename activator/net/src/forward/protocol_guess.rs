//! Sends requests to pods whose protocol is only assumed.
//!
//! | assumed | the pod | consequence |
//! |---|---|---|
//! | HTTP/2 | sends its settings on a new connection | the request is sent there |
//! | HTTP/2 | sends something else, or closes | it is sent in HTTP/1.1; nothing was sent before |
//! | HTTP/1.1 | responds | the response is used |
//! | HTTP/1.1 | sends an HTTP/2 frame | it is sent in HTTP/2, if its body can be sent again ([`crate::body`]) |
//!
//! The pool of the address stores the result ([`Pool::speaks`]), and the response carries it if the assumption
//! was wrong ([`DetectedProtocol`]). A protocol counts as supported after a response in it, and as unsupported after a
//! response in the other.

use super::{Evidence, Failure, PodBody, Prepared};
use crate::pool::Pool;
use common::backend::Protocol;
use http::Response;
use std::sync::Arc;

/// Marker of the response of a pod that speaks this protocol instead of the assumed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectedProtocol(pub Protocol);

impl Prepared {
    pub(super) async fn send_guessing(mut self: Box<Self>, pool: &Arc<Pool>) -> Result<Response<PodBody>, Failure> {
        let assumed = self.delivery.protocol;
        let other = match assumed {
            Protocol::Http1 => Protocol::H2c,
            Protocol::H2c => Protocol::Http1,
        };
        let mut speaks_other = pool.speaks(assumed) == Some(false);
        if !speaks_other && assumed == Protocol::H2c {
            match pool.takes_http2().await {
                Ok(takes) => speaks_other = !takes,
                Err(error) => return Err(self.unreachable(pool, &error)),
            }
        }
        if !speaks_other {
            self.body.keep_sent();
            match self.send_known(pool).await {
                Err(Failure::Elsewhere { request, .. }) if pool.speaks(assumed) == Some(false) => self = request,
                sent => {
                    if sent.is_ok() {
                        pool.record_support(assumed, true);
                    }
                    return sent;
                }
            }
        }
        // Upgrades fail, because HTTP/2 has none.
        if other == Protocol::H2c && (self.upgrade.is_some() || !pool.takes_http2().await.unwrap_or(false)) {
            return Err(Failure::of_pod(pool, "the pod speaks neither HTTP/1.1 nor HTTP/2".to_owned(), Evidence::None));
        }
        self.delivery.protocol = other;
        match self.send_known(pool).await {
            Ok(mut response) => {
                pool.record_support(other, true);
                pool.record_support(assumed, false);
                response.extensions_mut().insert(DetectedProtocol(other));
                Ok(response)
            }
            Err(Failure::Elsewhere { mut request, cause, evidence }) => {
                request.delivery.protocol = assumed;
                Err(Failure::Elsewhere { request, cause, evidence })
            }
            failed => failed,
        }
    }

    /// Handles a pod that answered an HTTP/1.1 request in HTTP/2. It has not understood the request.
    pub(super) fn answered_in_http2(mut self: Box<Self>, pool: &Pool, cause: String) -> Failure {
        pool.record_support(Protocol::Http1, false);
        match self.rewind() {
            true => Failure::Elsewhere { request: self, cause, evidence: Evidence::None },
            false => Failure::of_pod(pool, cause, Evidence::None),
        }
    }
}
