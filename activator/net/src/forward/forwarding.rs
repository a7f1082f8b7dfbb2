//! Forwarding headers: `X-Forwarded-For`, `X-Forwarded-Proto` and `Forwarded` (RFC 7239).
//!
//! - `X-Forwarded-For` and `X-Forwarded-Proto` are always sent. `Forwarded` is sent only if the request had it.
//! - A trusted peer's values are kept, and the peer is appended to `X-Forwarded-For` and `Forwarded`. Any other peer's
//!   values are replaced.
//! - All schemes in these headers are equal. The first valid one decides: `X-Forwarded-Proto`, then `Forwarded`, then
//!   the scheme of the peer's own connection. `X-Forwarded-Proto` comes first because every ingress sets it; some pass
//!   on a client's `Forwarded` unchecked.
//! - In knative mode, as upstream: every peer is appended to `X-Forwarded-For`, the other two pass through.

use crate::client::peer::Peer;
use activator_core::contract::Contract;
use http::header::{Entry, FORWARDED, HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;
use std::ops::Range;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

pub(super) fn set_forwarding(headers: &mut HeaderMap, contract: Contract, peer: &Peer) {
    let is_upstream = contract == Contract::Knative;
    if !is_upstream && !peer.trust.forwarded {
        headers.remove(FORWARDED_FOR);
        headers.remove(FORWARDED_PROTO);
    }
    append(headers, FORWARDED_FOR, &peer.ip);
    if is_upstream {
        return;
    }
    if !headers.contains_key(FORWARDED)
        && let Entry::Vacant(entry) = headers.entry(&FORWARDED_PROTO)
    {
        entry.insert(HeaderValue::from_static(peer.scheme()));
        return;
    }
    let elements = headers.contains_key(FORWARDED).then(|| joined(headers, &FORWARDED));
    let elements = elements.map(|elements| if peer.trust.forwarded { elements } else { Vec::new() });
    // Nothing can be appended to a quoted string that does not end.
    let elements = elements.map(|elements| schemes(&elements).map(|schemes| (elements, schemes)).unwrap_or_default());
    let stated = headers.get(FORWARDED_PROTO).and_then(|value| value.as_bytes().split(|b| *b == b',').next());
    let scheme = stated
        .and_then(scheme_of)
        .or_else(|| elements.iter().find_map(|(text, schemes)| scheme_of(&text[schemes.first()?.clone()])))
        .and_then(|scheme| HeaderValue::from_str(scheme).ok())
        .unwrap_or(HeaderValue::from_static(peer.scheme()));
    if let Some((text, schemes)) = elements {
        headers.remove(FORWARDED);
        let text = with_scheme(&text, &schemes, scheme.as_bytes());
        for value in [text, element(peer.address.ip(), scheme.as_bytes())] {
            HeaderValue::from_bytes(&value).iter().for_each(|value| append(headers, FORWARDED, value));
        }
    }
    headers.insert(FORWARDED_PROTO, scheme);
}

fn element(peer: IpAddr, scheme: &[u8]) -> Vec<u8> {
    let node = if peer.is_ipv6() { format!("for=\"[{peer}]\";proto=") } else { format!("for={peer};proto=") };
    [node.as_bytes(), scheme].concat()
}

/// Returns a URI scheme without its quotes, if `value` is one.
fn scheme_of(value: &[u8]) -> Option<&str> {
    let value = std::str::from_utf8(value).ok()?.trim_ascii();
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let is_scheme = value.starts_with(|c: char| c.is_ascii_alphabetic())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    is_scheme.then_some(value)
}

/// Finds the values of `proto` in the elements of `Forwarded`. Returns `None` if a quoted string does not end.
fn schemes(elements: &[u8]) -> Option<Vec<Range<usize>>> {
    let (mut found, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in elements.iter().copied().chain([b',']).enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b';' | b',' if !quoted => {
                let parameter = &elements[start..at];
                if let Some(equals) = parameter.iter().position(|b| *b == b'=')
                    && parameter[..equals].trim_ascii().eq_ignore_ascii_case(b"proto")
                {
                    found.push(start + equals + 1..at);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    (!quoted).then_some(found)
}

/// Replaces the values at `schemes` that differ from `scheme`.
fn with_scheme(elements: &[u8], schemes: &[Range<usize>], scheme: &[u8]) -> Vec<u8> {
    let (mut value, mut copied) = (Vec::with_capacity(elements.len()), 0);
    for at in schemes {
        if !scheme_of(&elements[at.clone()]).is_some_and(|stated| stated.as_bytes().eq_ignore_ascii_case(scheme)) {
            value.extend_from_slice(&elements[copied..at.start]);
            value.extend_from_slice(scheme);
            copied = at.end;
        }
    }
    value.extend_from_slice(&elements[copied..]);
    value
}

/// Joins all values of a field that are not empty, in their order.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let values = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
    values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(b", ".as_slice())
}

/// Makes one field of all values of this name, in their order, and `value`.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    if let Entry::Vacant(entry) = headers.entry(&name) {
        entry.insert(value.clone());
        return;
    }
    let all = match joined(headers, &name).as_slice() {
        [] => value.clone(),
        earlier => HeaderValue::from_bytes(&[earlier, value.as_bytes()].join(b", ".as_slice()))
            .unwrap_or_else(|_| value.clone()),
    };
    headers.insert(name, all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::peer::Trust;

    fn sent(peer: &str, trusted: bool, tls: bool, given: &[(&str, &str)]) -> String {
        let trust = Trust { revision: false, forwarded: trusted };
        let peer = Peer::new(format!("{peer}:5000").parse().expect("an address"), trust, tls);
        let field = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).expect("a name"), HeaderValue::from_str(value).expect("a value"))
        };
        let mut headers: HeaderMap = given.iter().map(field).collect();
        set_forwarding(&mut headers, Contract::Plain, &peer);
        let value =
            |name| headers.get_all(name).iter().map(|v| v.to_str().expect("text")).collect::<Vec<_>>().join("|");
        format!("{} / {} / {}", value("x-forwarded-for"), value("x-forwarded-proto"), value("forwarded"))
    }

    #[test]
    fn all_forwarding_headers_have_the_same_scheme() {
        const PROTO: &str = "x-forwarded-proto";
        let two_elements = "for=a;proto=https, for=b;proto=https;by=c, ";
        let quoted = "for=\"a,;proto=http\\\"\", ";
        for (given, scheme, forwarded) in [
            (&[][..], "http", ""),
            (&[(PROTO, "https")], "https", ""),
            (&[(PROTO, "https, http")], "https", ""),
            (&[(PROTO, "https"), (PROTO, "wss")], "https", ""),
            (&[(PROTO, " ")], "http", ""),
            (&[(PROTO, "a;b=\"c")], "http", ""),
            (&[("forwarded", "for=a;proto=https")], "https", "for=a;proto=https, "),
            (&[("forwarded", "for=a;Proto=\"https\"")], "https", "for=a;Proto=\"https\", "),
            (&[("forwarded", "for=a"), ("forwarded", "for=b;proto=https")], "https", "for=a, for=b;proto=https, "),
            (&[("forwarded", "for=a;proto=https, for=b;proto=http;by=c")], "https", two_elements),
            (&[(PROTO, "https"), ("forwarded", "proto=http;for=a")], "https", "proto=https;for=a, "),
            (&[(PROTO, "http"), ("forwarded", "for=a;proto=https")], "http", "for=a;proto=http, "),
            (&[(PROTO, "https"), ("forwarded", "for=a")], "https", "for=a, "),
            (&[(PROTO, "https"), ("forwarded", "for=\"a,;proto=http\\\"\"")], "https", quoted),
            (&[("forwarded", "for=\"a;proto=https")], "http", ""),
            (&[("forwarded", "")], "http", ""),
        ] {
            let own = if given.iter().any(|(name, _)| *name == "forwarded") {
                format!("{forwarded}for=10.0.0.1;proto={scheme}")
            } else {
                String::new()
            };
            assert_eq!(sent("10.0.0.1", true, false, given), format!("10.0.0.1 / {scheme} / {own}"), "{given:?}");
        }
        let ipv6 = sent("[fd00::7]", true, true, &[("forwarded", "for=a"), ("x-forwarded-for", "a")]);
        assert_eq!(ipv6, "a, fd00::7 / https / for=a, for=\"[fd00::7]\";proto=https");
        let untrusted = [("forwarded", "for=a;proto=https"), ("x-forwarded-for", "a"), (PROTO, "https")];
        let replaced = sent("[::ffff:192.0.2.7]", false, false, &untrusted);
        assert_eq!(replaced, "192.0.2.7 / http / for=192.0.2.7;proto=http");
    }
}
