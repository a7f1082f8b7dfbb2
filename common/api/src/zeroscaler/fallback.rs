//! Another Service that answers for a workload that does not wake in time.
//!
//! What a user writes is [`Fallback`]; what the owner makes of it, once it has found the Service, is [`FallbackStatus`]. That
//! names a Service of the object's own namespace and no address: whoever resolves it asks for that Service alone, and leads
//! nobody to one that has become another's name (ExternalName) since.

use super::DurationText;
use super::answers::RequestMatch;
use common::backend::Protocol;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

const AFTER: &str = "30s";
const AFTER_DEFAULT: Duration = Duration::from_secs(30);

/// Another Service of the same namespace, which answers when the workload does not wake in time, or cannot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fallback {
    /// Which requests. Default: all; gRPC calls where the Service speaks HTTP/2.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// Name of the Service: another than the one that clients call, with an address of its own, and none whose own
    /// fallback leads back here.
    pub service: String,
    /// Its port, by name or number. Default: its first. HTTP/2 without TLS is spoken to a port whose appProtocol is
    /// kubernetes.io/h2c or grpc, or whose name begins with h2c, http2 or grpc; HTTP/1.1 to any other. TLS is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<IntOrString>")]
    pub port: Option<PortChoice>,
    /// How long a request is held before. It falls back at once when the pods crash-loop, and when there is no room to hold
    /// it. 0s: nobody is held.
    #[serde(default = "Fallback::default_after")]
    pub after: DurationText,
}

impl Fallback {
    /// How long a request is held before.
    pub fn after(&self) -> Duration {
        self.after.get().unwrap_or(AFTER_DEFAULT)
    }

    fn default_after() -> DurationText {
        DurationText::new(AFTER)
    }
}

/// A port of a Service, as it was written. What cannot be one is read as well: a schema lets numbers pass that fit in no
/// field of Kubernetes' own, and one object must never keep a list from being read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PortChoice {
    /// By number.
    Number(u16),
    /// By name, or by number as a text.
    Name(String),
    /// Neither: no port is called so.
    Other(Value),
}

impl PortChoice {
    /// Whether a port of this name and number is meant.
    pub fn means(&self, name: Option<&str>, number: i32) -> bool {
        match self {
            Self::Number(meant) => i32::from(*meant) == number,
            Self::Name(meant) => name == Some(meant) || number.to_string() == *meant,
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

/// A fallback that was found, as activators are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FallbackStatus {
    /// Which requests.
    #[serde(default, rename = "match", skip_serializing_if = "super::is_default")]
    pub matching: RequestMatch,
    /// Name of the Service, which is one of the object's namespace.
    pub service: String,
    /// Number of its port.
    pub port: u16,
    /// HTTP that it speaks: http1 or h2c.
    #[serde(default)]
    #[schemars(with = "String")]
    pub protocol: Protocol,
    /// How long a request is held before, in milliseconds.
    pub after_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: whatever a schema of numbers and texts lets pass is read, and means no port if it is none.
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
        for (written, expected, shown) in rows {
            let fallback = json!({"service": "sorry", "port": written});
            let read: Fallback = serde_json::from_value(fallback.clone()).expect("read");
            let port = read.port.clone().expect("a port");
            assert_eq!((port.means(Some("web"), 80), port.to_string().as_str()), (expected, shown), "{fallback}");
            assert_eq!(serde_json::to_value(&read).expect("written")["port"], fallback["port"]);
        }
    }
}
