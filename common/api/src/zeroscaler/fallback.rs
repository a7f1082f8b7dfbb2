//! Another Service that answers for a workload that does not wake in time.
//!
//! What a user writes is [`Fallback`]; what the owner makes of it, once it has found the Service, is [`FallbackStatus`]. That
//! names a Service of the object's own namespace and no address: whoever resolves it asks for that name alone.

use super::DurationText;
use super::answers::RequestMatch;
use common::backend::Protocol;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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
    pub port: Option<IntOrString>,
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
