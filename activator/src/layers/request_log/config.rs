//! Request log settings: `logging.enable-request-log` and `logging.request-log-template` of `config-observability`.

use super::template::Template;
use common::config::ConfigError;
use common::golang;
use std::collections::BTreeMap;
use std::sync::Arc;

const ENABLE: &str = "logging.enable-request-log";
const TEMPLATE: &str = "logging.request-log-template";

/// Default template: Knative's fields in Knative's format.
const DEFAULT_TEMPLATE: &str = concat!(
    r#"{"httpRequest": {"requestMethod": "{{.Request.Method}}", "requestUrl": "{{js .Request.RequestURI}}", "#,
    r#""requestSize": "{{.Request.ContentLength}}", "status": {{.Response.Code}}, "#,
    r#""responseSize": "{{.Response.Size}}", "userAgent": "{{js .Request.UserAgent}}", "#,
    r#""remoteIp": "{{js .Request.RemoteAddr}}", "serverIp": "{{.Revision.PodIP}}", "#,
    r#""referer": "{{js .Request.Referer}}", "latency": "{{.Response.Latency}}s", "#,
    r#""protocol": "{{.Request.Proto}}"}, "traceId": "{{.TraceID}}"}"#
);

/// Values of `config-observability` for an activator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observability {
    /// Template of the request log; `None` if the log is off.
    pub(super) template: Option<Arc<Template>>,
}

impl Observability {
    /// Reads the map's data.
    ///
    /// # Errors
    /// `logging.enable-request-log` is not a boolean, or is true while the template is empty, or the template contains
    /// an unsupported action.
    pub fn from_map(data: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let refused = |key: &str, rule: String| {
            let value = data.get(key).cloned().unwrap_or_default();
            ConfigError { key: key.to_owned(), value, rule }
        };
        let enabled = data.get(ENABLE).map_or(Ok(false), |text| golang::parse_bool(text));
        let enabled = enabled.map_err(|error| refused(ENABLE, format!("it {}", error.problem)))?;
        let text = data.get(TEMPLATE).map_or(DEFAULT_TEMPLATE, String::as_str);
        let template = Template::parse(text).map_err(|rule| refused(TEMPLATE, rule))?;
        if enabled && template.is_none() {
            return Err(refused(TEMPLATE, format!("must not be empty while {ENABLE} is true")));
        }
        Ok(Self { template: template.filter(|_| enabled).map(Arc::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Observability, ConfigError> {
        Observability::from_map(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn an_invalid_setting_is_rejected_with_its_key_and_value() {
        assert!(read(&[]).expect("defaults").template.is_none());
        assert!(read(&[(ENABLE, "true")]).expect("the default template").template.is_some());
        assert!(read(&[(TEMPLATE, "")]).expect("off").template.is_none());
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
        let rows: [Row<'_>; 3] = [
            (&[(ENABLE, "yes")], ENABLE, "yes"),
            (&[(ENABLE, "true"), (TEMPLATE, "")], TEMPLATE, "empty"),
            (&[(TEMPLATE, "{{.Request.Foo}}")], TEMPLATE, ".Request.Foo"),
        ];
        for (pairs, key, named) in rows {
            let error = read(pairs).expect_err(key);
            assert_eq!(error.key, key);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
