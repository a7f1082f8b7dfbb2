//! Fallback of a workload, and the requests it may take.
//!
//! A request sent to a fallback carries [`MARK`], and no second fallback takes it. So workloads that name each other as
//! fallbacks cannot pass a request around in a loop.

use super::Request;
use super::fallback_addresses::FallbackAddresses;
use super::matching::{Matching, is_grpc};
use common::backend::Protocol;
use common_api::zeroscaler::FallbackStatus;
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// In a request: the workload that it was addressed to. In a response: the Service that sent it.
pub(crate) const MARK: HeaderName = HeaderName::from_static("x-zeroscale-fallback");

/// Another Service in the workload's namespace that takes requests when the workload wakes too slowly.
#[derive(Debug)]
pub(crate) struct Fallback {
    matching: Matching,
    pub(crate) service: String,
    pub(crate) mark: HeaderValue,
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    /// Time a request waits for the workload before it is sent here.
    pub(crate) after: Duration,
    /// Result of the last address lookup.
    pub(crate) addresses: Arc<Mutex<FallbackAddresses>>,
}

impl Fallback {
    /// Builds a fallback from the status that the owner wrote. Returns `None` if the Service name is invalid.
    pub(super) fn new(status: &FallbackStatus) -> Option<Self> {
        let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let service = Some(&status.service).filter(|name| !name.is_empty() && is_name(name))?;
        Some(Self {
            matching: Matching::new(&status.matching, &[]),
            service: service.clone(),
            mark: HeaderValue::try_from(service).ok()?,
            port: status.port,
            protocol: status.protocol,
            after: Duration::from_millis(status.after_ms),
            addresses: Arc::default(),
        })
    }

    /// Takes over the resolved addresses of the former version if Service and port are unchanged.
    pub(super) fn keep_addresses(&mut self, former: &Self) {
        if (&self.service, self.port) == (&former.service, former.port) {
            self.addresses = former.addresses.clone();
        }
    }

    /// Reports whether the fallback may take this request. gRPC calls need HTTP/2 end to end.
    pub(super) fn takes(&self, request: Request<'_>) -> bool {
        !request.headers.contains_key(MARK)
            && (self.protocol == Protocol::H2c || !is_grpc(request.headers))
            && self.matching.matches(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Method};

    fn fallback(yaml: &str) -> Option<Fallback> {
        Fallback::new(&serde_yaml_ng::from_str(yaml).expect(yaml))
    }

    /// Goal: resolved addresses survive an edit of other fields, but not of the Service or its port.
    #[tokio::test]
    async fn addresses_are_kept_while_service_and_port_stay_the_same() {
        let now = tokio::time::Instant::now();
        let former = fallback("{service: sorry, port: 80, afterMs: 1}").expect("valid");
        former.addresses.lock().await.record(now, Ok(vec![([10, 0, 0, 9], 80).into()]));
        for (edited, is_kept) in [("sorry, port: 80", true), ("sorry, port: 81", false), ("other, port: 80", false)] {
            let mut edited = fallback(&format!("{{service: {edited}, afterMs: 2}}")).expect("valid");
            edited.keep_addresses(&former);
            assert_eq!(edited.addresses.lock().await.fresh(now).is_some(), is_kept, "{}", edited.service);
        }
    }

    #[test]
    fn a_request_falls_back_only_once_and_grpc_only_over_http2() {
        let plain = "{service: sorry, port: 80, afterMs: 1, match: {paths: [/a/*]}}";
        let h2c = "{service: sorry, port: 80, protocol: h2c, afterMs: 1}";
        let rows = [
            (plain, "/a/b", "accept", "*/*", true),
            (plain, "/b", "accept", "*/*", false),
            (plain, "/a/b", "x-zeroscale-fallback", "", false),
            (plain, "/a/b", "content-type", "application/grpc+proto", false),
            (h2c, "/a/b", "content-type", "application/grpc", true),
            (h2c, "/a/b", "x-zeroscale-fallback", "other", false),
        ];
        for (yaml, path, name, value, expected) in rows {
            let headers: HeaderMap =
                [(HeaderName::from_static(name), HeaderValue::from_static(value))].into_iter().collect();
            let request = Request { method: &Method::POST, path, headers: &headers };
            assert_eq!(fallback(yaml).expect(yaml).takes(request), expected, "{yaml} {path} {name}: {value}");
        }
    }

    /// Goal: a status cannot direct requests to another namespace or to a foreign host.
    #[test]
    fn an_invalid_service_name_gives_no_fallback() {
        for name in ["", "a.other", "A", "a/b", "a:1", "ä"] {
            assert!(fallback(&format!("{{service: '{name}', port: 80, afterMs: 1}}")).is_none(), "{name}");
        }
    }
}
