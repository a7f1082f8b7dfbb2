//! Page that a browser shows while a workload wakes.
//!
//! The page is a template. Names in double braces are replaced, and every value is escaped. The page loads nothing:
//! style and script are inline, and the built-in page enforces this with `Content-Security-Policy`.
//!
//! | name | replacement |
//! |---|---|
//! | `{{workload}}` | name of the ZeroScaler |
//! | `{{since}}` | start of the wake, in RFC 3339 |
//! | `{{elapsed}}` | whole seconds since then |
//! | `{{typical}}` | typical duration in seconds: the median of the last wakes; empty if none is known |
//! | `{{retry}}` | seconds until a browser without scripts reloads |
//! | `{{state}}` | `waking`, or `paused` if nothing wakes it. A template without this name is shown only while the workload wakes |
//! | `{{cause}}` | reason why its pods do not serve yet, and a remedy; empty if nothing is wrong |
//! | `{{script}}` | script that replaces the page with the workload's response; appended if the template does not name it |
//!
//! The script opens an event stream below the page's own path ([`super::EVENTS`]) and reloads the page on the event
//! `ready`. Without a stream it reloads after `{{retry}}` seconds, as does a browser without scripts. It writes the
//! elapsed seconds into each element with `data-zeroscale="elapsed"`. If the workload's pods fail, it sets
//! `data-zeroscale` of the root to `failed` and writes the reason into each element with `data-zeroscale="cause"`.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use std::sync::LazyLock;
use std::time::Duration;

const BUILT_IN_HTML: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("script.html");
/// Forbids every load except the event stream of the same host.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'";

/// Bounds of the reload interval for a browser without a stream. The interval is a quarter of the remaining time.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// Reload interval if the typical duration is unknown.
const RETRY_UNKNOWN: Duration = Duration::from_secs(5);
/// Reload interval if the workload is paused.
const RETRY_PAUSED: Duration = Duration::from_secs(10);

/// Built-in page, for a paused workload whose own page lacks `{{state}}`.
static BUILT_IN: LazyLock<Page> = LazyLock::new(|| Page::new(None));

/// Page template.
#[derive(Debug, PartialEq)]
pub struct Page {
    html: String,
    is_built_in: bool,
    /// The template contains `{{state}}`, so it can show that a workload is paused.
    knows_paused: bool,
}

const SCRIPT_NAME: &str = "{{script}}";

/// Values for one rendering of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wake<'a> {
    pub(crate) workload: &'a str,
    /// Progress of the wake; `None` if the workload is paused.
    pub(crate) progress: Option<WakeProgress<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeProgress<'a> {
    /// Start of the wake, in RFC 3339.
    pub(crate) since: &'a str,
    /// Time since then.
    pub(crate) elapsed: Duration,
    pub(crate) typical: Option<Duration>,
    /// Reason why the workload's pods do not serve, if known.
    pub(crate) cause: Option<&'a str>,
}

impl Page {
    /// Prepares a template; `None` selects the built-in page.
    pub(crate) fn new(html: Option<&str>) -> Self {
        let text = html.unwrap_or(BUILT_IN_HTML);
        let knows_paused = text.contains("{{state}}");
        // Every browser runs a script at the end of the document.
        let end = if text.contains(SCRIPT_NAME) { "" } else { SCRIPT_NAME };
        let text = format!("{text}{end}").replace(SCRIPT_NAME, SCRIPT);
        Self { html: text, is_built_in: html.is_none(), knows_paused }
    }

    /// Returns this page, or the built-in one if this page cannot show that the workload is paused.
    fn page_for(&self, wake: Wake<'_>) -> &Self {
        if wake.progress.is_some() || self.knows_paused { self } else { &BUILT_IN }
    }

    pub(crate) fn render(&self, wake: Wake<'_>) -> Bytes {
        let html = self.page_for(wake).html.clone();
        wake.values().iter().fold(html, |text, (name, value)| text.replace(name, &escape(value))).into()
    }

    pub(crate) fn headers(&self, wake: Wake<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(RETRY_AFTER, wake.retry().as_secs().into());
        if self.page_for(wake).is_built_in {
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        }
        headers
    }
}

impl Wake<'_> {
    /// Returns the interval after which a browser without a stream should reload.
    pub(crate) fn retry(self) -> Duration {
        match self.progress {
            None => RETRY_PAUSED,
            Some(WakeProgress { typical: None, .. }) => RETRY_UNKNOWN,
            Some(WakeProgress { typical: Some(typical), elapsed, .. }) => {
                (typical.saturating_sub(elapsed) / 4).clamp(RETRY.0, RETRY.1)
            }
        }
    }

    fn values(&self) -> [(&'static str, String); 7] {
        let progress = self.progress.as_ref();
        let typical = progress.and_then(|progress| progress.typical).map(|typical| whole_seconds(typical).to_string());
        [
            ("{{workload}}", self.workload.to_owned()),
            ("{{state}}", if progress.is_some() { "waking" } else { "paused" }.to_owned()),
            ("{{since}}", progress.map_or("", |progress| progress.since).to_owned()),
            ("{{cause}}", progress.and_then(|progress| progress.cause).unwrap_or_default().to_owned()),
            ("{{elapsed}}", progress.map_or(0, |progress| progress.elapsed.as_secs()).to_string()),
            ("{{typical}}", typical.unwrap_or_default()),
            ("{{retry}}", self.retry().as_secs().to_string()),
        ]
    }
}

/// Rounds up to whole seconds, at least one: a page never claims that a wake takes no time.
fn whole_seconds(length: Duration) -> u64 {
    (length.as_millis().div_ceil(1000)).try_into().unwrap_or(u64::MAX).max(1)
}

/// Escapes `value` for element content and for attributes in single or double quotes. Braces are escaped, too, so that
/// no name in a value is replaced.
fn escape(value: &str) -> String {
    let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    value.replace('"', "&quot;").replace('\'', "&#39;").replace('{', "&#123;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(workload: &str) -> Wake<'_> {
        Wake { workload, progress: Some(progress(Some(11_001), 2_900)) }
    }

    fn progress(typical_ms: Option<u64>, elapsed_ms: u64) -> WakeProgress<'static> {
        let (typical, elapsed) = (typical_ms.map(Duration::from_millis), Duration::from_millis(elapsed_ms));
        WakeProgress { since: "2026-01-02T03:04:05Z", elapsed, typical, cause: Some("<none>") }
    }

    fn text(page: &Page, wake: Wake<'_>) -> String {
        String::from_utf8(page.render(wake).to_vec()).expect("text")
    }

    /// Goal: names are replaced and values escaped. Other braces, such as those of a script, and names inside a value
    /// stay. A template that does not name the script gets it at its end.
    #[test]
    fn names_are_replaced_and_values_escaped() {
        let html = "<i title='{{workload}}'>{{workload}}</i> {{since}} {{elapsed}} {{typical}} {{retry}} {{cause}} {{other}} {{{{x}}";
        let page = Page::new(Some(&format!("{html}{{{{script}}}}<!-- end -->")));
        let text = text(&page, wake("a<b>\"'&{{since}}"));
        let name = "a&lt;b&gt;&quot;&#39;&amp;&#123;&#123;since}}";
        let expected = format!(
            "<i title='{name}'>{name}</i> 2026-01-02T03:04:05Z 2 12 2 &lt;none&gt; {{{{other}}}} {{{{{{{{x}}}}"
        );
        assert!(text.starts_with(&expected) && text.ends_with("<!-- end -->"), "{text}");
        assert!(text.contains("EventSource"));
        assert!(!page.headers(wake("a")).contains_key(CONTENT_SECURITY_POLICY), "no policy for own HTML");
        let text = self::text(&Page::new(Some("<p>hold on")), wake("a"));
        assert!(text.starts_with("<p>hold on<") && text.contains("EventSource"), "appended if not named: {text}");
    }

    #[test]
    fn the_built_in_page_loads_nothing_and_works_without_scripts() {
        let page = Page::new(None);
        let text = text(&page, wake("shop"));
        let all = "<!doctype html>|lang=\"en\"|width=device-width|color-scheme|prefers-reduced-motion|shop|12 s|\
                   <noscript><meta http-equiv=\"refresh\" content=\"2\"";
        for wanted in all.split('|') {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        for foreign in ["http://", "https://", "src=", "url(", "@import", "{{"] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        let headers = page.headers(wake("shop"));
        assert_eq!([&headers[CACHE_CONTROL], &headers[RETRY_AFTER]], ["no-store", "2"]);
        let unknown = Wake { progress: Some(progress(None, 2_900)), ..wake("shop") };
        assert!(String::from_utf8_lossy(&page.render(unknown)).contains("data-typical=\"\">"));
    }

    /// Goal: a browser that does not know `:has` drops only the rule that uses it. Another selector in that rule would
    /// be dropped too, and the page would show every workload as failed.
    #[test]
    fn a_selector_with_has_is_alone_in_its_rule() {
        let selectors: Vec<_> = BUILT_IN_HTML.split('{').map(|text| text.rsplit('}').next().unwrap_or(text)).collect();
        let unknown: Vec<_> = selectors.iter().filter(|selector| selector.contains(":has(")).collect();
        assert!(!unknown.is_empty() && unknown.iter().all(|selector| !selector.contains(',')), "{unknown:?}");
        assert!(BUILT_IN_HTML.lines().any(|rule| rule.starts_with(".failed, ") && rule.ends_with("{ display: none }")));
    }

    #[test]
    fn the_reload_interval_is_a_quarter_of_the_remaining_time() {
        let retry = |typical: u64, elapsed: u64| {
            Wake { progress: Some(progress(Some(typical * 1000), elapsed * 1000)), ..wake("a") }.retry().as_secs()
        };
        assert_eq!([retry(60, 0), retry(60, 30), retry(60, 90), retry(1000, 0), retry(1, 0)], [15, 7, 2, 30, 2]);
        assert_eq!(Wake { progress: Some(progress(None, 0)), ..wake("a") }.retry(), RETRY_UNKNOWN);
    }

    /// Goal: a template that cannot show the pause is replaced by the built-in page and its policy.
    #[test]
    fn a_page_never_says_that_a_paused_workload_wakes() {
        let paused = Wake { workload: "shop", progress: None };
        assert_eq!(paused.retry(), RETRY_PAUSED);
        for html in [None, Some("<p>{{workload}} wakes")] {
            let page = Page::new(html);
            let text = text(&page, paused);
            assert!(text.contains("data-zeroscale=\"paused\"") && text.contains("shop is paused"), "{text}");
            assert!(page.headers(paused).contains_key(CONTENT_SECURITY_POLICY));
        }
        let own = Page::new(Some("<p class={{state}}>{{workload}}"));
        assert!(text(&own, paused).starts_with("<p class=paused>shop<"));
        assert!(!own.headers(paused).contains_key(CONTENT_SECURITY_POLICY));
        assert!(text(&Page::new(None), wake("shop")).contains("data-zeroscale=\"waking\""));
    }
}
