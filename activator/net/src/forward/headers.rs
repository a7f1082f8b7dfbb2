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
    // If the pod speaks HTTP/2, the authority of the target stays there.
    let stays = keeps_host && protocol == Protocol::H2c && head.uri.authority().is_some();
    let host = if stays { None } else { client_host(head)? };
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
        match host {
            Some(host) => drop(head.headers.insert(header::HOST, host)),
            None => drop(head.headers.remove(header::HOST)),
        }
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

    static POD: HeaderValue = HeaderValue::from_static("10.0.0.1:80");

    fn peer(trust: Trust) -> Peer {
        Peer::new("[::ffff:192.0.2.7]:5000".parse().expect("an address"), trust, false)
    }

    /// Returns a head with the fields of a text such as `host: a|x: b`.
    fn head(uri: &str, version: Version, fields: &str) -> request::Parts {
        let mut request = Request::builder().uri(uri).version(version);
        for (name, value) in fields.split('|').filter_map(|field| field.split_once(": ")) {
            request = request.header(name, value);
        }
        request.body(()).expect("valid").into_parts().0
    }

    fn prepared(uri: &str, version: Version, fields: &str, contract: Contract, protocol: Protocol) -> request::Parts {
        let mut head = head(uri, version, fields);
        prepare(&mut head, Some(contract), &peer(Trust::default()), protocol, false).expect("well-formed");
        head
    }

    fn address_to(pod: &HeaderValue, head: &mut request::Parts, contract: Contract, protocol: Protocol) {
        address(head, contract, pod, protocol, Scheme::HTTP).expect("addressable");
    }

    /// Returns the fields that a pod receives as a text, sorted.
    fn sent(trust: Trust, contract: Contract, given: &str) -> String {
        let mut head = head("/", Version::HTTP_11, given);
        prepare(&mut head, Some(contract), &peer(trust), Protocol::Http1, false).expect("well-formed");
        address_to(&POD, &mut head, contract, Protocol::Http1);
        let field = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().expect("text"));
        let mut fields: Vec<_> = head.headers.iter().map(field).collect();
        fields.sort();
        fields.join("|")
    }

    /// Goal: internal and hop-by-hop fields are removed before ours are set. Clients do not set the original host, but
    /// in knative mode ingresses do.
    #[test]
    fn each_kind_of_pod_receives_only_its_fields() {
        use Contract::{Knative, Plain, QueueProxy};
        let to_plain = "host: a.example.com|x-own: kept|k-proxy-request: x|k-anything: x|knative-serving-revision: x|\
                        knative-serving-tag: x|keep-alive: 5";
        let to_proxy = "host: a.example.com|k-proxy-request: x|k-network-hash: h";
        let hop_by_hop = "host: a|connection: close, X-Drop, K-Proxy-Request, X-Forwarded-For|x-drop: x|\
                          te: gzip, trailers|upgrade: x|transfer-encoding: chunked";
        let ip = "x-forwarded-for: 192.0.2.7";
        let both = format!("{ip}|x-forwarded-proto: http");
        let ours = |host: &str| format!("host: 10.0.0.1:80|k-original-host: {host}|k-proxy-request: activator");
        for (contract, given, expected) in [
            (Plain, to_plain, format!("host: a.example.com|{both}|x-own: kept")),
            (QueueProxy, to_proxy, format!("{}|{both}", ours("a.example.com"))),
            (Knative, to_proxy, format!("{}|{ip}", ours("a.example.com"))),
            (QueueProxy, "host: a|k-original-host: forged", format!("{}|{both}", ours("a"))),
            (Knative, "host: a|k-original-host: rewritten", format!("{}|{ip}", ours("rewritten"))),
            (Knative, hop_by_hop, format!("{}|te: trailers|{ip}", ours("a"))),
        ] {
            assert_eq!(sent(Trust::default(), contract, given), expected, "{contract:?} {given}");
        }
    }

    /// Goal: pods see forwarding headers of trusted peers only; in knative mode they see those of every peer, as
    /// upstream. `Connection` cannot remove ours.
    #[test]
    fn forwarding_headers_of_untrusted_peers_are_replaced() {
        let given = "x-forwarded-for: 203.0.113.9|x-forwarded-for: 203.0.113.10|x-forwarded-proto: https|\
                     x-forwarded-proto: wss|forwarded: for=x|forwarded: for=y;proto=https";
        let (own, joined) = ("x-forwarded-for: 192.0.2.7", "x-forwarded-for: 203.0.113.9, 203.0.113.10, 192.0.2.7");
        let bare = format!("{own}|x-forwarded-proto: http");
        let replaced = format!("forwarded: for=192.0.2.7;proto=http|{bare}");
        let elements = "for=x, for=y;proto=https, for=192.0.2.7;proto=https";
        let added = format!("forwarded: {elements}|{joined}|x-forwarded-proto: https");
        let schemes = "x-forwarded-proto: https|x-forwarded-proto: wss";
        let untouched = format!("forwarded: for=x|forwarded: for=y;proto=https|{joined}|{schemes}");
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
            let passed = |given: &str| {
                let sent = sent(trust, contract, given);
                sent.split('|').filter(|field| field.contains("forwarded")).collect::<Vec<_>>().join("|")
            };
            let (named, unsaid) = if contract == Contract::Knative { (joined, own) } else { (&*bare, &*bare) };
            assert_eq!(passed(given), *expected, "{trust:?} {contract:?}");
            if trust != proxy {
                let removing = format!("connection: forwarded, x-forwarded-proto|{given}");
                assert_eq!(passed(&removing), named, "{trust:?} {contract:?}, named by Connection");
            }
            assert_eq!(passed(""), unsaid, "{trust:?} {contract:?}, nothing said");
        }
    }

    #[test]
    fn heads_are_translated_between_protocols() {
        let (plain, h2c) = (Contract::Plain, Protocol::H2c);
        let cookies = "cookie: a=1|cookie: b=2";
        let mut down = prepared("http://a.example.com/p?q=1", Version::HTTP_2, cookies, plain, Protocol::Http1);
        address_to(&POD, &mut down, plain, Protocol::Http1);
        assert_eq!(down.uri, "/p?q=1");
        assert_eq!(down.headers["host"], "a.example.com");
        assert_eq!(down.headers["cookie"], "a=1; b=2");

        let other = HeaderValue::from_static("10.0.0.2:80");
        let mut up = prepared("/p?q=1", Version::HTTP_11, "host: a.example.com:8080", plain, h2c);
        for pod in [&POD, &other] {
            address_to(pod, &mut up, plain, h2c);
            assert_eq!(up.uri, "http://a.example.com:8080/p?q=1", "the next pod is told the same host");
            assert!(!up.headers.contains_key("host"));
        }
        let mut proxied = prepared("/", Version::HTTP_11, "host: a.example.com", Contract::QueueProxy, h2c);
        for pod in [&POD, &other] {
            address_to(pod, &mut proxied, Contract::QueueProxy, h2c);
            assert_eq!(proxied.uri.authority().map(Authority::as_str), pod.to_str().ok(), "each its own");
        }
    }

    /// Goal: with HTTP/2 on both sides, the target keeps its authority, which has priority over `Host`.
    #[test]
    fn the_authority_of_an_http2_target_has_priority_over_host() {
        for (contract, expected) in
            [(Contract::Plain, "https://a.example.com/p?q=1"), (Contract::QueueProxy, "https://10.0.0.1:80/p?q=1")]
        {
            let given = ("http://a.example.com/p?q=1", "host: b.example.com");
            let mut through = prepared(given.0, Version::HTTP_2, given.1, contract, Protocol::H2c);
            for _ in 0..2 {
                address(&mut through, contract, &POD, Protocol::H2c, Scheme::HTTPS).expect("addressable");
                assert_eq!((through.uri.to_string().as_str(), through.version), (expected, Version::HTTP_2));
                assert!(!through.headers.contains_key("host"));
            }
            let original = (contract != Contract::Plain).then_some("a.example.com");
            assert_eq!(through.headers.get("k-original-host").and_then(|host| host.to_str().ok()), original);
        }
    }

    #[test]
    fn an_upgrade_is_kept_only_if_the_connection_supports_it() {
        let websocket = "host: a|connection: keep-alive, Upgrade|upgrade: websocket";
        let h2c = "connection: Upgrade, HTTP2-Settings|upgrade: h2c";
        for (given, upgradable, kept) in
            [(websocket, true, Some("websocket")), (websocket, false, None), (h2c, true, None)]
        {
            let mut head = head("/", Version::HTTP_11, given);
            let peer = peer(Trust::default());
            let upgrade = prepare(&mut head, Some(Contract::Plain), &peer, Protocol::Http1, upgradable);
            let kept = kept.map(HeaderValue::from_static);
            assert_eq!(upgrade.expect("well-formed"), kept, "{given}, {upgradable}");
            assert_eq!(head.headers.get("upgrade"), kept.as_ref(), "{given}, {upgradable}");
            let connection = kept.map(|_| HeaderValue::from_static("Upgrade"));
            assert_eq!(head.headers.get("connection"), connection.as_ref(), "{given}, {upgradable}");
        }
    }
}
