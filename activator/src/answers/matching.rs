//! Which requests an answer is for, and which of them a person looks at.
//!
//! Browsers say what they ask for: `Sec-Fetch-Dest` and `Sec-Fetch-Mode` where they are new enough, and otherwise by an
//! `Accept` that names HTML before anything else. Scripts mark themselves by `X-Requested-With`, or ask for something else.

use super::Request;
use common_api::zeroscaler::RequestMatch;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, RANGE, UPGRADE};
use http::{HeaderMap, HeaderValue, Method};

const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

/// What a request is for that a window shows.
const WINDOWS: [&[u8]; 3] = [b"document", b"iframe", b"frame"];

/// Methods that are meant where none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// GET.
    Get,
    /// GET and HEAD.
    Read,
    /// Any.
    Anything,
}

/// A [`RequestMatch`], ready to be asked.
#[derive(Debug, PartialEq)]
pub(crate) struct Matching {
    paths: Vec<Path>,
    methods: Vec<Method>,
    accept: Vec<String>,
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// It names a header that no request can have.
    is_never: bool,
}

#[derive(Debug, PartialEq)]
enum Path {
    Exact(String),
    Prefix(String),
}

impl Matching {
    /// `asked`: the methods, where none is named.
    pub(crate) fn new(said: &RequestMatch, asked: Asked) -> Self {
        let mut methods: Vec<Method> = said.methods.iter().filter_map(|name| name.parse().ok()).collect();
        if said.methods.is_empty() {
            methods = match asked {
                Asked::Get => vec![Method::GET],
                Asked::Read => vec![Method::GET, Method::HEAD],
                Asked::Anything => Vec::new(),
            };
        }
        let header = |name: &str, value: Option<&str>| {
            let value = value.map(HeaderValue::from_str).transpose().ok()?;
            Some((HeaderName::try_from(name).ok()?, value))
        };
        let headers: Vec<_> =
            said.headers.iter().map(|said| header(&said.name, said.value.as_deref())).map(Option::into_iter).collect();
        let is_never =
            headers.iter().any(|header| header.len() == 0) || (methods.is_empty() && !said.methods.is_empty());
        Self {
            paths: said.paths.iter().map(|path| Path::new(path)).collect(),
            accept: said.accept.clone(),
            headers: headers.into_iter().flatten().collect(),
            methods,
            is_never,
        }
    }

    /// Whether it means this one.
    pub(crate) fn matches(&self, request: Request<'_>) -> bool {
        let any = |list_is_empty: bool, found: bool| list_is_empty || found;
        !self.is_never
            && any(self.methods.is_empty(), self.methods.contains(request.method))
            && any(self.paths.is_empty(), self.paths.iter().any(|path| path.matches(request.path)))
            && self.headers.iter().all(|(name, value)| {
                let mut values = request.headers.get_all(name).iter();
                values.any(|have| value.as_ref().is_none_or(|value| value == have))
            })
            && any(
                self.accept.is_empty(),
                accepted(request.headers).any(|(kind, _)| self.accept.iter().any(|a| a.eq_ignore_ascii_case(kind))),
            )
    }
}

impl Path {
    fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text.to_owned()),
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }
}

/// Whether somebody looks at a window that shows the answer.
pub(super) fn is_for_a_window(request: Request<'_>) -> bool {
    let headers = request.headers;
    let is = |name, wanted: &[&[u8]]| headers.get(name).is_none_or(|value| wanted.contains(&value.as_bytes()));
    *request.method == Method::GET
        && ![REQUESTED_WITH, UPGRADE, RANGE].iter().any(|name| headers.contains_key(name))
        && is(FETCH_DEST, &WINDOWS)
        && is(FETCH_MODE, &[b"navigate"])
        && prefers_html(headers)
}

/// Whether it is a call of gRPC, or of gRPC-Web.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Whether HTML is asked for, and nothing before it.
fn prefers_html(headers: &HeaderMap) -> bool {
    let mut best: Option<(&str, u16)> = None;
    for (kind, quality) in accepted(headers) {
        if best.is_none_or(|(_, most)| quality > most) {
            best = Some((kind, quality));
        }
    }
    best.is_some_and(|(kind, quality)| {
        quality > 0 && (kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml"))
    })
}

/// What `Accept` names, each with its quality in thousandths. Of a header of any length the first part is read.
fn accepted(headers: &HeaderMap) -> impl Iterator<Item = (&str, u16)> {
    /// Media types that are looked at.
    const MOST: usize = 32;
    let texts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).take(MOST).map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1000, thousandths);
        (kind, quality)
    })
}

fn thousandths(text: &str) -> u16 {
    // Between 0 and 1000: no loss.
    text.parse::<f32>().map_or(0, |quality| (quality.clamp(0.0, 1.0) * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_is_wanted_if_nothing_is_wanted_more() {
        let rows = [
            ("text/html", true),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("application/xhtml+xml, text/html;q=0.9", true),
            ("application/json;q=0.5, text/html", true),
            ("application/json, text/html", false),
            ("text/html;q=0.5, application/json", false),
            ("text/html;q=0", false),
            ("text/html;q=x", false),
            ("*/*", false),
            ("", false),
        ];
        for (accept, expected) in rows {
            let headers = [(ACCEPT, HeaderValue::from_static(accept))].into_iter().collect();
            assert_eq!(prefers_html(&headers), expected, "{accept}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }

    /// Goal: what cannot be read means nothing, not everything.
    #[test]
    fn a_header_that_cannot_be_matches_no_request() {
        let said: RequestMatch = serde_yaml_ng::from_str("{headers: [{name: 'a b'}]}").expect("readable");
        let (headers, method) = (HeaderMap::new(), Method::GET);
        let request = Request { method: &method, path: "/", headers: &headers };
        assert!(!Matching::new(&said, Asked::Anything).matches(request));
        assert!(Matching::new(&RequestMatch::default(), Asked::Anything).matches(request));
    }
}
