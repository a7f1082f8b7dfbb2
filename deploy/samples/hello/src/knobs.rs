//! Settings of the program, from the environment and from requests.

use std::net::SocketAddr;
use std::time::Duration;

/// Settings of the process, and defaults for each request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knobs {
    pub(crate) listen: SocketAddr,
    pub(crate) pod: String,
    pub(crate) start: Duration,
    pub(crate) never_ready: bool,
    pub(crate) exit_after: Option<Duration>,
    pub(crate) text: String,
    pub(crate) request: Request,
}

/// Settings of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) latency: Duration,
    pub(crate) cpu: Duration,
    pub(crate) bytes: Option<usize>,
    pub(crate) status: u16,
}

/// Maximum length of a body, so that one request cannot exhaust memory.
const BYTES_MAX: usize = 256 << 20;

impl Knobs {
    /// Reads the settings from environment variables.
    pub(crate) fn read(get: &impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let host = get("HOST").filter(|h| !h.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
        let port: u16 = number(get, "PORT")?.unwrap_or(8080);
        let ip = host.parse().map_err(|_| format!("HOST={host:?} must be an IP address"))?;
        Ok(Self {
            listen: SocketAddr::new(ip, port),
            pod: get("POD_NAME").or_else(|| get("HOSTNAME")).unwrap_or_default(),
            start: millis(get, "HELLO_START_MS")?.unwrap_or_default(),
            never_ready: get("HELLO_NEVER_READY").is_some_and(|v| !v.is_empty()),
            exit_after: millis(get, "HELLO_EXIT_AFTER_MS")?,
            text: get("HELLO_TEXT").filter(|t| !t.is_empty()).unwrap_or_else(|| "hello\n".to_owned()),
            request: Request {
                latency: millis(get, "HELLO_LATENCY_MS")?.unwrap_or_default(),
                cpu: millis(get, "HELLO_CPU_MS")?.unwrap_or_default(),
                bytes: number(get, "HELLO_BODY_BYTES")?,
                status: 200,
            },
        })
    }
}

impl Request {
    /// Returns these settings with the overrides in a URI's `query`.
    pub(crate) fn with_query(mut self, query: &str) -> Result<Self, String> {
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let one = |_: &str| Some(value.to_owned());
            match name {
                "latency_ms" => self.latency = millis(&one, name)?.unwrap_or_default(),
                "cpu_ms" => self.cpu = millis(&one, name)?.unwrap_or_default(),
                "bytes" => self.bytes = number(&one, name)?,
                "status" => self.status = number(&one, name)?.unwrap_or(200),
                _ => {}
            }
        }
        if self.bytes.is_some_and(|bytes| bytes > BYTES_MAX) {
            return Err(format!("bytes must not exceed {BYTES_MAX}"));
        }
        Ok(self)
    }
}

fn number<T: std::str::FromStr>(get: &impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<T>, String> {
    match get(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value.parse().map(Some).map_err(|_| format!("{name}={value:?} must be a whole number")),
    }
}

fn millis(get: &impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<Duration>, String> {
    Ok(number(get, name)?.map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_overrides_the_environment_for_one_request() {
        let knobs = Knobs::read(&|name| (name == "HELLO_LATENCY_MS").then(|| "20".to_owned())).expect("valid");
        let request = knobs.request.with_query("bytes=3&status=404&other=1").expect("valid");
        assert_eq!((request.latency, request.bytes, request.status), (Duration::from_millis(20), Some(3), 404));
        assert!(knobs.request.with_query("latency_ms=soon").expect_err("no number").contains("latency_ms=\"soon\""));
    }
}
