//! Requests relayed to another activator that has a pod for them, and their return if that activator turns them away.
//!
//! A request that is turned away was not processed, so it goes elsewhere. It must then still be complete. Over
//! HTTP/1.1, the other activator is asked for a 100 before the body is sent, which it sends when a pod is to receive
//! the body. A request whose body was not asked for is unsent, even if the other activator is gone. Over HTTP/2, a
//! request is turned away by REFUSED_STREAM, and the part of the body that the other activator takes before it has a
//! pod is kept ([`crate::body`]).

use super::{Delivery, Failure, Prepared, headers};
use crate::body::RequestBody;
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::forward::Evidence;
use crate::http1::connection::ToActivator;
use activator_core::contract::Contract;
use common::backend::Protocol;
use http::header::{EXPECT, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use std::sync::Arc;

/// Response field by which an activator turns a relayed request away, with status 421.
pub const TURNED_AWAY: HeaderName = HeaderName::from_static("zeroscale-turned-away");

/// Head of a request as received.
pub struct Original {
    method: Method,
    uri: Uri,
    version: Version,
    fields: HeaderMap,
}

impl Original {
    fn from_request<B>(request: &Request<B>) -> Box<Self> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Box::new(Self { method, uri, version: request.version(), fields: request.headers().clone() })
    }
}

impl Prepared {
    /// Prepares a request for another activator. `mark` returns the field that marks the request as relayed; its
    /// argument tells whether the client itself asked for a 100.
    ///
    /// # Errors
    /// The request cannot be expressed.
    pub fn relayed(
        mut request: Request<RequestBody>,
        contract: Contract,
        peer: Arc<Peer>,
        mark: impl FnOnce(bool) -> (HeaderName, HeaderValue),
    ) -> Result<Box<Self>, ProxyError> {
        let original = Some(Original::from_request(&request));
        let protocol = if request.version() == Version::HTTP_2 { Protocol::H2c } else { Protocol::Http1 };
        let upgradable = request.version() == Version::HTTP_11;
        let on_upgrade =
            (upgradable && request.headers().contains_key(UPGRADE)).then(|| hyper::upgrade::on(&mut request));
        let may_have_run = MayHaveRun::taken(&mut request);
        let (mut head, mut body) = request.into_parts();
        let asked = headers::prepare_relay(&mut head, protocol, upgradable)?;
        let expects = head.headers.contains_key(EXPECT);
        if protocol == Protocol::H2c {
            body.keep_window();
        } else if !body.is_empty() {
            head.headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        head.extensions.insert(ToActivator);
        let (name, value) = mark(expects);
        head.headers.insert(name, value);
        let client = upgradable.then_some(peer);
        let delivery =
            Delivery { is_relayed: true, original, ..Delivery::new(contract, protocol, client, may_have_run) };
        Ok(Box::new(Self { head, body, upgrade: asked.zip(on_upgrade), delivery }))
    }

    /// Keeps the head in `request`, so that the original request can be restored.
    pub fn keep_original(request: &Request<RequestBody>) -> Box<Original> {
        Original::from_request(request)
    }

    /// Returns the request as received, if its head was kept.
    pub fn into_original(mut self: Box<Self>) -> Option<Request<RequestBody>> {
        let Original { method, uri, version, fields } = *self.delivery.original.take()?;
        self.body.set_free();
        let mut request = Request::new(self.body);
        (*request.method_mut(), *request.uri_mut(), *request.version_mut()) = (method, uri, version);
        *request.headers_mut() = fields;
        if self.delivery.may_have_run {
            request.extensions_mut().insert(MayHaveRun);
        }
        if let Some((_, on_upgrade)) = self.upgrade {
            request.extensions_mut().insert(on_upgrade);
        }
        Some(request)
    }

    /// Sets the head that [`Prepared::into_original`] restores.
    pub fn with_original(&mut self, kept: Box<Original>) {
        self.delivery.original = Some(kept);
    }

    /// Reports whether no part of a relayed request was given to a pod, because its body was not asked for. If the
    /// client itself waits for a 100, the pod sends it, so the pod already has the head.
    pub(super) fn is_unasked(&self) -> bool {
        let asks = |original: &Original| original.fields.contains_key(EXPECT);
        self.delivery.is_relayed
            && !self.delivery.original.as_deref().is_some_and(asks)
            && !self.body.is_empty()
            && self.body.is_untouched()
    }

    /// Returns the failure of a request that was turned away.
    pub(super) fn turned_away(self: Box<Self>) -> Failure {
        Failure::Elsewhere { cause: "turned away by the holder".to_owned(), request: self, evidence: Evidence::None }
    }
}

/// Marker of an original request that a pod may have acted on.
#[derive(Clone, Copy)]
pub(super) struct MayHaveRun;

impl MayHaveRun {
    /// Removes the mark. Returns whether there was one.
    pub(super) fn taken<B>(request: &mut Request<B>) -> bool {
        request.extensions_mut().remove::<Self>().is_some()
    }
}

impl Delivery {
    /// Reports whether a response turns the request away.
    pub(super) fn is_turned_away<B>(&self, response: &Response<B>) -> bool {
        self.is_relayed
            && response.status() == StatusCode::MISDIRECTED_REQUEST
            && response.headers().contains_key(TURNED_AWAY)
    }
}
