//! Rules about single fields, in a form that both sides run: the API server as schema and CEL, the autoscaler as Rust.
//!
//! [`fields`] assigns the rules to fields. RE2 and Rust's `regex` interpret the regular expressions alike. They contain
//! no backslashes and no single quotes, so they can be used in CEL unchanged.

use super::answers::BODY_LENGTH_MAX;
use common::golang::{GoDuration, parse_duration};
use regex::Regex;
use serde_json::Value;
use std::sync::OnceLock;

/// Rule about one value.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// Text that matches a pattern.
    Text(&'static Pattern),
    /// Host name, or `*.` and a domain.
    Host,
    /// Duration within bounds.
    Span(Span),
    /// Number from the first to the second, inclusive.
    Within(f64, f64),
    /// Number above 1.
    AboveOne,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Text of at most this many characters.
    Length(i64),
    /// Number or name of a port.
    Port,
}

/// Pattern of a text.
#[derive(Debug)]
pub struct Pattern {
    pub(super) expression: &'static str,
    pub(super) length_max: i64,
    /// Expected form, in words.
    pub(super) rule: &'static str,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    const fn new(length_max: i64, expression: &'static str, rule: &'static str) -> Self {
        Self { expression, length_max, rule, compiled: OnceLock::new() }
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let short = i64::try_from(text.chars().count()).is_ok_and(|length| length <= self.length_max);
        let compiled = || self.compiled.get_or_init(|| Regex::new(self.expression).ok()).as_ref();
        short && compiled().is_some_and(|regex| regex.is_match(text))
    }
}

/// Bounds and syntax of a duration.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub(super) least: &'static str,
    pub(super) most: &'static str,
    pub(super) pattern: &'static Pattern,
    example: &'static str,
}

const fn span(least: &'static str, most: &'static str, pattern: &'static Pattern, example: &'static str) -> Check {
    Check::Span(Span { least, most, pattern, example })
}

pub(crate) static API_VERSION: Pattern = Pattern::new(
    317,
    "^([a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    "a version, or a group, a slash and a version is expected, such as apps/v1",
);
pub(crate) static KIND: Pattern = Pattern::new(63, "^[A-Za-z][A-Za-z0-9]*$", "a kind is expected, such as Deployment");
pub(crate) static OBJECT_NAME: Pattern = Pattern::new(
    253,
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
    "the name of an object is expected: a-z, 0-9, - and ., at most 253 characters",
);
pub(crate) static SERVICE_NAME: Pattern = Pattern::new(
    63,
    "^[a-z]([a-z0-9-]*[a-z0-9])?$",
    "the name of a Service is expected: a-z, 0-9 and -, beginning with a letter, at most 63 characters",
);
pub(crate) static PORT_NAME: Pattern = Pattern::new(
    63,
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    "the name of a Service's port is expected, or its number: a-z, 0-9 and -, at most 63 characters",
);
pub(crate) static PROBE: Pattern = Pattern::new(
    1024,
    "^(auto|tcp|kubernetes|http:/[!-\"$-~]*)$",
    "auto, tcp, kubernetes, or http: and a path is expected",
);
pub(crate) static HOST: Pattern = Pattern::new(
    253,
    "^([*][.])?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?([.][a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$",
    "a host in lower case is expected, or *. and a domain, without scheme and port",
);
pub(crate) static PATH: Pattern = Pattern::new(
    256,
    "^/[!-\"$-)+-~]*[*]?$",
    "a path is expected, such as /robots.txt, or a path that ends with *, such as /assets/*",
);
pub(crate) static CRON: Pattern = Pattern::new(
    128,
    "^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[A-Za-z0-9*/,#?+-]+( [A-Za-z0-9*/,#?+-]+){4})$",
    "five fields with a space between each are expected, such as 0 8 * * 1-5, or @daily",
);
pub(crate) static TIME_ZONE: Pattern = Pattern::new(
    64,
    "^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$",
    "the name of a time zone is expected, such as Europe/Berlin",
);
pub(crate) static METHOD: Pattern =
    Pattern::new(32, "^[A-Z][A-Z-]*$", "a method is expected, in capital letters, such as GET");
pub(crate) static MEDIA_TYPE: Pattern =
    Pattern::new(128, "^[a-z0-9.+-]+/[a-z0-9.+-]+$", "a media type is expected, in lower case, such as text/html");
pub(crate) static HEADER_NAME: Pattern =
    Pattern::new(128, "^[A-Za-z0-9!#$%&*+.^_`|~-]+$", "the name of a header is expected, such as Content-Type");
pub(crate) static HEADER_VALUE: Pattern =
    Pattern::new(1024, "^([!-~]([ -~]*[!-~])?)?$", "the value of a header is expected: printable ASCII");
pub(crate) static TIME: Pattern = Pattern::new(
    40,
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$",
    "a time is expected, such as 2026-01-31T08:00:00Z",
);
pub(crate) static ADDRESS: Pattern = Pattern::new(253, "(^|[.])[0-9]+$", "");
pub(crate) static DURATION: Pattern = Pattern::new(32, "^(0|([0-9]{1,6}([.][0-9]{1,9})?(ms|s|m|h))+)$", "");
pub(crate) static WHOLE_SECONDS: Pattern = Pattern::new(32, "^(0|([0-9]{1,6}(s|m|h))+)$", "");

pub(super) const HOST_LENGTH_MAX: i64 = 253;
/// Message for a text that has the form of a host but cannot be one.
pub(super) const HOST_RULE: &str = "a host must have a dot and must not be an IP address; a name without a dot is a Service of the caller's namespace, which \
     need not be listed";

/// Rules by field. `[]` stands for each item of a list, braces for each of the names in them.
const FIELDS: &[(&str, Check)] = &[
    ("spec.target.apiVersion", Check::Text(&API_VERSION)),
    ("spec.target.kind", Check::Text(&KIND)),
    ("spec.target.name", Check::Text(&OBJECT_NAME)),
    ("spec.services[].name", Check::Text(&SERVICE_NAME)),
    ("spec.concurrency", Check::Within(0.0, 1000.0)),
    ("spec.scale.min", Check::Within(0.0, INT32_MAX)),
    ("spec.scale.max", Check::Within(0.0, INT32_MAX)),
    ("spec.scale.load.concurrency", Check::Within(0.01, TARGET_MAX)),
    ("spec.scale.load.rps", Check::Within(0.01, TARGET_MAX)),
    ("spec.scale.load.utilization", Check::Within(1.0, 100.0)),
    ("spec.scale.window", span("6s", "1h", &WHOLE_SECONDS, "1m30s")),
    ("spec.scale.aggregation", Check::OneOf(&["Linear", "WeightedExponential"])),
    ("spec.scale.downDelay", span("0s", "1h", &WHOLE_SECONDS, "1m30s")),
    ("spec.scale.grace", span("1ms", "1h", &DURATION, "30s")),
    ("spec.scale.retention", span("0s", "1h", &DURATION, "1m30s")),
    ("spec.scale.initial", Check::Within(0.0, INT32_MAX)),
    ("spec.scale.activation", Check::Within(1.0, INT32_MAX)),
    ("spec.scale.panic.window", span("1s", "1h", &WHOLE_SECONDS, "6s")),
    ("spec.scale.panic.threshold", Check::Within(110.0, 1000.0)),
    ("spec.scale.rates.up", Check::AboveOne),
    ("spec.scale.rates.down", Check::AboveOne),
    ("spec.metrics[].type", Check::OneOf(&["ContainerResource", "External", "Object", "Pods", "Resource"])),
    ("spec.behavior.{scaleUp,scaleDown}.selectPolicy", Check::OneOf(SELECT_POLICIES)),
    ("spec.behavior.{scaleUp,scaleDown}.stabilizationWindowSeconds", Check::Within(0.0, 3600.0)),
    ("spec.behavior.{scaleUp,scaleDown}.policies[].type", Check::OneOf(POLICIES)),
    ("spec.behavior.{scaleUp,scaleDown}.policies[].value", Check::Within(1.0, INT32_MAX)),
    ("spec.behavior.{scaleUp,scaleDown}.policies[].periodSeconds", Check::Within(1.0, 1800.0)),
    ("spec.ports[].name", Check::Text(&PORT_NAME)),
    ("spec.ports[].protocol", Check::OneOf(&["auto", "http1", "h2c", "tcp"])),
    ("spec.ports[].wakeAfter", span("0s", "1m", &DURATION, "100ms")),
    ("spec.hosts[]", Check::Host),
    ("spec.request.state", Check::OneOf(&["Awake", "Asleep"])),
    ("spec.request.at", Check::Text(&TIME)),
    ("spec.wake.timeout", span("1ms", "720h", &DURATION, "300s")),
    ("spec.wake.maxHeld", Check::Within(1.0, INT32_MAX)),
    ("spec.wake.probe", Check::Text(&PROBE)),
    ("spec.wake.{page,placeholder,static[],fallback}.match.paths[]", Check::Text(&PATH)),
    ("spec.wake.{page,placeholder,static[],fallback}.match.methods[]", Check::Text(&METHOD)),
    ("spec.wake.{page,placeholder,static[],fallback}.match.accept[]", Check::Text(&MEDIA_TYPE)),
    ("spec.wake.{page,placeholder,static[],fallback}.match.headers[].name", Check::Text(&HEADER_NAME)),
    ("spec.wake.{page,placeholder,static[],fallback}.match.headers[].value", Check::Text(&HEADER_VALUE)),
    ("spec.wake.page.html", BODY),
    ("spec.wake.{placeholder,static[]}.response.status", STATUS),
    ("spec.wake.{placeholder,static[]}.response.headers[].name", Check::Text(&HEADER_NAME)),
    ("spec.wake.{placeholder,static[]}.response.headers[].value", Check::Text(&HEADER_VALUE)),
    ("spec.wake.{placeholder,static[]}.response.body", BODY),
    ("spec.wake.static[].answer", Check::OneOf(&["Always", "WhileAsleep"])),
    ("spec.wake.fallback.service", Check::Text(&SERVICE_NAME)),
    ("spec.wake.fallback.port", Check::Port),
    ("spec.wake.fallback.after", span("0s", "1h", &DURATION, "10s")),
    ("spec.timeouts.request", span("0s", "720h", &DURATION, "30s; 0s: no limit")),
    ("spec.timeouts.responseStart", span("0s", "720h", &DURATION, "30s; 0s: no limit")),
    ("spec.timeouts.idle", span("0s", "720h", &DURATION, "30s; 0s: no limit")),
    ("spec.schedules[].cron", Check::Text(&CRON)),
    ("spec.schedules[].timeZone", Check::Text(&TIME_ZONE)),
    ("spec.schedules[].duration", span("1m", "744h", &WHOLE_SECONDS, "10h")),
    ("spec.schedules[].prewarm", span("0s", "1h", &WHOLE_SECONDS, "5m")),
    ("spec.schedules[].min", Check::Within(0.0, INT32_MAX)),
    ("spec.schedules[].max", Check::Within(0.0, INT32_MAX)),
];

const STATUS: Check = Check::Within(200.0, 599.0);
const BODY: Check = Check::Length(BODY_LENGTH_MAX as i64);

/// Merge strategy of lists in server-side apply, and maximum number of items.
const LISTS: &[(&str, List, i64)] = &[
    ("spec.services", List::Map("name"), 16),
    ("spec.metrics", List::Atomic, 32),
    ("spec.ports", List::Map("name"), 64),
    ("spec.hosts", List::Set, 64),
    ("spec.wake.{page,placeholder,static[],fallback}.match.paths", List::Set, 32),
    ("spec.wake.{page,placeholder,static[],fallback}.match.methods", List::Set, 16),
    ("spec.wake.{page,placeholder,static[],fallback}.match.accept", List::Set, 16),
    ("spec.wake.{page,placeholder,static[],fallback}.match.headers", List::Map("name"), 16),
    ("spec.wake.{placeholder,static[]}.response.headers", List::Atomic, 32),
    ("spec.wake.static", List::Atomic, 16),
    ("spec.schedules", List::Atomic, 16),
    ("status.conditions", List::Map("type"), 16),
    ("status.hosts", List::Set, 64),
    ("status.services", List::Map("name"), 64),
    ("status.ports", List::Map("name"), 64),
];

/// Returns the rules about single fields, by field.
pub fn fields() -> impl Iterator<Item = (String, Check)> {
    FIELDS.iter().flat_map(|(paths, check)| expand_braces(paths).into_iter().map(|path| (path, *check)))
}

/// Returns the merge strategy of each list in server-side apply, and its maximum number of items.
pub fn lists() -> impl Iterator<Item = (String, List, i64)> {
    LISTS.iter().flat_map(|(paths, kind, most)| expand_braces(paths).into_iter().map(|path| (path, *kind, *most)))
}

/// Expands the braces of a path.
fn expand_braces(paths: &str) -> Vec<String> {
    let parts = paths.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    match parts {
        None => vec![paths.to_owned()],
        Some((head, (choices, tail))) => choices.split(',').map(|choice| format!("{head}{choice}{tail}")).collect(),
    }
}

/// Merge strategy of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Replaced as a whole.
    Atomic,
    /// Merged item by item; items are unique.
    Set,
    /// Merged item by item; this field identifies an item.
    Map(&'static str),
}

const INT32_MAX: f64 = i32::MAX as f64;
/// Upper bound of targets, beyond any realistic load of one pod.
const TARGET_MAX: f64 = 1e9;
const SELECT_POLICIES: &[&str] = &["Max", "Min", "Disabled"];
const POLICIES: &[&str] = &["Pods", "Percent"];

/// Rule that the API server runs as CEL with `self` as the value: the expression, and the message if it is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cel {
    pub(super) rule: String,
    pub(super) message: String,
}

impl Check {
    /// Returns the rules that a schema cannot express.
    pub(super) fn cel(&self) -> Vec<Cel> {
        let cel = |rule: String, message: &str| vec![Cel { rule, message: message.to_owned() }];
        match self {
            Self::Text(pattern) => cel(matches(pattern), pattern.rule),
            Self::Host => {
                let form = matches(&HOST);
                let name = format!("!({form}) || (self.contains('.') && !{})", matches(&ADDRESS));
                [cel(form, HOST.rule), cel(name, HOST_RULE)].concat()
            }
            Self::Span(Span { least, most, pattern, .. }) => {
                let (form, within) = (matches(pattern), format!("duration('{least}') <= duration(self)"));
                cel(format!("{form} && {within} && duration(self) <= duration('{most}')"), &self.rule())
            }
            Self::AboveOne => cel("self > 1.0".to_owned(), ABOVE_ONE),
            Self::Within(..) | Self::OneOf(_) | Self::Length(_) | Self::Port => Vec::new(),
        }
    }

    /// Returns the expected form, in words.
    pub(super) fn rule(&self) -> String {
        match self {
            Self::Text(pattern) => pattern.rule.to_owned(),
            Self::Host => HOST.rule.to_owned(),
            Self::Span(span) => span.rule(),
            Self::Within(least, most) if *most < INT32_MAX => format!("a number from {least} to {most} is expected"),
            Self::Within(least, _) => format!("a number of at least {least} is expected"),
            Self::AboveOne => ABOVE_ONE.to_owned(),
            Self::Port => PORT.to_owned(),
            Self::OneOf(allowed) => format!("one of {} is expected", allowed.join(", ")),
            Self::Length(most) => format!("at most {most} characters are expected"),
        }
    }

    /// Returns the expected form if the value breaks the rule. The schema handles values of a wrong type.
    pub(super) fn violated_rule(&self, value: &Value) -> Option<String> {
        let text = value.as_str();
        let number = value.as_f64();
        let is_broken = match self {
            Self::Text(pattern) => text.is_some_and(|text| !pattern.matches(text)),
            Self::Host => match text {
                Some(text) if HOST.matches(text) && (!text.contains('.') || ADDRESS.matches(text)) => {
                    return Some(HOST_RULE.to_owned());
                }
                text => text.is_some_and(|text| !HOST.matches(text)),
            },
            Self::Span(span) => text.is_some_and(|text| !span.accepts(text)),
            Self::Within(least, most) => number.is_some_and(|number| !(*least..=*most).contains(&number)),
            Self::AboveOne => number.is_some_and(|number| number <= 1.0),
            Self::Port => match text {
                Some(text) => !PORT_NAME.matches(text),
                None => !value.as_u64().is_some_and(|number| (1..=u64::from(u16::MAX)).contains(&number)),
            },
            Self::OneOf(allowed) => text.is_some_and(|text| !allowed.contains(&text)),
            Self::Length(most) => {
                text.is_some_and(|text| i64::try_from(text.chars().count()).map_or(true, |n| n > *most))
            }
        };
        is_broken.then(|| self.rule())
    }
}

const PORT: &str = "the name of a Service's port is expected, or its number, from 1 to 65535";
const ABOVE_ONE: &str = "a number above 1 is expected";

fn matches(pattern: &Pattern) -> String {
    format!("self.matches('{}')", pattern.expression)
}

impl Span {
    fn rule(&self) -> String {
        let Self { least, most, pattern, example } = *self;
        let whole = if std::ptr::eq(pattern, &WHOLE_SECONDS) { " in whole seconds" } else { "" };
        let range = match least {
            "0s" => format!("up to {most}"),
            "1ms" => format!("above 0s and up to {most}"),
            least => format!("from {least} to {most}"),
        };
        format!("a duration{whole} {range} is expected, such as {example}")
    }

    fn accepts(&self, text: &str) -> bool {
        let bound = |text: &str| parse_duration(text).unwrap_or(GoDuration::ZERO);
        let within = |duration: GoDuration| (bound(self.least)..=bound(self.most)).contains(&duration);
        self.pattern.matches(text) && parse_duration(text).is_ok_and(within)
    }
}
