//! What is answered without a pod: which request gets what, as a pure rule.
//!
//! # The rule, in this order
//!
//! | request | no pod is ready | pods are ready |
//! |---|---|---|
//! | the page's own stream of events | the stream | the stream, which says so and ends |
//! | one of `static` | its answer; nobody wakes | forwarded, uncounted unless told to; its answer with `Always` |
//! | a browser's, to see a page | the page, and the workload wakes | forwarded; the page if pods fail before one answers |
//! | one of `placeholder` | its answer, and the workload wakes | forwarded |
//! | any other | held; after a time, another Service ([`fallback`]) | forwarded |
//!
//! What was forwarded uncounted and finds no pod any more gets its answer after all: it would not wake the workload.
//!
//! Of a workload that is paused and has no pods nothing says that it wakes: a browser's page says that it is paused, unless
//! another Service answers; `placeholder` has no part ([`Answers::to_paused`]).
//!
//! A browser's request is a GET for HTML before anything else, by somebody who looks at a window: no script's, and none
//! for a part of another page ([`matching`]). gRPC calls get no placeholder: what they read is no HTTP body.
//!
//! # Not here
//!
//! Sockets, counts and bounds: [`crate::layers::answers`].

pub(crate) mod fallback;
pub(crate) mod fixed;
pub(crate) mod found;
pub(crate) mod matching;
pub(crate) mod page;
pub(crate) mod wakes;

use common_api::zeroscaler::{self, AnswerMode};
use fallback::Fallback;
use fixed::Fixed;
use http::{HeaderMap, Method};
use matching::{Asked, Matching};
use page::Page;
use std::sync::Arc;

/// Where a page's stream of events is: below its own path, so that whoever routes by prefix routes it alike.
pub(crate) const EVENTS: &str = "/.zeroscale/wake";

/// What one workload answers without a pod.
#[derive(Debug)]
pub(crate) struct Answers {
    page: Option<(Matching, PageChoice)>,
    placeholder: Option<(Matching, Fixed)>,
    fixed: Vec<Static>,
    fallback: Option<Arc<Fallback>>,
}

/// The page that browsers see.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PageChoice {
    /// The workload's own.
    Own(Arc<Page>),
    /// The cluster's.
    Cluster,
}

#[derive(Debug, PartialEq)]
struct Static {
    matching: Matching,
    answer: Arc<Fixed>,
    always: bool,
    keeps_awake: bool,
}

/// What becomes of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer<'a> {
    /// It goes to a pod, or waits for one.
    Forward,
    /// The same, and it is no load.
    ForwardUncounted,
    /// This, and nobody wakes.
    Static(&'a Fixed),
    /// The page, and the workload wakes.
    Page(&'a PageChoice),
    /// What tells a page when the workload is ready.
    Events,
    /// This, and the workload wakes.
    Placeholder(&'a Fixed),
}

/// What an answer depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Method.
    pub(crate) method: &'a Method,
    /// Path, without the query.
    pub(crate) path: &'a str,
    /// Headers.
    pub(crate) headers: &'a HeaderMap,
}

impl PageChoice {
    fn of(said: &zeroscaler::Page) -> Self {
        said.html.as_deref().map_or(Self::Cluster, |html| Self::Own(Arc::new(Page::new(Some(html)))))
    }
}

impl Answers {
    /// Reads the responses of a ZeroScaler.
    pub(crate) fn new(said: &zeroscaler::Answers) -> Self {
        let zeroscaler::Answers { page, placeholder, fixed, fallback } = said;
        let placeholder = placeholder
            .as_ref()
            .map(|said| (Matching::new(&said.matching, Asked::Anything), Fixed::placeholder(&said.response)));
        let fixed = fixed.iter().map(|said| Static {
            matching: Matching::new(&said.matching, Asked::Read),
            answer: Arc::new(Fixed::new(&said.response)),
            always: said.answer == AnswerMode::Always,
            keeps_awake: said.keeps_awake,
        });
        Self {
            page: page.as_ref().map(|said| (Matching::new(&said.matching, Asked::Get), PageChoice::of(said))),
            placeholder,
            fixed: fixed.collect(),
            fallback: fallback.as_ref().and_then(Fallback::new).map(Arc::new),
        }
    }

    /// The same, with what was found of the former ones.
    pub(crate) fn following(mut self, former: Option<&Self>) -> Self {
        let former = former.and_then(|former| former.fallback.as_deref());
        if let Some((own, former)) = self.fallback.as_mut().and_then(Arc::get_mut).zip(former) {
            own.follow(former);
        }
        self
    }

    /// Who answers a request that is forwarded while no pod is ready, if it has to wait for too long.
    pub(crate) fn fallback(&self, request: Request<'_>) -> Option<&Arc<Fallback>> {
        self.fallback.as_ref().filter(|fallback| fallback.takes(request))
    }

    /// The static answer of a request, where it gets one.
    pub(crate) fn fixed(&self, request: Request<'_>) -> Option<&Arc<Fixed>> {
        self.static_for(request).map(|found| &found.answer)
    }

    fn static_for(&self, request: Request<'_>) -> Option<&Static> {
        self.fixed.iter().find(|entry| entry.matching.matches(request))
    }

    /// The page that a browser sees where it cannot see the workload.
    pub(crate) fn page(&self, request: Request<'_>) -> Option<&PageChoice> {
        let (matching, page) = self.page.as_ref()?;
        (matching::is_for_a_window(request) && matching.matches(request)).then_some(page)
    }

    /// What a request gets of a workload that is paused and has no pod: nobody wakes it.
    pub(crate) fn to_paused(&self, request: Request<'_>) -> Answer<'_> {
        match self.to(request, true) {
            Answer::Page(_) if self.fallback(request).is_some() => Answer::Forward,
            Answer::Placeholder(_) => Answer::Forward,
            other => other,
        }
    }

    /// What a request gets. `is_cold`: no pod can be sent to.
    pub(crate) fn to(&self, request: Request<'_>, is_cold: bool) -> Answer<'_> {
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
        match answers.to(Request { method: &method, path, headers: &headers }, is_cold) {
            Answer::Forward => "forward",
            Answer::ForwardUncounted => "uncounted",
            Answer::Static(_) => "static",
            Answer::Page(_) => "page",
            Answer::Events => "events",
            Answer::Placeholder(_) => "placeholder",
        }
    }

    const FIREFOX: &str = "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

    /// Goal: who looks at a window gets the page, and nobody else does; awake, everybody gets the workload.
    #[test]
    fn a_page_is_for_people_and_programs_go_on_being_held() {
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
        assert_eq!(word(&none, "GET", "/.zeroscale/wake", "", false), "forward", "reserved with a page alone");
    }

    /// Goal: the order of the table, and that each answer is for the requests it names.
    #[test]
    fn the_first_that_a_request_matches_answers_it() {
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
