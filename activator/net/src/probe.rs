//! One probe of one pod. If a probe passes, its connection is put into the pool for the first request.
//!
//! | probe | passes if |
//! |---|---|
//! | queue-proxy | `GET /healthz` with `K-Network-Probe: queue` returns 200 with the body `queue` |
//! | TCP | the connection is accepted |
//! | HTTP | the path returns a status from 200 to 399 |
//! | HTTPS | the same over TLS with any certificate, as for the kubelet |
//! | gRPC | `grpc.health.v1.Health/Check` returns SERVING |
//! | Kubernetes | never sent: only the reported readiness counts |
//! | several | all of them pass; they are sent at the same time |
//!
//! HTTP probes use HTTP/1.1 regardless of the pods' protocol, as the kubelet does.

use crate::body::RequestBody;
use crate::forward::PASSTHROUGH_LB;
use crate::http1::connection::Http1;
use crate::http2::connection::Http2;
use crate::pod::stream::PodStream;
use crate::pod::tls::PodIo;
use crate::pool::Pool;
use activator_core::backends::{ProbeOutcome, Timeouts};
use bytes::{BufMut, Bytes, BytesMut};
use common::backend::{Backend, Probe, ProbeHeader, ProbeKind, Protocol};
use common::headers;
use common_runtime::tls::rustls::pki_types::ServerName;
use common_runtime::tls::{self, TlsConnector};
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, TE, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum response that is read: `queue`, or a health response of a few bytes.
const ANSWER_MAX: usize = 64 * 1024;

/// Sends the probes of `backend` to the address of `pool`.
///
/// # Cancel safety
/// Dropping the future closes the probes' connections.
pub async fn probe(
    pool: &Arc<Pool>,
    backend: &Backend,
    passthrough: Option<HeaderValue>,
    timeouts: Timeouts,
) -> ProbeOutcome {
    let sent = backend.probes().map(|probe| send(pool, probe, backend.protocol, passthrough.clone(), timeouts));
    combined(futures::future::join_all(sent).await)
}

async fn send(
    pool: &Arc<Pool>,
    probe: &Probe,
    protocol: Protocol,
    passthrough: Option<HeaderValue>,
    timeouts: Timeouts,
) -> ProbeOutcome {
    let address = SocketAddr::new(pool.address.ip(), probe.port.unwrap_or(pool.address.port()));
    let probed = match probe.kind {
        ProbeKind::Kubernetes => Ok(ProbeOutcome::Unanswered),
        ProbeKind::Tcp => tcp(pool, address, protocol, timeouts).await,
        ProbeKind::QueueProxy => {
            let fields = [
                (HeaderName::from_static(headers::NETWORK_PROBE), HeaderValue::from_static(headers::QUEUE_VALUE)),
                (USER_AGENT, HeaderValue::from_static(headers::USER_AGENT_ACTIVATOR)),
            ];
            let through = passthrough.is_some().then(|| (PASSTHROUGH_LB, HeaderValue::from_static("true")));
            let host = (HOST, passthrough.unwrap_or_else(|| pool.host.clone()));
            let fields = fields.into_iter().chain(through).chain([host]);
            let passes = |status, body: &[u8]| status == StatusCode::OK && body == headers::QUEUE_VALUE.as_bytes();
            http(pool, pool.address, headers::PROBE_PATH, false, fields, timeouts, passes).await
        }
        ProbeKind::Http | ProbeKind::Https => {
            let fields = fields_of(&probe.headers, pool.host.clone());
            let secure = probe.kind == ProbeKind::Https;
            let passes = |status: StatusCode, _: &[u8]| (200..400).contains(&status.as_u16());
            http(pool, address, &probe.path, secure, fields, timeouts, passes).await
        }
        ProbeKind::Grpc => grpc(pool, address, &probe.service, timeouts).await,
    };
    probed.unwrap_or_else(|missed| missed) // The connect failed.
}

/// Combines the outcomes of several probes: the first failure, or the outcome of the first probe if all passed.
fn combined(outcomes: Vec<ProbeOutcome>) -> ProbeOutcome {
    let failed = outcomes.iter().find(|outcome| !matches!(outcome, ProbeOutcome::Passed(_)));
    failed.or(outcomes.first()).copied().unwrap_or(ProbeOutcome::Unanswered)
}

/// Returns the fields of an HTTP probe, following the kubelet. Configured fields replace ours with the same name. Only
/// the first `Host` and `User-Agent` are sent. An empty `Host` is ignored, and an empty `User-Agent` suppresses the
/// field.
fn fields_of(headers: &[ProbeHeader], host: HeaderValue) -> Vec<(HeaderName, HeaderValue)> {
    let read = |ProbeHeader { name, value }: &ProbeHeader| {
        Some((HeaderName::try_from(name.as_str()).ok()?, HeaderValue::try_from(value.as_str()).ok()?))
    };
    let given = headers.iter().filter_map(read).filter(|(name, value)| *name != HOST || !value.is_empty());
    let given: Vec<(HeaderName, HeaderValue)> = given.collect();
    let mut fields = vec![(USER_AGENT, HeaderValue::from_static("kube-probe/zeroscale")), (HOST, host)];
    fields.retain(|(own, _)| given.iter().all(|(name, _)| name != own));
    let is_first = |at: usize, name: &HeaderName| given[..at].iter().all(|(before, _)| before != name);
    let sent = given.iter().enumerate().filter(|(at, (name, value))| {
        let is_one = [HOST, USER_AGENT].contains(name);
        !is_one || (!value.is_empty() && is_first(*at, name))
    });
    fields.extend(sent.map(|(_, field)| field.clone()));
    fields
}

/// Connects to the pod's address, or to another port of the pod if `is_other_port` is set.
async fn connect(
    pool: &Pool,
    address: SocketAddr,
    is_other_port: bool,
    timeout: Duration,
) -> Result<PodStream, ProbeOutcome> {
    pool.connect(address, timeout).await.map_err(|missed| match missed {
        ProbeOutcome::Refused(took) if is_other_port => ProbeOutcome::ProbePortRefused(took),
        missed => missed,
    })
}

async fn tcp(
    pool: &Arc<Pool>,
    address: SocketAddr,
    protocol: Protocol,
    timeouts: Timeouts,
) -> Result<ProbeOutcome, ProbeOutcome> {
    let own = address == pool.address;
    let stream = connect(pool, address, !own, timeouts.connect).await?;
    let took = stream.round_trip;
    if own && !pool.is_encrypted() && !pool.relays.load(Ordering::Relaxed) {
        match protocol {
            Protocol::Http1 => pool.http1.put(Http1::new(stream)),
            Protocol::H2c => {
                if let Ok(Ok(connection)) =
                    tokio::time::timeout(pool.answer_timeout(timeouts.answer), Http2::new(stream)).await
                {
                    pool.http2.put(connection);
                }
            }
        }
    }
    Ok(ProbeOutcome::Passed(Some(took)))
}

/// Wraps a connection in TLS if `secure` is set.
async fn secured(stream: PodStream, address: SocketAddr, secure: bool) -> io::Result<PodIo> {
    if !secure {
        return Ok(stream.into());
    }
    let config = tls::unverified().map_err(io::Error::other)?;
    let name = ServerName::from(address.ip());
    Ok(PodIo::Right(Box::new(TlsConnector::from(config).connect(name, stream).await?)))
}

/// Sends an HTTP/1.1 probe over an idle connection, or a new one.
async fn http(
    pool: &Arc<Pool>,
    address: SocketAddr,
    path: &str,
    secure: bool,
    fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    timeouts: Timeouts,
    passes: impl Fn(StatusCode, &[u8]) -> bool,
) -> Result<ProbeOutcome, ProbeOutcome> {
    // A probe gets a pool of its own if it goes to another port, or if it or the requests are encrypted.
    let is_other_port = address != pool.address;
    let needs_own_pool = is_other_port || pool.is_encrypted() || secure;
    let other = needs_own_pool.then(|| Arc::new(pool.beside(address)));
    let pool = other.as_ref().unwrap_or(pool);
    let (connection, took) = match pool.http1.take(false) {
        Some(connection) => (connection, None),
        None => {
            let stream = connect(pool, address, is_other_port, timeouts.connect).await?;
            let took = stream.round_trip;
            let secured = tokio::time::timeout(pool.answer_timeout(timeouts.answer), secured(stream, address, secure));
            let Ok(Ok(stream)) = secured.await else { return Ok(ProbeOutcome::Unanswered) };
            (Http1::new(stream), Some(took))
        }
    };
    let mut request = Request::new(());
    match path.parse() {
        Ok(uri) => *request.uri_mut() = uri,
        Err(_) => return Ok(ProbeOutcome::WrongResponse), // The configured path is invalid.
    }
    request.headers_mut().extend(fields);
    let (head, ()) = request.into_parts();
    let answer = async {
        let response = connection.exchange(&head, &mut RequestBody::Empty, None, &pool.http1).await.ok()?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.ok()?.to_bytes();
        Some((status, body))
    };
    Ok(match tokio::time::timeout(pool.answer_timeout(timeouts.answer), answer).await {
        Ok(Some((status, body))) if passes(status, &body) => ProbeOutcome::Passed(took),
        Ok(Some((StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE, _)) | None) | Err(_) => {
            ProbeOutcome::Unanswered
        }
        Ok(Some(_)) => ProbeOutcome::WrongResponse,
    })
}

async fn grpc(
    pool: &Arc<Pool>,
    address: SocketAddr,
    service: &str,
    timeouts: Timeouts,
) -> Result<ProbeOutcome, ProbeOutcome> {
    let is_other_port = address != pool.address;
    let own = !is_other_port && !pool.is_encrypted();
    let stream = connect(pool, address, is_other_port, timeouts.connect).await?;
    let took = stream.round_trip;
    let answer = async {
        let connection = Http2::new(stream).await.ok()?;
        let uri = format!("http://{address}/grpc.health.v1.Health/Check");
        let request = Request::post(uri)
            .version(http::Version::HTTP_2)
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header(USER_AGENT, headers::USER_AGENT_ACTIVATOR)
            .body(RequestBody::Whole(Some(health_request(service))))
            .ok()?;
        let response = connection.reserve().exchange(request).await.ok()?;
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.ok()?.to_bytes();
        Some((connection, is_serving(&body)))
    };
    Ok(match tokio::time::timeout(pool.answer_timeout(timeouts.answer), answer).await {
        Ok(Some((connection, true))) => {
            if own {
                pool.http2.put(connection);
            }
            ProbeOutcome::Passed(Some(took))
        }
        Ok(Some((_, false))) => ProbeOutcome::WrongResponse,
        Ok(None) | Err(_) => ProbeOutcome::Unanswered,
    })
}

/// Encodes a gRPC message: flags, length, and `HealthCheckRequest { string service = 1 }`.
fn health_request(service: &str) -> Bytes {
    use prost::Message;
    let message = HealthCheckRequest { service: service.to_owned() }.encode_to_vec();
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(0));
    framed.put_slice(&message);
    framed.freeze()
}

/// Reports whether a framed `HealthCheckResponse { ServingStatus status = 1 }` is SERVING (1).
fn is_serving(framed: &[u8]) -> bool {
    use prost::Message;
    framed.get(5..).is_some_and(|message| HealthCheckResponse::decode(message).is_ok_and(|r| r.status == 1))
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pools;
    use std::net::Ipv4Addr;
    use tokio::net::TcpSocket;
    use tokio_util::sync::CancellationToken;

    /// Goal: a refused connect to another port is distinguished from one to the port of requests. Method: sockets that
    /// do not listen.
    #[tokio::test]
    async fn a_refusal_on_another_port_is_distinguished() {
        let stop = CancellationToken::new();
        let _guard = stop.clone().drop_guard();
        let pools = Pools::start((2, 2), None, stop);
        let deaf = [(); 2].map(|()| {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
            socket
        });
        let [pod, other] = deaf.each_ref().map(|socket| socket.local_addr().expect("bound"));
        let timeouts = Timeouts { connect: Duration::from_secs(60), answer: Duration::from_secs(60) };
        for (port, is_other_port) in [(None, false), (Some(pod.port()), false), (Some(other.port()), true)] {
            for kind in [ProbeKind::Tcp, ProbeKind::Http, ProbeKind::Https, ProbeKind::Grpc] {
                let backend = Backend { probe: Probe { kind, port, ..Probe::http("/") }, ..Backend::plain("app") };
                let outcome = probe(&pools.get(pod, "ns"), &backend, None, timeouts).await;
                let expected = match outcome {
                    ProbeOutcome::ProbePortRefused(_) => is_other_port,
                    ProbeOutcome::Refused(took) => !is_other_port && took > Duration::ZERO,
                    _ => false,
                };
                assert!(expected, "{backend:?}: {outcome:?}");
            }
        }
    }

    /// Goal: configured fields replace ours with the same name, and our other fields stay. Repeated fields are all
    /// sent, except those that may occur only once.
    #[test]
    fn configured_fields_replace_ours() {
        let fields = |given: &[(&str, &str)]| {
            let header = |(name, value): &(&str, &str)| ProbeHeader { name: (*name).into(), value: (*value).into() };
            let headers: Vec<_> = given.iter().map(header).collect();
            let fields = fields_of(&headers, HeaderValue::from_static("10.0.0.1:8080"));
            let text = |(name, value): (HeaderName, HeaderValue)| format!("{name}: {}", value.to_str().expect("text"));
            fields.into_iter().map(text).collect::<Vec<_>>()
        };
        let ours = ["user-agent: kube-probe/zeroscale", "host: 10.0.0.1:8080"];
        assert_eq!(fields(&[]), ours);
        assert_eq!(fields(&[("Host", "a.example")]), [ours[0], "host: a.example"]);
        let several = fields(&[("X", "1"), ("user-agent", "a"), ("x", "2"), ("User-Agent", "b"), ("no name", "")]);
        assert_eq!(several, [ours[1], "x: 1", "user-agent: a", "x: 2"]);
        assert_eq!(fields(&[("host", "a"), ("Host", "b")]), [ours[0], "host: a"]);
        assert_eq!(fields(&[("host", ""), ("User-Agent", ""), ("x", "")]), [ours[1], "x: "]);
    }

    #[test]
    fn several_probes_must_all_pass() {
        let passed = |millis| ProbeOutcome::Passed(Some(Duration::from_millis(millis)));
        assert_eq!(combined(vec![passed(1), passed(2)]), passed(1));
        assert_eq!(
            combined(vec![passed(1), ProbeOutcome::WrongResponse, ProbeOutcome::Unanswered]),
            ProbeOutcome::WrongResponse
        );
        assert_eq!(combined(vec![]), ProbeOutcome::Unanswered);
    }

    #[test]
    fn grpc_health_messages_have_their_standard_bytes() {
        assert_eq!(&health_request("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&health_request("a")[..], [0, 0, 0, 0, 3, 0x0a, 1, b'a']);
        assert!(is_serving(&[0, 0, 0, 0, 2, 8, 1]));
        assert!(!is_serving(&[0, 0, 0, 0, 2, 8, 2]), "NOT_SERVING");
        assert!(!is_serving(&[0, 0, 0, 0, 0]), "UNKNOWN");
        assert!(!is_serving(b""));
    }
}
