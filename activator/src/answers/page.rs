//! The page that a browser shows while a workload wakes.
//!
//! It is text with a few names in double braces, which are replaced; every value is escaped. The page needs nothing from
//! anywhere: style and script stand in it, and the one of our own says so to the browser (`Content-Security-Policy`).
//!
//! | name | becomes |
//! |---|---|
//! | `{{workload}}` | the name of the ZeroScaler |
//! | `{{since}}` | when the wake began, as RFC 3339 has it |
//! | `{{elapsed}}` | whole seconds since then |
//! | `{{typical}}` | how many seconds it usually takes: the middle one of the last wakes; empty if none is known |
//! | `{{retry}}` | seconds until a browser without scripts asks again |
//! | `{{state}}` | `waking`; or `paused`, where nobody wakes it. HTML without this name is shown while it wakes alone |
//! | `{{cause}}` | why its pods do not serve yet, and what helps; empty while nothing is wrong |
//! | `{{script}}` | what replaces the page by the workload's answer; at the end if it is named nowhere |
//!
//! The script opens a stream of events below the page's own path ([`super::EVENTS`]), and loads the page again when that
//! says `ready`. Where there is no stream it loads the page again after `{{retry}}` seconds, and so does a browser
//! without scripts. It writes the seconds so far into each element with `data-zeroscale="elapsed"`, and `failed` into
//! `data-zeroscale` of the root when the workload's pods fail, and why into each with `data-zeroscale="cause"`.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use std::sync::LazyLock;
use std::time::Duration;

/// The page of our own.
const OWN: &str = include_str!("page.html");
/// What replaces it.
const SCRIPT: &str = include_str!("script.html");
/// Nothing from anywhere but the stream of events of the same host.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'";

/// How soon a browser that has no stream asks again: a quarter of what is left, within these bounds.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// The same, where nobody knows how long it takes.
const RETRY_UNKNOWN: Duration = Duration::from_secs(5);
/// The same, where nobody wakes it.
const RETRY_PAUSED: Duration = Duration::from_secs(10);

/// What is shown of a paused workload whose own page could not say so.
static OF_PAUSED: LazyLock<Page> = LazyLock::new(|| Page::new(None));

/// A page, ready to be filled in.
#[derive(Debug, PartialEq)]
pub struct Page {
    pieces: Vec<Piece>,
    is_own: bool,
    /// Whether it knows of workloads that are paused.
    knows_paused: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Value(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Workload,
    Since,
    Elapsed,
    Typical,
    Retry,
    State,
    Cause,
}

const NAMES: [(&str, Name); 7] = [
    ("{{workload}}", Name::Workload),
    ("{{since}}", Name::Since),
    ("{{elapsed}}", Name::Elapsed),
    ("{{typical}}", Name::Typical),
    ("{{retry}}", Name::Retry),
    ("{{state}}", Name::State),
    ("{{cause}}", Name::Cause),
];
const SCRIPT_NAME: &str = "{{script}}";

/// What a page says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wake<'a> {
    /// Name of the ZeroScaler.
    pub(crate) workload: &'a str,
    /// How far it is; none: it is paused, and nobody wakes it.
    pub(crate) moment: Option<Moment<'a>>,
}

/// How far a wake is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    /// When the wake began, as RFC 3339 has it.
    pub(crate) since: &'a str,
    /// How long ago that is.
    pub(crate) elapsed: Duration,
    /// How long it usually takes, if that is known.
    pub(crate) typical: Option<Duration>,
    /// Why its pods do not serve, if that is known.
    pub(crate) cause: Option<&'a str>,
}

impl Page {
    /// Reads HTML; none: our own.
    pub(crate) fn new(html: Option<&str>) -> Self {
        let text = html.unwrap_or(OWN);
        // Its end is a place that every browser takes a script in.
        let knows_paused = text.contains("{{state}}");
        let end = if text.contains(SCRIPT_NAME) { "" } else { SCRIPT_NAME };
        let text = format!("{text}{end}").replace(SCRIPT_NAME, SCRIPT);
        Self { pieces: pieces(&text), is_own: html.is_none(), knows_paused }
    }

    /// Itself, or one that can say what is so.
    fn fit(&self, wake: Wake<'_>) -> &Self {
        if wake.moment.is_some() || self.knows_paused { self } else { &OF_PAUSED }
    }

    /// The page as it is now.
    pub(crate) fn render(&self, wake: Wake<'_>) -> Bytes {
        let mut text = String::new();
        for piece in &self.fit(wake).pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Value(name) => wake.write(*name, &mut text),
            }
        }
        text.into()
    }

    /// What its head says.
    pub(crate) fn headers(&self, wake: Wake<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(RETRY_AFTER, wake.retry().as_secs().into());
        if self.fit(wake).is_own {
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        }
        headers
    }
}

impl Wake<'_> {
    /// After what time a browser that has no stream should ask again.
    pub(crate) fn retry(self) -> Duration {
        match self.moment {
            None => RETRY_PAUSED,
            Some(Moment { typical: None, .. }) => RETRY_UNKNOWN,
            Some(Moment { typical: Some(typical), elapsed, .. }) => {
                (typical.saturating_sub(elapsed) / 4).clamp(RETRY.0, RETRY.1)
            }
        }
    }

    fn write(self, name: Name, text: &mut String) {
        match name {
            Name::Workload => escape(self.workload, text),
            Name::State => text.push_str(if self.moment.is_some() { "waking" } else { "paused" }),
            Name::Since => escape(self.moment.map(|moment| moment.since).unwrap_or_default(), text),
            Name::Cause => escape(self.moment.and_then(|moment| moment.cause).unwrap_or_default(), text),
            Name::Elapsed => {
                text.push_str(&self.moment.map_or(0, |moment| moment.elapsed.as_secs()).to_string());
            }
            Name::Typical => {
                if let Some(typical) = self.moment.and_then(|moment| moment.typical) {
                    text.push_str(&whole_seconds(typical).to_string());
                }
            }
            Name::Retry => text.push_str(&self.retry().as_secs().to_string()),
        }
    }
}

/// At least one: nobody is told that it takes no time.
fn whole_seconds(length: Duration) -> u64 {
    (length.as_millis().div_ceil(1000)).try_into().unwrap_or(u64::MAX).max(1)
}

fn pieces(mut rest: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    loop {
        let next =
            NAMES.iter().filter_map(|(word, name)| Some((rest.find(word)?, *word, *name))).min_by_key(|(at, ..)| *at);
        let Some((at, word, name)) = next else {
            pieces.push(Piece::Text(rest.to_owned()));
            return pieces;
        };
        pieces.push(Piece::Text(rest[..at].to_owned()));
        pieces.push(Piece::Value(name));
        rest = &rest[at + word.len()..];
    }
}

/// As text, in an element, and in an attribute with quotes of either kind.
fn escape(value: &str, text: &mut String) {
    for character in value.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(workload: &str) -> Wake<'_> {
        Wake { workload, moment: Some(moment(Some(11_001), 2_900)) }
    }

    fn moment(typical_ms: Option<u64>, elapsed_ms: u64) -> Moment<'static> {
        let (typical, elapsed) = (typical_ms.map(Duration::from_millis), Duration::from_millis(elapsed_ms));
        Moment { since: "2026-01-02T03:04:05Z", elapsed, typical, cause: Some("<none>") }
    }

    fn text(page: &Page, wake: Wake<'_>) -> String {
        String::from_utf8(page.render(wake).to_vec()).expect("text")
    }

    /// Goal: names are replaced, values escaped, and nothing else is touched: neither braces of a script, nor a name that a
    /// value brings along.
    #[test]
    fn names_are_replaced_and_values_escaped() {
        let html = "<i title='{{workload}}'>{{workload}}</i> {{since}} {{elapsed}} {{typical}} {{retry}} {{cause}} {{other}} {{{{x}}";
        let page = Page::new(Some(&format!("{html}{{{{script}}}}<!-- end -->")));
        let text = text(&page, wake("a<b>\"'&{{since}}"));
        let name = "a&lt;b&gt;&quot;&#39;&amp;{{since}}";
        let expected = format!(
            "<i title='{name}'>{name}</i> 2026-01-02T03:04:05Z 2 12 2 &lt;none&gt; {{{{other}}}} {{{{{{{{x}}}}"
        );
        assert!(text.starts_with(&expected) && text.ends_with("<!-- end -->"), "{text}");
        assert!(text.contains("EventSource"));
        assert!(!page.headers(wake("a")).contains_key(CONTENT_SECURITY_POLICY), "whose HTML it is says what it loads");
    }

    #[test]
    fn a_page_that_names_no_script_has_it_at_its_end() {
        let text = text(&Page::new(Some("<p>hold on")), wake("a"));
        assert!(text.starts_with("<p>hold on<") && text.matches("EventSource").count() >= 1, "{text}");
    }

    /// Goal: the page of our own needs nothing from anywhere, and works without scripts.
    #[test]
    fn our_own_page_is_whole_by_itself() {
        let page = Page::new(None);
        let text = text(&page, wake("shop"));
        for wanted in [
            "<!doctype html>",
            "lang=\"en\"",
            "width=device-width",
            "color-scheme",
            "prefers-reduced-motion",
            "<noscript><meta http-equiv=\"refresh\" content=\"2\"",
            "shop",
            "12 s",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        for foreign in ["http://", "https://", "src=", "url(", "@import", "{{"] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        let headers = page.headers(wake("shop"));
        assert_eq!(
            (&headers[CACHE_CONTROL], &headers[RETRY_AFTER]),
            (&HeaderValue::from_static("no-store"), &HeaderValue::from_static("2"))
        );
        let unknown = Wake { moment: Some(moment(None, 2_900)), ..wake("shop") };
        assert!(String::from_utf8_lossy(&page.render(unknown)).contains("data-typical=\"\">"));
    }

    /// Goal: a browser that does not know `:has` drops the rule that it stands in, and no other selector with it: the
    /// page would say of each workload that it does not start.
    #[test]
    fn a_selector_that_not_every_browser_knows_has_a_rule_of_its_own() {
        let selectors: Vec<_> = OWN.split('{').map(|text| text.rsplit('}').next().unwrap_or(text)).collect();
        let unknown: Vec<_> = selectors.iter().filter(|selector| selector.contains(":has(")).collect();
        assert!(!unknown.is_empty() && unknown.iter().all(|selector| !selector.contains(',')), "{unknown:?}");
        assert!(OWN.lines().any(|rule| rule.starts_with(".failed, ") && rule.ends_with("{ display: none }")));
    }

    #[test]
    fn who_has_no_stream_asks_again_the_sooner_the_less_is_left() {
        let retry = |typical: u64, elapsed: u64| {
            Wake { moment: Some(moment(Some(typical * 1000), elapsed * 1000)), ..wake("a") }.retry().as_secs()
        };
        assert_eq!([retry(60, 0), retry(60, 30), retry(60, 90), retry(1000, 0), retry(1, 0)], [15, 7, 2, 30, 2]);
        assert_eq!(Wake { moment: Some(moment(None, 0)), ..wake("a") }.retry(), RETRY_UNKNOWN);
    }

    /// Goal: nobody is told that a paused workload wakes, by our page or by one that knows of it; where one does not, ours
    /// says so, with the policy of ours.
    #[test]
    fn a_paused_workload_is_not_said_to_wake() {
        let paused = Wake { workload: "shop", moment: None };
        assert_eq!(paused.retry(), RETRY_PAUSED);
        for html in [None, Some("<p>{{workload}} wakes")] {
            let page = Page::new(html);
            let shown = text(&page, paused);
            assert!(shown.contains("data-zeroscale=\"paused\"") && shown.contains("shop is paused"), "{shown}");
            assert!(page.headers(paused).contains_key(CONTENT_SECURITY_POLICY));
        }
        let knows = Page::new(Some("<p class={{state}}>{{workload}}"));
        assert!(text(&knows, paused).starts_with("<p class=paused>shop<"));
        assert!(!knows.headers(paused).contains_key(CONTENT_SECURITY_POLICY));
        assert!(text(&Page::new(None), wake("shop")).contains("data-zeroscale=\"waking\""));
    }
}
