//! Fallback: another Service that responds for a workload that does not wake in time.
//!
//! A user writes [`Fallback`]. Once the autoscaler has found the Service, it writes [`FallbackStatus`], which names a
//! Service in the object's own namespace and no address. Activators look up that Service only, and ignore it if it has
//! since become an alias of another name (ExternalName).

use super::DurationText;
use super::answers::RequestMatch;
use common::backend::Protocol;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

const AFTER_DEFAULT: Duration = Duration::from_secs(30);

/// Another Service of the same namespace, which responds if the workload does not wake in time or cannot wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fallback {
    /// Requests that may fall back. Default: all; gRPC calls only if the Service speaks HTTP/2.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// Name of the Service. It must not be a Service of this workload, needs a cluster IP, and must not lead back here
    /// through its own fallback.
    pub service: String,
    /// Port of the Service, by name or number. Default: its first port. A port is called with HTTP/2 without TLS if its
    /// appProtocol is kubernetes.io/h2c or grpc, or if its name begins with h2c, http2 or grpc; otherwise with
    /// HTTP/1.1. TLS is not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<IntOrString>")]
    pub port: Option<PortChoice>,
    /// Time for which a request is held first. A request falls back at once if the pods crash-loop or there is no room
    /// to hold it. 0s: requests are not held.
    #[serde(default = "Fallback::default_after")]
    pub after: DurationText,
}

impl Fallback {
    /// Returns the time for which a request is held first.
    pub fn after(&self) -> Duration {
        self.after.get().unwrap_or(AFTER_DEFAULT)
    }

    fn default_after() -> DurationText {
        DurationText::new("30s")
    }
}

/// Port of a Service, as written. Invalid values are read as well: a schema accepts numbers that fit into no field of
/// Kubernetes, and one object must never make a list unreadable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PortChoice {
    /// Port number.
    Number(u16),
    /// Port name, or a number as text.
    Name(String),
    /// Any other value, which matches no port.
    Other(Value),
}

impl PortChoice {
    /// Reports whether this selects a port with the given name and number.
    pub fn selects(&self, name: Option<&str>, number: i32) -> bool {
        match self {
            Self::Number(selected) => i32::from(*selected) == number,
            Self::Name(selected) => name == Some(selected) || number.to_string() == *selected,
            Self::Other(_) => false,
        }
    }
}

impl Display for PortChoice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Other(value) => write!(f, "{value}"),
        }
    }
}

/// Resolved fallback, for activators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FallbackStatus {
    /// Requests that may fall back.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// Name of the Service, in the object's namespace.
    pub service: String,
    /// Port number of the Service.
    pub port: u16,
    /// HTTP version of the Service: http1 or h2c.
    #[serde(default)]
    #[schemars(with = "String")]
    pub protocol: Protocol,
    /// Time for which a request is held first, in milliseconds.
    pub after_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: every number and text that the schema accepts is read, and matches no port if it is not a valid port.
    #[test]
    fn every_port_can_be_read() {
        let rows = [
            (json!(80), true, "80"),
            (json!("80"), true, "\"80\""),
            (json!("web"), true, "\"web\""),
            (json!("other"), false, "\"other\""),
            (json!(0), false, "0"),
            (json!(-1), false, "-1"),
            (json!(3_000_000_000_u64), false, "3000000000"),
            (json!(u64::MAX), false, "18446744073709551615"),
            (json!(1e300), false, "1e+300"),
        ];
        for (written, expected, text) in rows {
            let fallback = json!({"service": "sorry", "port": written});
            let read: Fallback = serde_json::from_value(fallback.clone()).expect("read");
            let port = read.port.clone().expect("a port");
            assert_eq!((port.selects(Some("web"), 80), port.to_string().as_str()), (expected, text), "{fallback}");
            assert_eq!(serde_json::to_value(&read).expect("written")["port"], fallback["port"]);
        }
    }
}
