//! Fields about a connection rather than the message on it (RFC 9110, 7.6.1): those that are so by their name, and those
//! that `Connection` names.

use http::header::{self, HeaderMap, HeaderName};
use smallvec::SmallVec;

/// Takes out what concerned only the connection to the pod.
pub(crate) fn strip_response(headers: &mut HeaderMap) {
    let unwanted = names(headers, |name| is_hop_by_hop(name) && *name != header::TRAILER);
    strip(headers, unwanted);
}

/// Some of a head's names, mostly none.
pub(crate) type Names = SmallVec<[HeaderName; 4]>;

/// One pass over the names: what it does not find need not be looked for.
pub(crate) fn names(headers: &HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) -> Names {
    headers.keys().filter(|name| unwanted(name)).cloned().collect()
}

/// Removes fields, and those that `Connection` names if it is among them.
pub(crate) fn strip(headers: &mut HeaderMap, unwanted: Names) {
    if unwanted.contains(&header::CONNECTION) {
        strip_named(headers);
    }
    for name in unwanted {
        headers.remove(name);
    }
}

fn strip_named(headers: &mut HeaderMap) {
    let named: Names = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .filter(|name| *name != header::CONNECTION)
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Fields about the connection, not the message. `Trailer` counts, and is kept where there is a body to have trailers:
/// HTTP/1.1 sends none that it does not name.
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
