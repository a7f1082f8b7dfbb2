//! Request matching, and detection of page loads by a person.
//!
//! Browsers mark a page load with `Sec-Fetch-Dest` and `Sec-Fetch-Mode`. Older browsers lack these headers, but their
//! `Accept` prefers HTML. Scripts send `X-Requested-With`, or prefer another media type.

use super::Request;
use common_api::zeroscaler::RequestMatch;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, RANGE, UPGRADE};
use http::{HeaderMap, HeaderValue, Method};

const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

/// Values of `Sec-Fetch-Dest` for content that fills a window or frame.
const WINDOWS: [&[u8]; 3] = [b"document", b"iframe", b"frame"];

/// [`RequestMatch`] in parsed form.
#[derive(Debug, PartialEq)]
pub(crate) struct Matching {
    /// A path, or a prefix if it ends with `*`.
    paths: Vec<String>,
    methods: Vec<Method>,
    accept: Vec<String>,
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// Set if a configured method or header is invalid, so no request can match.
    is_invalid: bool,
}

impl Matching {
    /// Parses `rule`. `default_methods`: methods to match if `rule` names none; empty for any.
    pub(crate) fn new(rule: &RequestMatch, default_methods: &[Method]) -> Self {
        let methods: Vec<Method> = match rule.methods.is_empty() {
            true => default_methods.to_vec(),
            false => rule.methods.iter().filter_map(|name| name.parse().ok()).collect(),
        };
        let header = |name: &str, value: Option<&str>| {
            let value = value.map(HeaderValue::from_str).transpose().ok()?;
            Some((HeaderName::try_from(name).ok()?, value))
        };
        let headers = rule.headers.iter().map(|rule| header(&rule.name, rule.value.as_deref()));
        let headers: Option<Vec<_>> = headers.collect();
        Self {
            paths: rule.paths.clone(),
            accept: rule.accept.clone(),
            is_invalid: headers.is_none() || (methods.is_empty() && !rule.methods.is_empty()),
            headers: headers.unwrap_or_default(),
            methods,
        }
    }

    pub(crate) fn matches(&self, request: Request<'_>) -> bool {
        let any = |list_is_empty: bool, found: bool| list_is_empty || found;
        !self.is_invalid
            && any(self.methods.is_empty(), self.methods.contains(request.method))
            && any(self.paths.is_empty(), self.paths.iter().any(|pattern| path_matches(request.path, pattern)))
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

fn path_matches(path: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(path == pattern, |prefix| path.starts_with(prefix))
}

/// Reports whether the response is shown in a browser window or frame.
pub(super) fn is_for_a_window(request: Request<'_>) -> bool {
    let headers = request.headers;
    let is_absent_or =
        |name, wanted: &[&[u8]]| headers.get(name).is_none_or(|value| wanted.contains(&value.as_bytes()));
    *request.method == Method::GET
        && ![REQUESTED_WITH, UPGRADE, RANGE].iter().any(|name| headers.contains_key(name))
        && is_absent_or(FETCH_DEST, &WINDOWS)
        && is_absent_or(FETCH_MODE, &[b"navigate"])
        && prefers_html(headers)
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Reports whether `Accept` ranks HTML first.
fn prefers_html(headers: &HeaderMap) -> bool {
    let best = accepted(headers).reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.is_some_and(|(kind, quality)| {
        quality > 0 && (kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml"))
    })
}

/// Returns the media types in `Accept`, each with its quality in thousandths. Only the first `ENTRIES_MAX` count.
fn accepted(headers: &HeaderMap) -> impl Iterator<Item = (&str, u16)> {
    const ENTRIES_MAX: usize = 32;
    let texts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).take(ENTRIES_MAX).map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1000, thousandths);
        (kind, quality)
    })
}

fn thousandths(text: &str) -> u16 {
    // The value is between 0 and 1000, so the cast loses nothing but the fraction.
    text.parse::<f32>().map_or(0, |quality| (quality.clamp(0.0, 1.0) * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_is_preferred_if_it_is_the_first_type_of_the_highest_quality() {
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

    #[test]
    fn an_invalid_header_name_matches_no_request() {
        let rule: RequestMatch = serde_yaml_ng::from_str("{headers: [{name: 'a b'}]}").expect("readable");
        let (headers, method) = (HeaderMap::new(), Method::GET);
        let request = Request { method: &method, path: "/", headers: &headers };
        assert!(!Matching::new(&rule, &[]).matches(request));
        assert!(Matching::new(&RequestMatch::default(), &[]).matches(request));
    }
}
