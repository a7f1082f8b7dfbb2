//! Choice of the HTTP version towards pods.

use super::ports::WorkloadPort;
use super::revision::{Live, Revision};
use crate::discovery::Port;
use activator_core::contract::Contract;
use common::backend::Protocol;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::{HeaderMap, Method, Request, Version};
use std::sync::atomic::{AtomicU8, Ordering};

/// HTTP version that the pods of a port were found to speak, if it differs from the assumption.
#[derive(Debug, Default)]
pub(crate) struct LearnedHttp(AtomicU8);

impl LearnedHttp {
    fn get(&self) -> Option<Protocol> {
        match self.0.load(Ordering::Relaxed) {
            1 => Some(Protocol::Http1),
            2 => Some(Protocol::H2c),
            _ => None,
        }
    }

    fn set(&self, protocol: Protocol) {
        self.0.store(if protocol == Protocol::Http1 { 1 } else { 2 }, Ordering::Relaxed);
    }
}

/// Returns whether the request is a gRPC call. gRPC-Web is not.
fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let Some(kind) = headers.get(CONTENT_TYPE) else { return false };
    let (kind, rest) = kind.as_bytes().split_at(kind.len().min(GRPC.len()));
    kind.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

impl Live {
    /// Returns the protocol for a request, and whether it is an assumption. `port`: Service port of the request; `None`
    /// for a shared port, which stands for the first one. `learned`: protocol that the port's pods were found to speak.
    ///
    /// Knative's queue-proxies speak both, so they get the client's protocol. gRPC uses HTTP/2, regardless of the
    /// declaration. A port without a declaration speaks HTTP/1.1 at plain pods; behind a queue-proxy all ports are the
    /// same.
    pub(super) fn protocol_for<B>(
        &self,
        request: &Request<B>,
        port: Option<&Port>,
        learned: Option<Protocol>,
    ) -> (Protocol, bool) {
        let spec = &self.spec;
        match spec.contract {
            Contract::Knative if request.version() >= Version::HTTP_2 => return (Protocol::H2c, false),
            Contract::Knative => return (Protocol::Http1, false),
            Contract::QueueProxy => return (spec.backend.protocol, false),
            Contract::Plain => {}
        }
        let port = port.or(spec.ports.first());
        let declared = port.map_or(Some(spec.backend.protocol), |port| port.protocol.http());
        if request.method() == Method::POST && is_grpc(request.headers()) {
            return (Protocol::H2c, declared != Some(Protocol::H2c));
        }
        match declared.ok_or(learned.or(port.and_then(|port| port.spoken)).unwrap_or_default()) {
            Ok(declared) => (declared, false),
            // HTTP/2 has no upgrades.
            Err(Protocol::H2c) if request.headers().contains_key(UPGRADE) => (Protocol::Http1, false),
            Err(assumed) => (assumed, true),
        }
    }
}

impl Revision {
    /// Returns the protocol for a request on `port`, or on a shared port, and whether it is an assumption.
    pub(crate) fn protocol_for<B>(
        &self,
        live: &Live,
        request: &Request<B>,
        port: Option<&WorkloadPort>,
    ) -> (Protocol, bool) {
        let declared = port.and_then(|port| port.among(&live.spec.ports));
        live.protocol_for(request, declared, self.learned(port).get())
    }

    /// Records that pods responded in this protocol instead of the assumed one.
    pub(crate) fn learn(&self, port: Option<&WorkloadPort>, protocol: Protocol) {
        if self.learned(port).get() != Some(protocol) {
            tracing::info!(revision = %self.key, ?protocol, "the pods speak another HTTP version than assumed");
            self.learned(port).set(protocol);
        }
    }

    fn learned<'a>(&'a self, port: Option<&'a WorkloadPort>) -> &'a LearnedHttp {
        port.map_or(&self.learned, |port| &port.learned)
    }
}
