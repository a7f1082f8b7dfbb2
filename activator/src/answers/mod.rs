//! Responses that a workload gives without a pod, as a pure rule.
//!
//! # The rule, in this order
//!
//! | request | no pod is ready | pods are ready |
//! |---|---|---|
//! | the page's event stream | the stream | the stream reports readiness and ends |
//! | matches an entry of `static` | that entry's response; the workload does not wake | forwarded, uncounted unless `keepsAwake`; the entry's response with `Always` |
//! | a browser's page load that matches `page` | the page, and the workload wakes | forwarded; the page if pods fail before one responds |
//! | matches `placeholder` | the placeholder, and the workload wakes | forwarded |
//! | any other | held; after a time, sent to another Service ([`fallback`]) | forwarded |
//!
//! An uncounted request does not wake the workload. If it finds no pod after all, it gets its static response.
//!
//! A paused workload without pods does not wake, so no response may say that it does. A browser's page says that the
//! workload is paused, unless there is a fallback. `placeholder` does not apply ([`Answers::decide_paused`]).
//!
//! A browser's page load is a GET that prefers HTML, for a window that a person looks at. Requests of scripts and for
//! parts of another page do not match ([`matching`]). gRPC calls get no placeholder, because a gRPC client cannot read
//! a plain HTTP body.
//!
//! # Not here
//!
//! Sockets, counts and bounds: [`crate::layers::answers`].

pub(crate) mod fallback;
pub(crate) mod fallback_addresses;
pub(crate) mod fixed;
pub(crate) mod matching;
pub(crate) mod page;
pub(crate) mod wakes;

use common_api::zeroscaler::{self, AnswerMode};
use fallback::Fallback;
use fixed::Fixed;
use http::{HeaderMap, Method};
use matching::Matching;
use page::Page;
use std::sync::Arc;

/// Path suffix of a page's event stream. It follows the page's own path, so that proxies that route by prefix send both
/// to the same workload.
pub(crate) const EVENTS: &str = "/.zeroscale/wake";

/// Responses that one workload gives without a pod.
#[derive(Debug)]
pub(crate) struct Answers {
    page: Option<(Matching, OwnPage)>,
    placeholder: Option<(Matching, Fixed)>,
    fixed: Vec<Static>,
    fallback: Option<Arc<Fallback>>,
}

/// Page of the workload's ZeroScaler. `None`: browsers see the page of the cluster (ConfigMap `config-page`).
pub(crate) type OwnPage = Option<Arc<Page>>;

#[derive(Debug, PartialEq)]
pub(crate) struct Static {
    matching: Matching,
    pub(crate) answer: Arc<Fixed>,
    always: bool,
    keeps_awake: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Answer<'a> {
    /// Send the request to a pod, or hold it until there is one.
    Forward,
    /// Like `Forward`, but do not count the request as load.
    ForwardUncounted,
    /// Send this response without waking the workload.
    Static(&'a Fixed),
    /// Send the page and wake the workload.
    Page(&'a OwnPage),
    /// Send the event stream that tells a page when the workload is ready.
    Events,
    /// Send this response and wake the workload.
    Placeholder(&'a Fixed),
}

/// Parts of a request that the rule depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// Path, without the query.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

impl Answers {
    pub(crate) fn new(answers: &zeroscaler::Answers) -> Self {
        let zeroscaler::Answers { page, placeholder, fixed, fallback } = answers;
        let placeholder = placeholder
            .as_ref()
            .map(|placeholder| (Matching::new(&placeholder.matching, &[]), Fixed::placeholder(&placeholder.response)));
        let fixed = fixed.iter().map(|answer| Static {
            matching: Matching::new(&answer.matching, &[Method::GET, Method::HEAD]),
            answer: Arc::new(Fixed::new(&answer.response)),
            always: answer.answer == AnswerMode::Always,
            keeps_awake: answer.keeps_awake,
        });
        let page = page.as_ref().map(|page| {
            let own_page = page.html.as_deref().map(|html| Arc::new(Page::new(Some(html))));
            (Matching::new(&page.matching, &[Method::GET]), own_page)
        });
        Self {
            page,
            placeholder,
            fixed: fixed.collect(),
            fallback: fallback.as_ref().and_then(Fallback::new).map(Arc::new),
        }
    }

    pub(crate) fn with_addresses_of(mut self, former: Option<&Self>) -> Self {
        let former = former.and_then(|former| former.fallback.as_deref());
        if let Some((own, former)) = self.fallback.as_mut().and_then(Arc::get_mut).zip(former) {
            own.keep_addresses(former);
        }
        self
    }

    /// Returns the fallback for a request that finds no ready pod and waits too long, if it may take the request.
    pub(crate) fn fallback(&self, request: Request<'_>) -> Option<&Arc<Fallback>> {
        self.fallback.as_ref().filter(|fallback| fallback.takes(request))
    }

    pub(crate) fn static_for(&self, request: Request<'_>) -> Option<&Static> {
        self.fixed.iter().find(|entry| entry.matching.matches(request))
    }

    /// Returns the page for a browser whose request no pod can serve.
    pub(crate) fn page(&self, request: Request<'_>) -> Option<&OwnPage> {
        let (matching, page) = self.page.as_ref()?;
        (matching::is_for_a_window(request) && matching.matches(request)).then_some(page)
    }

    /// Decides about a request to a workload that is paused and has no pod. Nothing wakes it.
    pub(crate) fn decide_paused(&self, request: Request<'_>) -> Answer<'_> {
        match self.decide(request, true) {
            Answer::Page(_) if self.fallback(request).is_some() => Answer::Forward,
            Answer::Placeholder(_) => Answer::Forward,
            other => other,
        }
    }

    /// Decides about a request. `is_cold`: no pod can take requests.
    pub(crate) fn decide(&self, request: Request<'_>, is_cold: bool) -> Answer<'_> {
        let has_page = self.page.is_some();
        if has_page && request.method == Method::GET && request.path.ends_with(EVENTS) {
            return Answer::Events;
        }
        if let Some(found) = self.static_for(request) {
            return match (is_cold || found.always, found.keeps_awake) {
                (true, _) => Answer::Static(&found.answer),
                (false, true) => Answer::Forward,
                (false, false) => Answer::ForwardUncounted,
            };
        }
        if !is_cold {
            return Answer::Forward;
        }
        if let Some(page) = self.page(request) {
            return Answer::Page(page);
        }
        match &self.placeholder {
            Some((matching, fixed)) if matching.matches(request) && !matching::is_grpc(request.headers) => {
                Answer::Placeholder(fixed)
            }
            _ => Answer::Forward,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn answers(yaml: &str) -> Answers {
        let wake: zeroscaler::Wake = serde_yaml_ng::from_str(yaml).expect(yaml);
        Answers::new(&wake.answers(None).expect("something"))
    }

    fn headers(fields: &str) -> HeaderMap {
        let field = |line: &str| {
            let (name, value) = line.split_once(": ").expect("a field");
            (HeaderName::try_from(name).expect("a name"), HeaderValue::try_from(value).expect("a value"))
        };
        fields.split("; ").filter(|line| !line.is_empty()).map(field).collect()
    }

    fn word(answers: &Answers, method: &str, path: &str, fields: &str, is_cold: bool) -> &'static str {
        let (method, headers) = (Method::from_bytes(method.as_bytes()).expect("a method"), headers(fields));
        match answers.decide(Request { method: &method, path, headers: &headers }, is_cold) {
            Answer::Forward => "forward",
            Answer::ForwardUncounted => "uncounted",
            Answer::Static(_) => "static",
            Answer::Page(_) => "page",
            Answer::Events => "events",
            Answer::Placeholder(_) => "placeholder",
        }
    }

    const FIREFOX: &str = "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

    /// Goal: only a browser's page load gets the page; with ready pods, every request goes to the workload.
    #[test]
    fn only_page_loads_get_the_page_and_other_requests_are_held() {
        let page = answers("page: {}");
        let chromium = "accept: text/html,application/xhtml+xml,application/xml,*/*; sec-fetch-dest: document; \
                        sec-fetch-mode: navigate; sec-fetch-site: none";
        let rows = [
            ("GET", "/", FIREFOX, "page"),
            ("GET", "/a", chromium, "page"),
            ("GET", "/a", "accept: text/html; sec-fetch-dest: iframe; sec-fetch-mode: navigate", "page"),
            ("GET", "/", "", "forward"),
            ("GET", "/", "accept: */*", "forward"),
            ("GET", "/", "accept: application/json,text/html", "forward"),
            ("GET", "/", "accept: text/html; sec-fetch-dest: image; sec-fetch-mode: no-cors", "forward"),
            ("GET", "/", "accept: text/html; sec-fetch-dest: empty; sec-fetch-mode: cors", "forward"),
            ("GET", "/", "accept: text/html; x-requested-with: XMLHttpRequest", "forward"),
            ("GET", "/", "accept: text/html; upgrade: websocket", "forward"),
            ("GET", "/", "accept: text/html; range: bytes=0-", "forward"),
            ("POST", "/", FIREFOX, "forward"),
            ("HEAD", "/", FIREFOX, "forward"),
            ("GET", "/a/.zeroscale/wake", "", "events"),
            ("POST", "/a/.zeroscale/wake", "", "forward"),
        ];
        for (method, path, fields, expected) in rows {
            assert_eq!(word(&page, method, path, fields, true), expected, "{method} {path} {fields}");
        }
        assert_eq!(word(&page, "GET", "/", FIREFOX, false), "forward");
        assert_eq!(word(&page, "GET", "/.zeroscale/wake", "", false), "events");
        let none = answers("placeholder: {response: {}}");
        assert_eq!(word(&none, "GET", "/.zeroscale/wake", "", false), "forward", "reserved only with a page");
    }

    /// Goal: the rules apply in the order of the table, and each response goes only to the requests it matches.
    #[test]
    fn the_first_matching_rule_answers() {
        let all = answers(
            "{page: {match: {paths: [/, /app/*]}}, \
              placeholder: {match: {methods: [GET, POST], accept: [application/json]}, response: {}}, \
              static: [{match: {paths: [/healthz]}, response: {}}, \
                       {match: {paths: [/robots.txt]}, response: {}, answer: Always}, \
                       {match: {paths: [/live], headers: [{name: x-probe, value: '1'}]}, response: {}, keepsAwake: true}]}",
        );
        let rows = [
            ("GET", "/healthz", "", "static", "uncounted"),
            ("HEAD", "/healthz", FIREFOX, "static", "uncounted"),
            ("POST", "/healthz", "", "forward", "forward"),
            ("GET", "/robots.txt", "", "static", "static"),
            ("GET", "/live", "x-probe: 1", "static", "forward"),
            ("GET", "/live", "x-probe: 2", "forward", "forward"),
            ("GET", "/", FIREFOX, "page", "forward"),
            ("GET", "/app/x", FIREFOX, "page", "forward"),
            ("GET", "/app", FIREFOX, "forward", "forward"),
            ("GET", "/x", "accept: application/json", "placeholder", "forward"),
            ("POST", "/", "accept: text/plain, application/json", "placeholder", "forward"),
            ("DELETE", "/x", "accept: application/json", "forward", "forward"),
            ("POST", "/x", "accept: application/json; content-type: application/grpc", "forward", "forward"),
            ("GET", "/x", "accept: */*", "forward", "forward"),
        ];
        for (method, path, fields, asleep, awake) in rows {
            assert_eq!(word(&all, method, path, fields, true), asleep, "{method} {path} {fields}, asleep");
            assert_eq!(word(&all, method, path, fields, false), awake, "{method} {path} {fields}, awake");
        }
    }
}
