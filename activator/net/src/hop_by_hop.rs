//! Hop-by-hop fields (RFC 9110, 7.6.1): those that are hop-by-hop by name, those that `Connection` lists, and the one
//! between two activators.

use http::header::{self, HeaderMap, HeaderName};
use smallvec::SmallVec;

/// Response field by which an activator turns a relayed request away, with status 421.
pub const TURNED_AWAY: HeaderName = HeaderName::from_static("zeroscale-turned-away");

/// Removes the fields of a response that concern only the connection to the pod, and the one that only activators may
/// set.
pub(crate) fn strip_response(headers: &mut HeaderMap) {
    let unwanted = names(headers, |name| is_hop_by_hop(name) && *name != header::TRAILER || *name == TURNED_AWAY);
    strip(headers, unwanted);
}

/// Names of some fields of a head. Mostly empty.
pub(crate) type Names = SmallVec<[HeaderName; 4]>;

/// Returns the names that match `unwanted`. One pass over the names saves a lookup for each possible name.
pub(crate) fn names(headers: &HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) -> Names {
    headers.keys().filter(|name| unwanted(name)).cloned().collect()
}

/// Removes the fields `unwanted`. If `Connection` is one of them, also removes the fields that it lists.
pub(crate) fn strip(headers: &mut HeaderMap, unwanted: Names) {
    if unwanted.contains(&header::CONNECTION) {
        let named = elements(headers, header::CONNECTION).filter_map(|element| HeaderName::from_bytes(element).ok());
        let named: Names = named.filter(|name| *name != header::CONNECTION).collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in unwanted {
        headers.remove(name);
    }
}

/// Iterates over the elements of a field that is a comma-separated list.
pub(crate) fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Reports whether a field concerns the connection rather than the message. `Trailer` is one of them, but callers keep
/// it if there may be trailers: HTTP/1.1 sends only the trailers that it announces.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "proxy-connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}
