//! Requests relayed to another activator that has a pod for them, and their return if that activator turns them away.
//!
//! A request that is turned away was not processed, so it goes elsewhere. It must then still be complete. Over
//! HTTP/1.1, the other activator is asked for a 100 before the body is sent, which it sends when a pod is to receive
//! the body. A request whose body was not asked for is unsent, even if the other activator is gone. Over HTTP/2, a
//! request is turned away by REFUSED_STREAM, and the part of the body that the other activator takes before it has a
//! pod is kept ([`crate::body`]).

use super::{Delivery, Failure, Prepared};
use crate::body::RequestBody;
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::forward::Evidence;
use crate::hop_by_hop::TURNED_AWAY;
use crate::http1::connection::ToActivator;
use activator_core::contract::Contract;
use common::backend::Protocol;
use http::header::EXPECT;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version, request};
use std::sync::Arc;

impl Prepared {
    /// Prepares a request for another activator. `mark` returns the field that marks the request as relayed; its
    /// argument tells whether the client itself asked for a 100.
    ///
    /// # Errors
    /// The request cannot be expressed.
    pub fn relayed(
        request: Request<RequestBody>,
        contract: Contract,
        peer: Arc<Peer>,
        mark: impl FnOnce(bool) -> (HeaderName, HeaderValue),
    ) -> Result<Box<Self>, ProxyError> {
        let original = Self::keep_original(&request);
        let protocol = if request.version() == Version::HTTP_2 { Protocol::H2c } else { Protocol::Http1 };
        let mut prepared = Self::prepare(request, contract, protocol, peer, true)?;
        let Self { head, body, .. } = &mut *prepared;
        let (name, value) = mark(head.headers.contains_key(EXPECT));
        if protocol == Protocol::H2c {
            body.extend_replay();
        } else if !body.is_empty() {
            head.headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        head.extensions.insert(ToActivator);
        head.headers.insert(name, value);
        prepared.with_original(original);
        Ok(prepared)
    }

    /// Copies the head of `request` without its extensions, so that the original request can be restored.
    pub fn keep_original(request: &Request<RequestBody>) -> Box<request::Parts> {
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri) = (request.method().clone(), request.uri().clone());
        (head.version, head.headers) = (request.version(), request.headers().clone());
        Box::new(head)
    }

    /// Returns the request as received, if its head was kept.
    pub fn into_original(mut self: Box<Self>) -> Option<Request<RequestBody>> {
        let original = *self.delivery.original.take()?;
        self.body.reset_for_pods();
        let mut request = Request::from_parts(original, self.body);
        if self.delivery.may_have_run {
            request.extensions_mut().insert(MayHaveRun);
        }
        if let Some((_, on_upgrade)) = self.upgrade {
            request.extensions_mut().insert(on_upgrade);
        }
        Some(request)
    }

    /// Sets the head that [`Prepared::into_original`] restores.
    pub fn with_original(&mut self, original: Box<request::Parts>) {
        self.delivery.original = Some(original);
    }

    /// Reports whether no part of a relayed request was given to a pod, because its body was not asked for. If the
    /// client itself waits for a 100, the pod sends it, so the pod already has the head.
    pub(super) fn is_body_unrequested(&self) -> bool {
        let asks = |original: &request::Parts| original.headers.contains_key(EXPECT);
        self.delivery.is_relayed
            && !self.delivery.original.as_deref().is_some_and(asks)
            && !self.body.is_empty()
            && self.body.is_untouched()
    }

    pub(super) fn turned_away(self: Box<Self>) -> Failure {
        Failure::Elsewhere { cause: "turned away by the holder".to_owned(), request: self, evidence: Evidence::None }
    }
}

/// Marker of an original request that a pod may have acted on.
#[derive(Clone, Copy)]
pub(super) struct MayHaveRun;

impl Delivery {
    pub(super) fn is_turned_away<B>(&self, response: &Response<B>) -> bool {
        self.is_relayed
            && response.status() == StatusCode::MISDIRECTED_REQUEST
            && response.headers().contains_key(TURNED_AWAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::peer::Trust;
    use crate::pool::Pools;
    use crate::tcp::loopback::listen;
    use tokio::io::AsyncReadExt;
    use tokio_util::sync::CancellationToken;

    /// Goal: a GET goes on if the other activator resets its connection although it still listens: the kernel accepts
    /// connections until a killed process is gone. The second time, it fails, because it may have run twice.
    #[tokio::test]
    async fn a_get_is_retried_once_if_the_holder_resets_the_connection() {
        let (listener, address) = listen().await;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.read_u8().await.expect("a request");
                drop(stream); // The rest is unread, so this resets it.
            }
        });
        let pools = Pools::start((1, 1), None, CancellationToken::new());
        let pool = pools.of_activator(address);
        let peer = Arc::new(Peer::new(address, Trust::default(), false));
        let mut request = Request::get("/").header("host", "app").body(RequestBody::Empty).expect("valid");
        for is_first in [true, false] {
            let mark = |_| (HeaderName::from_static("x-mark"), HeaderValue::from_static("m"));
            let prepared = Prepared::relayed(request, Contract::Knative, peer.clone(), mark).expect("valid");
            match prepared.send(&pool).await {
                Err(Failure::Elsewhere { request: back, .. }) if is_first => {
                    assert!(back.may_have_run());
                    request = back.into_original().expect("kept");
                }
                Err(Failure::Final { .. }) if !is_first => return,
                other => panic!("first: {is_first}, success: {}", other.is_ok()),
            }
        }
    }
}
