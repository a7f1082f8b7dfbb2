//! Template of the request log: the part of Go's `text/template` that log formats use.
//!
//! | action | output |
//! |---|---|
//! | `{{.Request.Method}}` and the other fields of [`FIELDS`] | the value |
//! | `{{.Request.Header.Get "NAME"}}` | the first value of a header, empty if absent |
//! | `{{js FIELD}}`, `{{FIELD \| js}}`, `{{js (.Request.Header.Get "NAME")}}` | the value, escaped for JavaScript as in Go |
//! | `{{- ... -}}`, `{{/* ... */}}` | trims white space; a comment |
//!
//! A template is parsed when its ConfigMap changes. Everything else (conditions, variables, other functions, other
//! fields of Go's request) is rejected then, by name, because a log that silently lacks a requested value is worse than
//! the former log. So logging a request cannot fail.
//!
//! Values known at the request's arrival are formatted at once, the others at its end. Nothing of the request is
//! retained.

use crate::layers::call::Call;
use common::text::is_unprintable;
use http::Version;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, REFERER, USER_AGENT};
use std::fmt::Write;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Field at this index of [`FIELDS`].
    Field {
        at: usize,
        js: bool,
    },
    Header {
        name: HeaderName,
        js: bool,
    },
}

type Reader = fn(&Call) -> String;

/// All fields, with their values at the request's arrival. As in Knative's activator, the pod's name and address and the
/// trace are always empty.
const FIELDS: [(&str, Reader); 19] = [
    (".Request.Method", |call| call.request.method().to_string()),
    (".Request.RequestURI", |call| match call.request.uri() {
        uri if call.request.version() < Version::HTTP_2 => uri.to_string(),
        uri => uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
    }),
    (".Request.Host", |call| match call.request.uri().authority() {
        Some(authority) => authority.to_string(),
        None => header(call, &HOST).to_owned(),
    }),
    (".Request.Proto", |call| match call.request.version() {
        Version::HTTP_10 => "HTTP/1.0".to_owned(),
        Version::HTTP_2 => "HTTP/2.0".to_owned(),
        _ => "HTTP/1.1".to_owned(),
    }),
    (".Request.RemoteAddr", |call| call.peer.address.to_string()),
    (".Request.ContentLength", |call| match header(call, &CONTENT_LENGTH).parse::<u64>() {
        Ok(length) => length.to_string(),
        Err(_) if call.request.body().is_empty() => "0".to_owned(),
        Err(_) => "-1".to_owned(),
    }),
    (".Request.UserAgent", |call| header(call, &USER_AGENT).to_owned()),
    (".Request.Referer", |call| header(call, &REFERER).to_owned()),
    // Go's output for a present but empty value, and for none.
    (".Request.TLS", |call| if call.peer.tls { "{}" } else { "<nil>" }.to_owned()),
    (CODE, empty),
    (SIZE, empty),
    (LATENCY, empty),
    (".Revision.Name", |call| call.revision.key.name().to_owned()),
    (".Revision.Namespace", |call| call.revision.key.namespace().to_owned()),
    (".Revision.Service", |call| call.revision.live().spec.service.to_string()),
    (".Revision.Configuration", |call| call.revision.live().spec.configuration.to_string()),
    (".Revision.PodName", empty),
    (".Revision.PodIP", empty),
    (".TraceID", empty),
];

// Fields that are known at the request's end.
const CODE: &str = ".Response.Code";
const SIZE: &str = ".Response.Size";
const LATENCY: &str = ".Response.Latency";

/// Log line, complete except for the fields that are known at the request's end.
#[derive(Debug)]
pub(crate) struct PartialLine(Vec<Piece>);

impl Template {
    /// Parses a template. An empty template disables the log: [`None`]. The error names an action that the module's
    /// table lacks.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let mut parts = text.split("{{");
        let mut before = parts.next().unwrap_or_default();
        let mut pieces = Vec::new();
        for part in parts {
            let (mut action, mut after) = part.split_once("}}").ok_or("an action is not closed with }}")?;
            if let Some(trimming) = action.strip_prefix("- ") {
                (action, before) = (trimming, before.trim_end());
            }
            if let Some(trimming) = action.strip_suffix(" -") {
                (action, after) = (trimming, after.trim_start());
            }
            pieces.push(Piece::Text(before.to_owned()));
            let action = action.trim();
            if !(action.starts_with("/*") && action.ends_with("*/")) {
                pieces.push(parse_action(action)?);
            }
            before = after;
        }
        pieces.push(Piece::Text(before.to_owned()));
        match pieces.last_mut() {
            Some(Piece::Text(last)) if last.ends_with('\n') => {}
            _ => pieces.push(Piece::Text("\n".to_owned())),
        }
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Some(Self(pieces)))
    }

    /// Formats the values that are known at the request's arrival.
    pub(crate) fn begin(&self, call: &Call) -> PartialLine {
        let mut pieces = Vec::new();
        let mut done = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => done.push_str(text),
                Piece::Header { name, js } => push(&mut done, header(call, name), *js),
                Piece::Field { at, .. } if [CODE, SIZE, LATENCY].contains(&FIELDS[*at].0) => {
                    pieces.push(Piece::Text(std::mem::take(&mut done)));
                    pieces.push(piece.clone());
                }
                Piece::Field { at, js } => push(&mut done, &(FIELDS[*at].1)(call), *js),
            }
        }
        pieces.push(Piece::Text(done));
        PartialLine(pieces)
    }
}

impl PartialLine {
    pub(crate) fn finish(self, code: u16, size: u64, latency: Duration) -> String {
        let mut line = String::new();
        for piece in self.0 {
            // Writing to a String cannot fail.
            let _ = match piece {
                Piece::Text(text) => line.write_str(&text),
                Piece::Field { at, .. } if FIELDS[at].0 == CODE => write!(line, "{code}"),
                Piece::Field { at, .. } if FIELDS[at].0 == SIZE => write!(line, "{size}"),
                Piece::Field { .. } | Piece::Header { .. } => write!(line, "{}", latency.as_secs_f64()),
            };
        }
        line
    }
}

fn parse_action(text: &str) -> Result<Piece, String> {
    let (operand, js) = match (text.strip_prefix("js "), text.rsplit_once('|')) {
        (Some(operand), _) => (operand.trim(), true),
        (None, Some((operand, function))) if function.trim() == "js" => (operand.trim(), true),
        (None, _) => (text, false),
    };
    let operand = operand.strip_prefix('(').and_then(|o| o.strip_suffix(')')).unwrap_or(operand).trim();
    if let Some(name) = operand.strip_prefix(".Request.Header.Get ") {
        let name = name.trim().strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = name.and_then(|name| HeaderName::try_from(name).ok());
        let name = name.ok_or_else(|| format!("{{{{{text}}}}} names no header"))?;
        return Ok(Piece::Header { name, js });
    }
    match FIELDS.iter().position(|(name, _)| *name == operand) {
        Some(at) => Ok(Piece::Field { at, js }),
        None => Err(format!(
            "{{{{{text}}}}} is not supported; supported are {}, .Request.Header.Get \"NAME\", and js",
            FIELDS.map(|(name, _)| name).join(", ")
        )),
    }
}

fn empty(_: &Call) -> String {
    String::new()
}

/// Returns a header's first value, empty if it is absent or not text.
fn header<'a>(call: &'a Call, name: &HeaderName) -> &'a str {
    call.request.headers().get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok()).unwrap_or_default()
}

fn push(line: &mut String, value: &str, js: bool) {
    if !js {
        return line.push_str(value);
    }
    for c in value.chars() {
        match c {
            '\\' => line.push_str("\\\\"),
            '\'' => line.push_str("\\'"),
            '"' => line.push_str("\\\""),
            '<' | '>' | '&' | '=' => push_escape(line, c),
            c if is_unprintable(c) => push_escape(line, c),
            c => line.push(c),
        }
    }
}

fn push_escape(line: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = write!(line, "\\u{unit:04X}"); // Writing to a String cannot fail.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::call;
    use crate::registry::revision::fixture;
    use http::HeaderValue;

    fn line(template: &str) -> String {
        let mut call = call::fixture::call(&fixture::revision(|_| {}));
        *call.request.uri_mut() = "/a?b='c'&d".parse().expect("a target");
        let headers = call.request.headers_mut();
        headers.insert(HOST, HeaderValue::from_static("app.ns"));
        headers.insert("x-who", HeaderValue::from_static("a \"b\""));
        let template = Template::parse(template).expect("supported").expect("not empty");
        template.begin(&call).finish(201, 42, Duration::from_micros(1500))
    }

    #[test]
    fn a_line_equals_gos_output() {
        let rows = [
            ("plain", "plain\n"),
            ("ends with a newline\n", "ends with a newline\n"),
            ("{{.Request.Method}} {{ .Request.RequestURI }} {{.Request.Proto}}", "GET /a?b='c'&d HTTP/1.1\n"),
            ("{{js .Request.RequestURI}}", "/a?b\\u003D\\'c\\'\\u0026d\n"),
            ("{{.Request.Host}}|{{.Request.ContentLength}}|{{.Request.Referer}}|", "app.ns|0||\n"),
            ("{{.Request.Header.Get \"X-Who\"}}{{.Request.Header.Get \"X-None\"}}", "a \"b\"\n"),
            (
                "{{js (.Request.Header.Get \"X-Who\")}} {{.Request.Header.Get \"x-who\" | js}}",
                "a \\\"b\\\" a \\\"b\\\"\n",
            ),
            ("{{.Response.Code}} {{.Response.Size}} {{.Response.Latency}}s", "201 42 0.0015s\n"),
            ("{{.Revision.Namespace}}/{{.Revision.Name}} {{.Revision.PodIP}}{{.TraceID}}.", "ns/app .\n"),
            ("TLS: {{.Request.TLS}}", "TLS: <nil>\n"),
            ("a {{- /* a comment */ -}} b", "ab\n"),
        ];
        for (template, expected) in rows {
            assert_eq!(line(template), expected, "{template}");
        }
    }

    #[test]
    fn an_unsupported_action_is_rejected_by_name() {
        for (template, named) in [
            ("{{.Request.Foo}}", ".Request.Foo"),
            ("{{if .Request.TLS}}x{{end}}", "if .Request.TLS"),
            ("{{printf \"%s\" .Request.Host}}", "printf"),
            ("{{.Request.Header.Get \"a b\"}}", "a b"),
            ("{{.Request.Method", "}}"),
        ] {
            let error = Template::parse(template).expect_err(template);
            assert!(error.contains(named), "{template}: {error}");
        }
        assert_eq!(Template::parse(""), Ok(None));
    }
}
