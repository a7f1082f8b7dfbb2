//! One attempt of a probe: exec, tcpSocket, httpGet or grpc.
//!
//! Each attempt opens its own connection or starts its own process, as the kubelet does: a probe on a shared connection
//! would not notice that a listener is gone. The caller sets the timeout; dropping the future ends the attempt.
//!
//! # Limits
//!
//! `httpGet` over HTTPS is rejected with an error when the pod starts.

use crate::node::process::{self, Launch, exit_code};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{ContainerPort, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message as _;
use std::net::{IpAddr, SocketAddr};
use tokio::net::TcpStream;

/// User agent of the kubelet. Servers recognize probes by its first part.
const USER_AGENT: &str = "kube-probe/1.36";
/// Method of gRPC's health protocol.
const GRPC_CHECK: &str = "/grpc.health.v1.Health/Check";
/// `SERVING` of `grpc.health.v1.HealthCheckResponse`: field 1, varint 1.
const GRPC_SERVING: [u8; 2] = [0x08, 0x01];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    /// Succeeds if a command in the container's environment exits with 0.
    Exec(Launch),
    /// Succeeds if a connection is accepted.
    Tcp(SocketAddr),
    /// Succeeds if the response to a GET has a status from 200 to 399.
    Http { address: SocketAddr, path: String, headers: Vec<(String, String)> },
    /// Succeeds if the health service returns SERVING.
    Grpc { address: SocketAddr, service: String },
}

impl Handler {
    /// Builds the handler from the API's fields, for a container at `ip` with `ports`. An exec probe uses `launch`, the
    /// container's own, with another program. Fails if a port does not exist or this node does not support the probe.
    pub(crate) fn new(
        probe: &Probe,
        ip: IpAddr,
        ports: &[ContainerPort],
        launch: &Launch,
        find: impl Fn(&str) -> Result<std::path::PathBuf, String>,
    ) -> Result<Self, String> {
        let address = |host: Option<&String>, port: &IntOrString| -> Result<SocketAddr, String> {
            let host = match host.filter(|h| !h.is_empty()) {
                Some(host) => host.parse().map_err(|_| format!("probe host {host:?} is not an IP address"))?,
                None => ip,
            };
            Ok(SocketAddr::new(host, port_number(port, ports)?))
        };
        if let Some(exec) = &probe.exec {
            let mut words = exec.command.clone().unwrap_or_default().into_iter();
            let name = words.next().ok_or("an exec probe needs a command")?;
            return Ok(Handler::Exec(Launch { program: find(&name)?, args: words.collect(), ..launch.clone() }));
        }
        if let Some(tcp) = &probe.tcp_socket {
            return Ok(Handler::Tcp(address(tcp.host.as_ref(), &tcp.port)?));
        }
        if let Some(get) = &probe.http_get {
            if get.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
                return Err("this node does not support httpGet probes over HTTPS".into());
            }
            let headers = get.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
            let path = get.path.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| "/".into());
            let path = if path.starts_with('/') { path } else { format!("/{path}") };
            return Ok(Handler::Http { address: address(get.host.as_ref(), &get.port)?, path, headers });
        }
        if let Some(grpc) = &probe.grpc {
            let address = address(None, &IntOrString::Int(grpc.port))?;
            return Ok(Handler::Grpc { address, service: grpc.service.clone().unwrap_or_default() });
        }
        Err("a probe needs one of exec, tcpSocket, httpGet, grpc".into())
    }

    /// Makes one attempt. Returns the reason of the failure as a message for an Event. Cancel safe.
    pub(crate) async fn check(&self) -> Result<(), String> {
        match self {
            Handler::Exec(launch) => exec(launch).await,
            Handler::Tcp(address) => connect(*address).await.map(drop),
            Handler::Http { address, path, headers } => http(*address, path, headers).await,
            Handler::Grpc { address, service } => grpc(*address, service).await,
        }
    }
}

/// Returns the number of a port, given as a number or as the name of a container port.
fn port_number(port: &IntOrString, ports: &[ContainerPort]) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = ports.iter().find(|p| p.name.as_ref() == Some(name)).map(|p| p.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("probe port {port:?} is neither a port number nor the name of a port of the container"))
}

async fn exec(launch: &Launch) -> Result<(), String> {
    let mut process = process::spawn(launch, None).await.map_err(|e| format!("{}: {e}", launch.program.display()))?;
    match process.wait().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} exited with {}", launch.program.display(), exit_code(status))),
        Err(error) => Err(error.to_string()),
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|error| format!("connect to {address}: {error}"))
}

async fn http(address: SocketAddr, path: &str, headers: &[(String, String)]) -> Result<(), String> {
    let io = TokioIo::new(connect(address).await?);
    let failed = |error: hyper::Error| format!("GET http://{address}{path}: {error}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(failed)?;
    let mut request = http::Request::get(path).header(http::header::CONNECTION, "close");
    for (name, value) in [("host", &*address.to_string()), ("user-agent", USER_AGENT)] {
        if !headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
            request = request.header(name, value);
        }
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request =
        request.body(Empty::<Bytes>::new()).map_err(|error| format!("GET http://{address}{path}: {error}"))?;
    let status = drive(sender.send_request(request), connection).await.map_err(failed)?.status();
    if (200..400).contains(&status.as_u16()) {
        Ok(())
    } else {
        Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
    }
}

async fn grpc(address: SocketAddr, service: &str) -> Result<(), String> {
    let io = TokioIo::new(connect(address).await?);
    let failed = |error: hyper::Error| format!("grpc {address}: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.map_err(failed)?;
    let request = http::Request::post(format!("http://{address}{GRPC_CHECK}"))
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header(http::header::TE, "trailers")
        .header(http::header::USER_AGENT, USER_AGENT)
        .body(Full::new(grpc_request(service)))
        .map_err(|error| format!("grpc {address}: {error}"))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let in_head = grpc_status(response.headers());
        let body = response.into_body().collect().await?;
        let in_trailers = body.trailers().and_then(grpc_status);
        Ok::<_, hyper::Error>((in_trailers.or(in_head), body.to_bytes()))
    };
    let (status, body) = drive(exchange, connection).await.map_err(failed)?;
    match status.as_deref() {
        Some("0") if is_serving(&body) => Ok(()),
        Some("0") => Err(format!("grpc {address}: service {service:?} is not serving")),
        Some(code) => Err(format!("grpc {address}: status {code}")),
        None => Err(format!("grpc {address}: the response has no status")),
    }
}

/// Drives a connection during one exchange, not in a task, so that it ends with the attempt. If the connection ends
/// first, the exchange returns its own result or error.
async fn drive<T>(exchange: impl Future<Output = T>, connection: impl Future) -> T {
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        outcome = &mut exchange => outcome,
        _ = connection => exchange.await,
    }
}

fn grpc_status(headers: &http::HeaderMap) -> Option<String> {
    Some(headers.get("grpc-status")?.to_str().ok()?.to_owned())
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// Encodes a framed request: not compressed, length, message.
fn grpc_request(service: &str) -> Bytes {
    let message = HealthCheckRequest { service: service.to_owned() }.encode_to_vec();
    let mut frame = BytesMut::from(&[0][..]);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    frame.freeze()
}

/// Reports whether a framed `HealthCheckResponse` is SERVING.
fn is_serving(frame: &[u8]) -> bool {
    frame.get(5..).is_some_and(|message| message.starts_with(&GRPC_SERVING))
}

#[cfg(test)]
mod tests;
