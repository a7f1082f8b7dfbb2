//! Protocols of the Service's ports.

use super::DurationText;
use common::backend::Protocol;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time for which a silent connection must stay open before it wakes a workload whose server speaks first.
pub const WAKE_AFTER_DEFAULT: Duration = Duration::from_millis(100);

/// Protocol of one port of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Name of the Service's port, or its number as text if it has no name.
    pub name: String,
    /// Protocol of clients: http1, h2c (HTTP/2 with prior knowledge, including gRPC), tcp (any protocol; connections
    /// are held before their first byte is read), or auto. auto recognizes HTTP/1.1 and h2c by the first bytes and
    /// treats anything else, including TLS, as tcp. With auto, the protocol of the pods follows from `appProtocol`, the
    /// names of the Service's and the container's port (such as grpc, http2-api, mysql), a gRPC readiness probe and
    /// well-known numbers (such as 3306); the status shows it. gRPC is always sent to pods as HTTP/2. Bytes that a
    /// lenient server could read as an HTTP request are served as one or refused. This includes RTSP, SIP and messages
    /// that begin with their length in digits, a space and text; use tcp for them.
    #[serde(default)]
    pub protocol: PortProtocol,
    /// Time for which a silent connection must stay open before it wakes the workload; only for protocol tcp. A
    /// connection that is closed earlier does not wake it. Default: 100ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_after: Option<DurationText>,
}

impl Port {
    /// Returns a port with protocol auto.
    pub fn auto(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns the time after which a silent connection wakes the workload, or `None` if it never does.
    pub fn wake_after(&self) -> Option<Duration> {
        let wake_after = self.wake_after.as_ref().and_then(DurationText::get);
        (self.protocol == PortProtocol::Tcp).then(|| wake_after.unwrap_or(WAKE_AFTER_DEFAULT))
    }
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge, including gRPC.
    H2c,
    /// Any protocol; bytes are forwarded unchanged.
    Tcp,
    /// Recognized by the first bytes. Unknown values of newer versions are read as this.
    #[default]
    #[serde(other)]
    Auto,
}

impl PortProtocol {
    /// Returns the protocol as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::H2c => "h2c",
            Self::Tcp => "tcp",
            Self::Auto => "auto",
        }
    }

    /// Returns the HTTP version, or `None` if the protocol is not HTTP, or not only HTTP.
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
