//! Detects the protocol of a port from names, probes and port numbers.
//!
//! The first of these hints decides:
//!
//! 1. `appProtocol`;
//! 2. the name of the Service port;
//! 3. the name of the container port;
//! 4. a gRPC readiness probe of that port;
//! 5. a well-known number of the container port or of the Service port.
//!
//! Names are read as in Istio: the whole name, or its part up to the first hyphen. TLS ports stay undecided: the
//! activator recognizes TLS by its first bytes.

use crate::cluster::facts::Target;
use crate::standalone::services::service_ports::TcpPort;
use common::backend::Protocol;
use k8s_openapi::api::core::v1::{Container, ContainerPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Protocol of a port, as far as its hints tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// HTTP in this version.
    Http(Protocol),
    /// Any protocol other than HTTP: connections are passed on as bytes.
    Tcp,
    /// TLS, or an unknown protocol.
    Unknown,
}

/// Port numbers of protocols other than HTTP: all protocols in which the server speaks first, and the most frequent
/// others. Numbers that also serve HTTP are not listed.
const TCP_NUMBERS: [u16; 20] =
    [21, 22, 23, 25, 110, 119, 143, 587, 1433, 1521, 3306, 4222, 5432, 5672, 5900, 6379, 11_211, 27_017, 33_060, 2_525];

/// Suffixes that mean HTTP despite the protocol before them, as in `redis-metrics`.
const BESIDE: [&str; 6] = ["metrics", "exporter", "http", "web", "ui", "admin"];

/// Returns the protocol that `port` of a Service speaks at the pods of `target`.
pub(crate) fn hint(port: &TcpPort, target: Option<&Target>) -> Hint {
    let at_pod = target.and_then(|target| container_port(target, &port.target));
    let names = [port.app_protocol.as_deref(), Some(&*port.id.name), at_pod.and_then(|(_, at)| at.name.as_deref())];
    if let Some(hint) = names.into_iter().flatten().find_map(of_name) {
        return hint;
    }
    let number = at_pod.map(|(_, at)| at.container_port).or(match port.target {
        IntOrString::Int(number) => Some(number),
        IntOrString::String(_) => None,
    });
    let grpc = at_pod.and_then(|(container, _)| container.readiness_probe.as_ref()?.grpc.as_ref());
    if grpc.is_some_and(|probe| Some(probe.port) == number) {
        return Hint::Http(Protocol::H2c);
    }
    let numbers = [number.and_then(|number| u16::try_from(number).ok()), Some(port.id.port)];
    let is_tcp = numbers.into_iter().flatten().any(|number| TCP_NUMBERS.contains(&number));
    if is_tcp { Hint::Tcp } else { Hint::Unknown }
}

/// Returns the container port that a Service port leads to.
fn container_port<'a>(target: &'a Target, to: &IntOrString) -> Option<(&'a Container, &'a ContainerPort)> {
    let mut all = target.containers.iter().flat_map(|c| c.ports.iter().flatten().map(move |port| (c, port)));
    all.find(|(_, port)| match to {
        IntOrString::Int(number) => port.container_port == *number,
        IntOrString::String(name) => port.name.as_ref() == Some(name),
    })
}

/// Returns the hint in a name of a port or protocol, if it has one. [`Hint::Unknown`]: TLS.
pub(super) fn of_name(name: &str) -> Option<Hint> {
    let name = name.strip_prefix("kubernetes.io/").unwrap_or(name).to_ascii_lowercase();
    let (word, rest) = name.split_once('-').unwrap_or((&name, ""));
    match word {
        "grpc" if rest == "web" || rest.starts_with("web-") => Some(Hint::Http(Protocol::Http1)),
        "grpc" | "h2c" | "http2" => Some(Hint::Http(Protocol::H2c)),
        "http" | "http1" | "ws" => Some(Hint::Http(Protocol::Http1)),
        "https" | "tls" | "wss" | "grpcs" => Some(Hint::Unknown),
        "tcp" | "mysql" | "mariadb" | "postgres" | "postgresql" | "pgsql" | "redis" | "mongo" | "mongodb" | "amqp"
        | "mqtt" | "nats" | "kafka" | "memcache" | "memcached" | "smtp" | "submission" | "imap" | "pop3" | "ssh"
        | "sftp" | "ftp" | "telnet" | "ldap" | "vnc"
            if !BESIDE.contains(&rest) =>
        {
            Some(Hint::Tcp)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::services::service_ports::target_with;
    use common::ports::PortId;
    use serde_json::{Value, from_value, json};

    type Row<'a> = (Option<&'a str>, &'a str, u16, Value, Value, Hint);

    /// Goal: the first hint decides. Rows: `appProtocol`, name and number of the Service port, its target port, the
    /// containers, and the expected hint.
    #[test]
    fn the_first_hint_decides() {
        const HTTP1: Hint = Hint::Http(Protocol::Http1);
        const H2C: Hint = Hint::Http(Protocol::H2c);
        let at = |name: &str, number: u16| json!([{"name": "app", "ports": [{"name": name, "containerPort": number}]}]);
        let probed = |port: u16| json!([{"name": "app", "ports": [{"containerPort": 9000}], "readinessProbe": {"grpc": {"port": port}}}]);
        let none = || json!([]);
        let rows: Vec<Row<'_>> = vec![
            (None, "", 80, json!(8080), none(), Hint::Unknown),
            (Some("kubernetes.io/h2c"), "http", 80, json!(8080), none(), H2C),
            (Some("kubernetes.io/ws"), "grpc", 80, json!(8080), none(), HTTP1),
            (Some("kubernetes.io/wss"), "mysql", 80, json!(8080), none(), Hint::Unknown),
            (Some("grpc"), "", 80, json!(8080), none(), H2C),
            (Some("GRPC"), "", 80, json!(8080), none(), H2C),
            (Some("http"), "", 3306, json!(3306), none(), HTTP1),
            (Some("https"), "", 443, json!(8443), none(), Hint::Unknown),
            (Some("tcp"), "http", 80, json!(8080), none(), Hint::Tcp),
            (Some("mysql"), "", 80, json!(8080), none(), Hint::Tcp),
            (Some("example.com/own"), "grpc", 80, json!(8080), none(), H2C),
            (None, "grpc", 80, json!(8080), none(), H2C),
            (None, "grpc-api", 80, json!(8080), none(), H2C),
            (None, "http2-api", 80, json!(8080), none(), H2C),
            (None, "h2c", 80, json!(8080), none(), H2C),
            (None, "grpc-web", 80, json!(8080), none(), HTTP1),
            (None, "grpc-web-a", 80, json!(8080), none(), HTTP1),
            (None, "grpcweb", 80, json!(8080), none(), Hint::Unknown),
            (None, "http-admin", 80, json!(8080), none(), HTTP1),
            (None, "https", 443, json!(22), none(), Hint::Unknown),
            (None, "mysql-primary", 80, json!(8080), none(), Hint::Tcp),
            (None, "tcp-redis", 80, json!(8080), none(), Hint::Tcp),
            (None, "redis-metrics", 80, json!(9121), none(), Hint::Unknown),
            (None, "web", 80, json!("grpc"), at("grpc", 9000), H2C),
            (None, "web", 80, json!(9000), at("grpc", 9000), H2C),
            (None, "http", 80, json!(9000), at("grpc", 9000), HTTP1),
            (None, "web", 80, json!(8080), at("grpc", 9000), Hint::Unknown),
            (None, "", 80, json!(9000), probed(9000), H2C),
            (None, "", 80, json!(9000), probed(9001), Hint::Unknown),
            (None, "", 3306, json!(3306), none(), Hint::Tcp),
            (None, "", 3306, json!("db"), at("db", 13_306), Hint::Tcp),
            (None, "", 80, json!(5432), none(), Hint::Tcp),
            (None, "smtp", 80, json!(1025), none(), Hint::Tcp),
        ];
        for (app_protocol, name, number, to, containers, expected) in rows {
            let port = TcpPort {
                id: PortId { name: name.into(), port: number },
                target: from_value(to.clone()).expect("a port"),
                app_protocol: app_protocol.map(str::to_owned),
                also: Vec::new(),
            };
            let target = target_with(containers.clone());
            let case = format!("{app_protocol:?} {name:?} {number} {to} {containers}");
            assert_eq!(hint(&port, Some(&target)), expected, "{case}");
        }
    }
}
