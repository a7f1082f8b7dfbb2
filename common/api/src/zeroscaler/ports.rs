//! What the Service's ports speak.

use super::DurationText;
use common::backend::Protocol;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a connection stands before it wakes a workload whose clients wait for the server to speak.
pub const WAKE_AFTER_DEFAULT: Duration = Duration::from_millis(100);

/// One port of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Name of the Service's port; its number, as a text, where it has no name.
    pub name: String,
    /// What clients speak: http1, h2c (HTTP/2 by prior knowledge, gRPC included), tcp (anything, held before its first byte
    /// is read), or auto, which tells HTTP/1.1 and h2c by the first bytes and takes anything else, TLS included, as tcp.
    /// With auto, `appProtocol`, the names of the Service's and the container's port (such as grpc, http2-api, mysql), a gRPC
    /// readiness probe and well-known numbers (such as 3306) tell what the pods speak; the status shows it. gRPC is sent to
    /// pods as HTTP/2 in any case. Anything that a lenient server could read as an HTTP request is served as one or refused:
    /// RTSP and SIP look like that and need tcp, as do messages that begin with a length and go on as text.
    #[serde(default)]
    pub protocol: PortProtocol,
    /// For protocol tcp alone: how long a connection on which the client says nothing stands before it wakes the workload.
    /// Default: 100ms. One that is closed before has woken nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_after: Option<DurationText>,
}

impl Port {
    /// A port of which nothing is said.
    pub fn auto(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// How long a silent connection stands before it wakes the workload; none: it wakes nobody.
    pub fn wake_after(&self) -> Option<Duration> {
        let said = self.wake_after.as_ref().and_then(DurationText::get);
        (self.protocol == PortProtocol::Tcp).then(|| said.unwrap_or(WAKE_AFTER_DEFAULT))
    }
}

/// What a port speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 by prior knowledge, gRPC included.
    H2c,
    /// Anything: bytes are passed on as they come.
    Tcp,
    /// By the first bytes. What a newer version may have written is read as this.
    #[default]
    #[serde(other)]
    Auto,
}

impl PortProtocol {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::H2c => "h2c",
            Self::Tcp => "tcp",
            Self::Auto => "auto",
        }
    }

    /// The HTTP that it means; none: it means no HTTP, or not only that.
    pub fn http(self) -> Option<Protocol> {
        match self {
            Self::Http1 => Some(Protocol::Http1),
            Self::H2c => Some(Protocol::H2c),
            Self::Tcp | Self::Auto => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroscaler::ZeroScalerSpec;

    #[test]
    fn a_port_is_found_by_name_then_by_number_and_is_auto_otherwise() {
        let yaml = "{target: {name: a}, ports: [{name: db, protocol: tcp}, {name: '80', protocol: h2c}]}";
        let spec: ZeroScalerSpec = serde_yaml_ng::from_str(yaml).expect(yaml);
        let rows = [
            ("db", 80, PortProtocol::Tcp, Some(WAKE_AFTER_DEFAULT)),
            ("", 80, PortProtocol::H2c, None),
            ("web", 80, PortProtocol::H2c, None),
            ("web", 81, PortProtocol::Auto, None),
        ];
        for (name, number, protocol, after) in rows {
            let port = spec.port(name, number);
            assert_eq!((port.protocol, port.wake_after()), (protocol, after), "{name} {number}");
        }
    }
}
