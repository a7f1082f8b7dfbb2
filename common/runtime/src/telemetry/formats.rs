//! Text format of a scrape: OpenMetrics 1.0 or Prometheus's own.
//!
//! Both contain the same data. In OpenMetrics, the samples of a counter end with `_total`, but its family does not;
//! units have their own lines; and a last line marks the end. Prometheus's text (0.0.4) names families like their
//! samples and has no end mark. The text is generated as OpenMetrics. Only the lines before a family differ, so the
//! other format is derived from it part by part; a family's head is never split.
//!
//! The format that `Accept` lists first is used: scrapers list their preferred one first. Prometheus's own text is used
//! for `*/*`, for `text/plain`, without `Accept`, and if neither format is acceptable: like upstream, an impossible
//! request still gets a response.

use http::HeaderMap;
use http::header::ACCEPT;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format, version 0.0.4.
    Prometheus,
}

impl TextFormat {
    /// Returns the format that the caller lists first.
    pub fn negotiate(headers: &HeaderMap) -> Self {
        let texts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        texts.flat_map(|text| text.split(',')).find_map(Self::from_range).unwrap_or(Self::Prometheus)
    }

    /// Parses a media range, such as `text/plain;version=0.0.4;q=0.5`, if it means one of the two formats.
    fn from_range(range: &str) -> Option<Self> {
        let range = range.to_ascii_lowercase();
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next()?;
        let version = parts.find_map(|part| part.strip_prefix("version=")).map(|version| version.trim_matches('"'));
        match (kind, version) {
            // Both versions of OpenMetrics look the same here.
            ("application/openmetrics-text", None | Some("1.0.0" | "0.0.1")) => Some(Self::OpenMetrics),
            ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => Some(Self::Prometheus),
            _ => None,
        }
    }

    /// Returns the media type of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts a part of the text to this format.
    pub fn convert(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Prometheus => prometheus(&open_metrics),
        }
    }
}

/// Converts whole lines of OpenMetrics to Prometheus's format. Families' heads must not be split.
fn prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.split_inclusive('\n') {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.trim_end().split_once(' ').unwrap_or((rest, ""));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some(words) = help.strip_prefix(name) {
                text.extend(["# HELP ", name, suffix, words]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.push_str(line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_first_known_format_in_accept_is_used() {
        use TextFormat::{OpenMetrics, Prometheus};
        // The headers of Prometheus 2 and 3, of curl and of a browser.
        let v2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let v3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let only_text = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5";
        let rows = [
            (v2, OpenMetrics),
            (v3, OpenMetrics),
            (only_text, Prometheus),
            ("*/*", Prometheus),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Prometheus),
            ("Application/OpenMetrics-Text", OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\"; Q=0.2, */*;q=0.1", OpenMetrics),
            ("application/openmetrics-text;version=2.0.0", Prometheus),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", Prometheus),
            ("", Prometheus),
        ];
        for (accept, expected) in rows {
            let headers: HeaderMap = [(ACCEPT, HeaderValue::from_static(accept))].into_iter().collect();
            assert_eq!(TextFormat::negotiate(&headers), expected, "{accept}");
        }
        assert_eq!(TextFormat::negotiate(&HeaderMap::new()), Prometheus);
    }

    #[test]
    fn family_heads_are_converted_to_prometheus_format() {
        let open = "# HELP a_seconds How long.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
            a_seconds_total{x=\"# TYPE b c\"} 1.5\n# HELP target The process.\n# TYPE target info\n\
            target_info{a=\"b\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 7\n# EOF\n";
        let expected = "# HELP a_seconds_total How long.\n# TYPE a_seconds_total counter\n\
            a_seconds_total{x=\"# TYPE b c\"} 1.5\n# HELP target_info The process.\n# TYPE target_info gauge\n\
            target_info{a=\"b\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 7\n";
        assert_eq!(TextFormat::Prometheus.convert(open.to_owned()), expected);
        assert_eq!(TextFormat::OpenMetrics.convert(open.to_owned()), open);
    }
}
