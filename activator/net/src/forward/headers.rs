//! Rewrites heads: fields removed, fields added, and the translation between protocols.
//!
//! # Requests
//!
//! - Hop-by-hop fields are removed, and the fields that `Connection` names; `TE: trailers`, `Trailer` and the two
//!   fields of an upgrade are kept. The fields that `Connection` names are removed *before* ours are set, so that a
//!   client cannot remove ours.
//! - Fields that only parts of the system may set are removed ([`is_internal`]). In knative mode a client's
//!   `K-Original-Host` is kept, because ingresses that rewrite hosts set it, and so are fields that upstream passes.
//! - `X-Forwarded-For`, `X-Forwarded-Proto` and `Forwarded` are set ([`set_forwarding`]).
//! - A plain pod gets its client's `Host`. A queue-proxy gets `K-Proxy-Request`, `K-Original-Host`, and its own address
//!   as `Host`.
//! - From HTTP/2 to HTTP/1.1: `:authority` becomes `Host`, and cookie crumbs are joined. From HTTP/1.1 to HTTP/2:
//!   `Host` becomes `:authority`.
//!
//! A request is prepared once, and addressed ([`address`]) once for each pod that it is sent to.
//!
//! # Responses
//!
//! Hop-by-hop fields are removed ([`crate::hop_by_hop`]) except `Trailer`. Nothing is added; hyper adds a missing
//! `Date`.

use super::forwarding::set_forwarding;
use crate::client::peer::Peer;
use crate::error::ProxyError;
use crate::hop_by_hop::{elements, is_hop_by_hop, names, strip};
use activator_core::contract::Contract;
use common::backend::Protocol;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Uri, Version, request};

/// Field that marks a request that came through an activator. A queue-proxy counts it as proxied.
const PROXY_REQUEST: HeaderName = HeaderName::from_static("k-proxy-request");
/// Field with the client's `Host`. A queue-proxy restores it.
const ORIGINAL_HOST: HeaderName = HeaderName::from_static("k-original-host");

/// Prepares a head for any pod of the revision; without a contract, for another activator, which does the preparation
/// for a pod. Returns the protocol that the client wants to upgrade to, if the connection can be upgraded; the fields
/// for that are then set.
pub(crate) fn prepare(
    head: &mut request::Parts,
    contract: Option<Contract>,
    peer: &Peer,
    protocol: Protocol,
    upgradable: bool,
) -> Result<Option<HeaderValue>, ProxyError> {
    let keeps_host = contract.is_none_or(|contract| contract == Contract::Plain);
    let host = if keeps_host { plain_host(head, protocol)? } else { client_host(head)? };
    let upgrade = if upgradable { requested_upgrade(head) } else { None };
    strip_request(&mut head.headers, contract);
    if let Some(contract) = contract {
        set_forwarding(&mut head.headers, contract, peer);
        if head.version == Version::HTTP_2 {
            join_cookies(&mut head.headers);
            // An HTTP/2 client does not wait for a 100, and sends its body anyway.
            head.headers.remove(header::EXPECT);
        }
    }
    if keeps_host {
        set_or_remove(&mut head.headers, header::HOST, host);
    } else {
        head.headers.insert(PROXY_REQUEST, HeaderValue::from_static("activator"));
        if head.headers.get(ORIGINAL_HOST).is_none_or(HeaderValue::is_empty) {
            head.headers.insert(ORIGINAL_HOST, host.unwrap_or(HeaderValue::from_static("")));
        }
    }
    if let Some(protocol) = &upgrade {
        set_upgrade(&mut head.headers, protocol.clone());
    }
    Ok(upgrade)
}

/// Returns the client's host for the `Host` field. Returns `None` if the pod speaks HTTP/2 and the target has an
/// authority, which stays there.
fn plain_host(head: &request::Parts, protocol: Protocol) -> Result<Option<HeaderValue>, ProxyError> {
    let stays = protocol == Protocol::H2c && head.uri.authority().is_some();
    if stays { Ok(None) } else { client_host(head) }
}

pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Addresses a prepared head to one pod, in the protocol of the connection. May be repeated for another pod.
pub(crate) fn address(
    head: &mut request::Parts,
    contract: Contract,
    pod: &HeaderValue,
    protocol: Protocol,
    scheme: Scheme,
) -> Result<(), ProxyError> {
    if contract != Contract::Plain {
        head.headers.insert(header::HOST, pod.clone());
    }
    match protocol {
        Protocol::Http1 => {
            if let Some(authority) = head.uri.authority()
                && !head.headers.contains_key(header::HOST)
                && let Ok(host) = HeaderValue::from_str(authority.as_str())
            {
                head.headers.insert(header::HOST, host);
            }
            // An HTTP/1.0 client may have sent no host, but HTTP/1.1 requires the field.
            head.headers.entry(header::HOST).or_insert(HeaderValue::from_static(""));
            head.version = Version::HTTP_11;
            if head.uri.scheme().is_some() || head.uri.authority().is_some() {
                let mut target = http::uri::Parts::default();
                let path = head.uri.path_and_query().cloned();
                target.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
                head.uri = Uri::from_parts(target).map_err(|_| ProxyError::Malformed("malformed request target"))?;
            }
        }
        Protocol::H2c => {
            let host = head.headers.remove(header::HOST).filter(|host| !host.is_empty());
            let mut target = std::mem::take(&mut head.uri).into_parts();
            if host.is_some() || target.authority.is_none() {
                let authority = Authority::try_from(host.as_ref().unwrap_or(pod).as_bytes());
                target.authority = Some(authority.map_err(|_| ProxyError::Malformed("malformed Host header"))?);
            } // Otherwise the target has the authority of its client, or of an earlier call.
            target.scheme = Some(scheme);
            target.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
            head.uri = Uri::from_parts(target).map_err(|_| ProxyError::Malformed("malformed request target"))?;
            head.version = Version::HTTP_2;
        }
    }
    Ok(())
}

/// Returns the protocol of a 101 response, if it is the requested one.
pub(crate) fn agreed_upgrade(headers: &HeaderMap, requested: &HeaderValue) -> Option<HeaderValue> {
    let protocol = headers.get(header::UPGRADE)?;
    protocol.as_bytes().eq_ignore_ascii_case(requested.as_bytes()).then(|| protocol.clone())
}

/// Returns the host in a request: the target's authority, else the `Host` field.
fn client_host(head: &request::Parts) -> Result<Option<HeaderValue>, ProxyError> {
    match head.uri.authority() {
        Some(authority) if head.method != Method::CONNECT => HeaderValue::from_str(authority.as_str())
            .map(Some)
            .map_err(|_| ProxyError::Malformed("malformed authority")),
        _ => Ok(head.headers.get(header::HOST).cloned()),
    }
}

fn set_or_remove(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => {
            headers.insert(name, value);
        }
        None => {
            headers.remove(name);
        }
    }
}

/// Returns the protocol that `Connection: Upgrade` and `Upgrade` ask for. `Upgrade: h2c` is not for the pod.
fn requested_upgrade(head: &request::Parts) -> Option<HeaderValue> {
    let upgrades = elements(&head.headers, header::CONNECTION).any(|element| element.eq_ignore_ascii_case(b"upgrade"));
    let protocol = head.headers.get(header::UPGRADE).filter(|_| upgrades)?;
    (!protocol.as_bytes().eq_ignore_ascii_case(b"h2c")).then(|| protocol.clone())
}

/// Removes hop-by-hop fields and, if there is a contract, internal fields.
fn strip_request(headers: &mut HeaderMap, contract: Option<Contract>) {
    let is_foreign = |name: &HeaderName| contract.is_some_and(|contract| is_internal(name, contract));
    let unwanted = names(headers, |name| (is_hop_by_hop(name) && *name != header::TRAILER) || is_foreign(name));
    if unwanted.as_slice() == [header::TE] && has_only_trailers(headers) {
        return; // Nothing changes, as in every gRPC call.
    }
    let trailers = unwanted.contains(&header::TE)
        && elements(headers, header::TE).any(|element| element.eq_ignore_ascii_case(b"trailers"));
    strip(headers, unwanted);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Reports whether `TE` already has the only value that is kept.
fn has_only_trailers(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::TE).iter();
    all.next().is_some_and(|te| te == "trailers") && all.next().is_none()
}

/// Reports whether clients must not set a field under this contract.
fn is_internal(name: &HeaderName, contract: Contract) -> bool {
    let name = name.as_str();
    if !name.starts_with('k') {
        return false; // One comparison suffices for nearly every field.
    }
    match name {
        "knative-serving-revision" | "knative-serving-namespace" | "k-network-hash" | "k-proxy-request" => true,
        "k-original-host" | "k-passthrough-lb" | "k-kubelet-probe" | "k-network-probe" => contract != Contract::Knative,
        _ => contract == Contract::Plain && (name.starts_with("k-") || name.starts_with("knative-")),
    }
}

/// Joins cookie fields: HTTP/2 may send one for each pair, but HTTP/1.1 allows only one.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = crumbs.join(b"; ".as_slice());
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::peer::Trust;
    use http::Request;

    fn peer() -> Peer {
        peer_with(Trust::default())
    }

    fn peer_with(trust: Trust) -> Peer {
        Peer::new("[::ffff:192.0.2.7]:5000".parse().expect("an address"), trust, false)
    }

    fn head(uri: &str, version: Version, fields: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().uri(uri).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).expect("valid").into_parts().0
    }

    fn fields(head: &request::Parts) -> Vec<(String, String)> {
        let mut all: Vec<_> = head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        all.sort();
        all
    }

    fn sent(contract: Contract, given: &[(&str, &str)]) -> Vec<(String, String)> {
        sent_from(&peer(), contract, given)
    }

    fn sent_from(peer: &Peer, contract: Contract, given: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut head = head("/", Version::HTTP_11, given);
        prepare(&mut head, Some(contract), peer, Protocol::Http1, false).expect("well-formed");
        address(&mut head, contract, &HeaderValue::from_static("10.0.0.1:80"), Protocol::Http1, Scheme::HTTP)
            .expect("addressable");
        fields(&head)
    }

    fn owned(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_plain_pod_receives_no_internal_or_hop_by_hop_fields() {
        let received = sent(
            Contract::Plain,
            &[
                ("host", "a.example.com"),
                ("x-own", "kept"),
                ("k-proxy-request", "x"),
                ("k-anything", "x"),
                ("knative-serving-revision", "x"),
                ("knative-serving-tag", "x"),
                ("keep-alive", "5"),
            ],
        );
        let expected = [
            ("host", "a.example.com"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-proto", "http"),
            ("x-own", "kept"),
        ];
        assert_eq!(received, owned(&expected));
    }

    /// Goal: pods see forwarding headers of trusted peers only; in knative mode they see those of every peer, as
    /// upstream. `Connection` cannot remove ours.
    #[test]
    fn forwarding_headers_of_untrusted_peers_are_replaced() {
        let given = [
            ("connection", "forwarded, x-forwarded-proto"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "203.0.113.10"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-proto", "wss"),
            ("forwarded", "for=x"),
            ("forwarded", "for=y;proto=https"),
        ];
        let (alone, own) = ("192.0.2.7", "for=192.0.2.7;proto=http");
        let joined = "203.0.113.9, 203.0.113.10, 192.0.2.7";
        let untouched = [("forwarded", "for=x"), ("forwarded", "for=y;proto=https"), ("x-forwarded-for", joined)];
        let untouched = [&untouched[..], &[("x-forwarded-proto", "https"), ("x-forwarded-proto", "wss")]].concat();
        let replaced = vec![("forwarded", own), ("x-forwarded-for", alone), ("x-forwarded-proto", "http")];
        let added = vec![
            ("forwarded", "for=x, for=y;proto=https, for=192.0.2.7;proto=https"),
            ("x-forwarded-for", joined),
            ("x-forwarded-proto", "https"),
        ];
        let (stranger, router) = (Trust::default(), Trust { revision: true, forwarded: false });
        let proxy = Trust { revision: false, forwarded: true };
        for (trust, contract, expected) in [
            (stranger, Contract::Plain, &replaced),
            (stranger, Contract::QueueProxy, &replaced),
            (router, Contract::Plain, &replaced),
            (proxy, Contract::Plain, &added),
            (proxy, Contract::QueueProxy, &added),
            (stranger, Contract::Knative, &untouched),
            (proxy, Contract::Knative, &untouched),
        ] {
            let passed = |given: &[(&str, &str)]| {
                let mut received = sent_from(&peer_with(trust), contract, given);
                received.retain(|(name, _)| name.contains("forwarded"));
                received
            };
            assert_eq!(passed(&given[1..]), owned(expected), "{trust:?} {contract:?}");
            let named =
                if contract == Contract::Knative { vec![("x-forwarded-for", joined)] } else { replaced[1..].to_vec() };
            if trust != proxy {
                assert_eq!(passed(&given), owned(&named), "{trust:?} {contract:?}, named by Connection");
            }
            let own = if contract == Contract::Knative { &replaced[1..2] } else { &replaced[1..] };
            assert_eq!(passed(&[]), owned(own), "{trust:?} {contract:?}, nothing said");
        }
    }

    #[test]
    fn a_queue_proxy_receives_knatives_fields() {
        for contract in [Contract::QueueProxy, Contract::Knative] {
            let mut received =
                sent(contract, &[("host", "a.example.com"), ("k-proxy-request", "x"), ("k-network-hash", "h")]);
            received.retain(|(name, _)| !name.contains("forwarded"));
            let expected =
                [("host", "10.0.0.1:80"), ("k-original-host", "a.example.com"), ("k-proxy-request", "activator")];
            assert_eq!(received, owned(&expected));
        }
        let ours = sent(Contract::QueueProxy, &[("host", "a"), ("k-original-host", "forged")]);
        assert!(ours.contains(&("k-original-host".into(), "a".into())), "clients do not set it");
        let knative = sent(Contract::Knative, &[("host", "a"), ("k-original-host", "rewritten")]);
        assert!(knative.contains(&("k-original-host".into(), "rewritten".into())), "ingresses do");
    }

    #[test]
    fn hop_by_hop_fields_are_removed_before_ours_are_set() {
        let received = sent(
            Contract::Knative,
            &[
                ("host", "a"),
                ("connection", "close, X-Drop, K-Proxy-Request, X-Forwarded-For"),
                ("x-drop", "x"),
                ("te", "gzip, trailers"),
                ("upgrade", "x"),
                ("transfer-encoding", "chunked"),
            ],
        );
        let names: Vec<&str> = received.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["host", "k-original-host", "k-proxy-request", "te", "x-forwarded-for"]);
    }

    #[test]
    fn heads_are_translated_between_protocols() {
        let pod = HeaderValue::from_static("10.0.0.1:80");
        let mut down = head("http://a.example.com/p?q=1", Version::HTTP_2, &[("cookie", "a=1"), ("cookie", "b=2")]);
        prepare(&mut down, Some(Contract::Plain), &peer(), Protocol::Http1, false).expect("well-formed");
        address(&mut down, Contract::Plain, &pod, Protocol::Http1, Scheme::HTTP).expect("addressable");
        assert_eq!(down.uri, "/p?q=1");
        assert_eq!(down.headers["host"], "a.example.com");
        assert_eq!(down.headers["cookie"], "a=1; b=2");

        let mut up = head("/p?q=1", Version::HTTP_11, &[("host", "a.example.com:8080")]);
        prepare(&mut up, Some(Contract::Plain), &peer(), Protocol::H2c, false).expect("well-formed");
        address(&mut up, Contract::Plain, &pod, Protocol::H2c, Scheme::HTTP).expect("addressable");
        assert_eq!(up.uri, "http://a.example.com:8080/p?q=1");
        assert!(!up.headers.contains_key("host"));
        let other = HeaderValue::from_static("10.0.0.2:80");
        address(&mut up, Contract::Plain, &other, Protocol::H2c, Scheme::HTTP).expect("addressable");
        assert_eq!(up.uri, "http://a.example.com:8080/p?q=1", "the next pod is told the same host");
        let mut queue_proxy = head("/", Version::HTTP_11, &[("host", "a.example.com")]);
        prepare(&mut queue_proxy, Some(Contract::QueueProxy), &peer(), Protocol::H2c, false).expect("well-formed");
        for pod in [pod, other] {
            address(&mut queue_proxy, Contract::QueueProxy, &pod, Protocol::H2c, Scheme::HTTP).expect("addressable");
            assert_eq!(queue_proxy.uri.authority().map(Authority::as_str), pod.to_str().ok(), "each its own");
        }
    }

    /// Goal: with HTTP/2 on both sides, the target keeps its authority, which has priority over `Host`.
    #[test]
    fn the_authority_of_an_http2_target_has_priority_over_host() {
        let pod = HeaderValue::from_static("10.0.0.1:80");
        for (contract, expected) in
            [(Contract::Plain, "https://a.example.com/p?q=1"), (Contract::QueueProxy, "https://10.0.0.1:80/p?q=1")]
        {
            let mut through = head("http://a.example.com/p?q=1", Version::HTTP_2, &[("host", "b.example.com")]);
            prepare(&mut through, Some(contract), &peer(), Protocol::H2c, false).expect("well-formed");
            for _ in 0..2 {
                address(&mut through, contract, &pod, Protocol::H2c, Scheme::HTTPS).expect("addressable");
                assert_eq!((through.uri.to_string().as_str(), through.version), (expected, Version::HTTP_2));
                assert!(!through.headers.contains_key("host"));
            }
            let original = (contract != Contract::Plain).then_some("a.example.com");
            assert_eq!(through.headers.get("k-original-host").and_then(|host| host.to_str().ok()), original);
        }
    }

    #[test]
    fn an_upgrade_is_kept_only_if_the_connection_supports_it() {
        let websocket = [("host", "a"), ("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let h2c = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")];
        for (given, upgradable, kept) in
            [(&websocket[..], true, Some("websocket")), (&websocket[..], false, None), (&h2c[..], true, None)]
        {
            let mut head = head("/", Version::HTTP_11, given);
            let upgrade = prepare(&mut head, Some(Contract::Plain), &peer(), Protocol::Http1, upgradable);
            let kept = kept.map(HeaderValue::from_static);
            assert_eq!(upgrade.expect("well-formed"), kept, "{given:?}, {upgradable}");
            assert_eq!(head.headers.get("upgrade"), kept.as_ref(), "{given:?}, {upgradable}");
            let connection = kept.map(|_| HeaderValue::from_static("Upgrade"));
            assert_eq!(head.headers.get("connection"), connection.as_ref(), "{given:?}, {upgradable}");
        }
    }
}
