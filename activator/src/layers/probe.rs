//! Requests for the activator itself, which only headers distinguish from traffic; method, path and host do not matter.
//!
//! On a shared port:
//!
//! | request | response |
//! |---|---|
//! | `User-Agent: kube-probe/…`, or `K-Kubelet-Probe` | readiness, regardless of other headers |
//! | `K-Network-Probe: probe` and `K-Network-Hash: h` | 200, `K-Network-Hash: h` |
//! | the same without a hash | 400 |
//! | `K-Network-Probe: activator` | 200, body `activator` |
//! | any other value | 400 |
//! | an empty value | traffic |
//! | `Upgrade: zeroscale-holders` | a session between activators ([`crate::holders`]); 403. Traffic if limits are not shared, as in Knative |
//! | `Zeroscale-Ports: …`, if workloads have ports of their own | bound ports ([`common::bound_ports`]); 400. `all` reveals the uids of all namespaces, so it needs a plane's token if tokens are required: 401, 403, 429, 503. Without tokens only loopback may ask for `all`: 403 |
//!
//! On a workload's own port all requests are traffic, except `K-Network-Probe: activator`: 200, body `activator`; 503
//! while the workload is not served there, and the connection ends.
//!
//! Probes affect no revision, metric or stat. [`activator_net::Prepared`] removes the hash from all other requests.

use super::LayerParts;
use crate::holders;
use crate::layers::error_responder::plain;
use crate::refusal::Refusal;
use crate::registry::ports::WorkloadPort;
use crate::registry::readiness::Readiness;
use crate::registry::revision::LINKS;
use activator_net::{BodyError, Inbound, PortGone, Reply};
use bytes::Bytes;
use common::bound_ports::{self, Question};
use common::golang;
use common::headers::{self, Incoming};
use common_runtime::admission::bearer;
use futures::future::{BoxFuture, Either, MapOk};
use futures::{FutureExt, TryFutureExt};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tower::Service;

// Parsed at compile time, not per request.
const NETWORK_PROBE: HeaderName = HeaderName::from_static(headers::NETWORK_PROBE);
const KUBELET_PROBE: HeaderName = HeaderName::from_static(headers::KUBELET_PROBE);
const PORTS_QUESTION: HeaderName = HeaderName::from_static(bound_ports::QUESTION);

/// Layer that answers probes and passes other requests on.
#[derive(Clone)]
pub(crate) struct Probe<S> {
    pub(crate) inner: S,
    pub(crate) parts: Arc<LayerParts>,
}

/// Response to a probe, or the exchange of the inner service.
pub(crate) type Probed<F, B> =
    Either<BoxFuture<'static, Result<Response<Reply<B>>, Refusal>>, MapOk<F, fn(Response<B>) -> Response<Reply<B>>>>;

fn into_reply<B>(response: Response<B>) -> Response<Reply<B>> {
    response.map(Reply::Right)
}

type Answer = BoxFuture<'static, Response<Full<Bytes>>>;

fn at_once(response: Response<Full<Bytes>>) -> Answer {
    ready(response).boxed()
}

impl<S, B> Service<Inbound> for Probe<S>
where
    S: Service<Inbound, Response = Response<B>, Error = Refusal>,
    B: Body<Data = Bytes, Error: Into<BodyError>>,
{
    type Response = Response<Reply<B>>;
    type Error = Refusal;
    type Future = Probed<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut inbound: Inbound) -> Self::Future {
        let fields = inbound.request.headers();
        let answer = match inbound.peer.port::<WorkloadPort>() {
            _ if is_plainly_traffic(fields) => None,
            Some(port) => on_port(&self.parts, fields, port).map(at_once),
            None if fields.contains_key(UPGRADE) => {
                let holders = self.parts.holders.as_ref();
                let session =
                    holders.and_then(|holders| holders::answer(holders, &mut inbound.request, inbound.peer.address));
                if session.is_some() {
                    // Without room the session ends soon and is opened again.
                    let _ = inbound.peer.count_to_workload(LINKS);
                }
                session.map(at_once).or_else(|| on_shared_port(&self.parts, &inbound))
            }
            None => on_shared_port(&self.parts, &inbound),
        };
        match answer {
            Some(answer) => Either::Left(answer.map(|response| Ok(response.map(Reply::Left))).boxed()),
            None => Either::Right(self.inner.call(inbound).map_ok(into_reply as fn(_) -> _)),
        }
    }
}

/// Reports whether no field can mark a request for the activator itself. One pass over the fields costs less than a
/// lookup of each name.
fn is_plainly_traffic(fields: &HeaderMap) -> bool {
    !fields.iter().any(|(name, value)| match name.as_str() {
        "user-agent" => value.as_bytes().starts_with(headers::USER_AGENT_KUBELET_PREFIX.as_bytes()),
        "upgrade" => true,
        name => name.starts_with("k-") || name.starts_with("zeroscale-"),
    })
}

/// Returns the response on a shared port, if the headers are a probe's.
fn on_shared_port(parts: &Arc<LayerParts>, inbound: &Inbound) -> Option<Answer> {
    let fields = inbound.request.headers();
    let question = fields.get(PORTS_QUESTION).filter(|_| parts.registry.has_ports());
    let Some(question) = question else { return answer(fields, &parts.readiness).map(at_once) };
    // A value that is not text contains no port numbers either.
    match Question::parse(question.to_str().unwrap_or("\u{fffd}")) {
        Ok(question) => {
            let (parts, from) = (parts.clone(), inbound.peer.address.ip().to_canonical());
            let token = bearer(fields).map(str::to_owned);
            let making = tokio::spawn(async move {
                match may_ask(&parts, &question, token, from).await {
                    Ok(()) => bound(parts.registry.bound_ports(question).await.ok().flatten()),
                    Err((status, why)) => plain(status, format!("{why}\n"), true),
                }
            });
            Some(making.map(|made| made.unwrap_or_else(|_| bound(None))).boxed())
        }
        Err(error) => Some(at_once(plain(StatusCode::BAD_REQUEST, format!("{error}\n"), true))),
    }
}

/// Checks whether a peer may ask for bound ports.
async fn may_ask(
    parts: &LayerParts,
    question: &Question,
    token: Option<String>,
    from: IpAddr,
) -> Result<(), (StatusCode, String)> {
    match &parts.gate {
        _ if *question != Question::All => Ok(()),
        Some(gate) => match gate.admit(token.as_deref(), false, from).await {
            Ok(_) => Ok(()),
            Err(refused) => {
                Err((refused.status(), format!("only activators and autoscalers may ask for all ports: {refused}")))
            }
        },
        None if from.is_loopback() => Ok(()),
        None => {
            let why = "without tokens this activator cannot verify who asks for all ports: name port numbers instead";
            Err((StatusCode::FORBIDDEN, why.to_owned()))
        }
    }
}

/// Returns the response on a workload's own port, if the request is an activator probe.
fn on_port(parts: &LayerParts, fields: &HeaderMap, port: &WorkloadPort) -> Option<Response<Full<Bytes>>> {
    fields.get(NETWORK_PROBE).filter(|value| **value == headers::ACTIVATOR_VALUE)?;
    if parts.registry.serves(port) {
        return Some(plain(StatusCode::OK, headers::ACTIVATOR_VALUE, false));
    }
    let mut response = not_served();
    response.extensions_mut().insert(PortGone);
    Some(response)
}

/// Returns the response with the bound ports; `None` if this process ends.
fn bound(ports: Option<Bytes>) -> Response<Full<Bytes>> {
    let Some(ports) = ports else { return not_served() };
    let mut response = Response::new(Full::new(ports));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn not_served() -> Response<Full<Bytes>> {
    plain(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", Refusal::NotServed), true)
}

fn kind(fields: &HeaderMap) -> Incoming<'_> {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // A value that is not ASCII is still a value.
    let kubelet = fields.get(KUBELET_PROBE).map_or("", |v| if v.is_empty() { "" } else { "set" });
    let probe = match fields.get(NETWORK_PROBE) {
        None => "",
        Some(value) => value.to_str().unwrap_or("\u{fffd}"),
    };
    headers::classify(text(headers::USER_AGENT), kubelet, probe)
}

fn answer(fields: &HeaderMap, readiness: &Readiness) -> Option<Response<Full<Bytes>>> {
    Some(match kind(fields) {
        Incoming::Traffic => return None,
        Incoming::Kubelet => {
            let (status, reason) = readiness.check(Instant::now());
            if status == StatusCode::OK { Response::new(Full::default()) } else { plain(status, reason, true) }
        }
        Incoming::HashProbe => match fields.get(headers::NETWORK_HASH).filter(|hash| !hash.is_empty()) {
            Some(hash) => {
                let mut response = Response::new(Full::default());
                response.headers_mut().insert(headers::NETWORK_HASH, hash.clone());
                response
            }
            None => {
                let text = "a probe request must contain a non-empty \"K-Network-Hash\" header\n";
                plain(StatusCode::BAD_REQUEST, text, true)
            }
        },
        Incoming::ActivatorProbe => plain(StatusCode::OK, headers::ACTIVATOR_VALUE, false),
        Incoming::UnknownProbe(_) => {
            let value = fields.get(NETWORK_PROBE).map_or(&b""[..], HeaderValue::as_bytes);
            let quoted = golang::quote(&golang::escape_html(value));
            plain(StatusCode::BAD_REQUEST, format!("unexpected probe header value: {quoted}\n"), true)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn ask(fields: &[(&str, &[u8])], readiness: &Readiness) -> Option<(u16, String)> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        let response = answer(&map, readiness)?;
        let status = response.status().as_u16();
        let hash = response.headers().get(headers::NETWORK_HASH).map(|h| format!("hash {h:?}"));
        let body = response.into_body().collect().now_or_never().expect("all of it at once").expect("whole").to_bytes();
        let body = String::from_utf8(body.to_vec()).expect("text");
        Some((status, hash.unwrap_or(body)))
    }

    /// Goal: the matrix of Knative's probes, as observed on a live activator.
    #[tokio::test]
    async fn probes_are_answered_as_upstream_does() {
        let readiness = Readiness::new(Instant::now());
        readiness.set_synced();
        readiness.set_linked();
        type Fields<'a> = &'a [(&'a str, &'a [u8])];
        let no_hash = "a probe request must contain a non-empty \"K-Network-Hash\" header\n";
        let rows: [(Fields<'_>, Option<(u16, &str)>); 18] = [
            (&[("user-agent", b"kube-probe/1.34")], Some((200, ""))),
            (&[("user-agent", b"kube-probe/")], Some((200, ""))),
            (&[("k-kubelet-probe", b"x")], Some((200, ""))),
            (&[("user-agent", b"kube-probe/1"), ("k-network-probe", b"queue")], Some((200, ""))),
            (&[("user-agent", b"kube-probe")], None),
            (&[("user-agent", b"Kube-Probe/1")], None),
            (&[("user-agent", b"curl kube-probe/")], None),
            (&[("k-kubelet-probe", b"")], None),
            (&[("k-network-probe", b"probe"), ("k-network-hash", b"h")], Some((200, "hash \"h\""))),
            (&[("k-network-probe", b"probe"), ("k-network-hash", b"")], Some((400, no_hash))),
            (&[("k-network-probe", b"probe")], Some((400, no_hash))),
            (&[("k-network-probe", b"activator")], Some((200, "activator"))),
            (&[("k-network-probe", b"activator"), ("k-network-probe", b"queue")], Some((200, "activator"))),
            (&[("k-network-probe", b""), ("k-network-probe", b"activator")], None),
            (&[("k-network-probe", b"queue")], Some((400, "unexpected probe header value: \"queue\"\n"))),
            (
                &[("k-network-probe", b"<b>&'\"")],
                Some((400, "unexpected probe header value: \"&lt;b&gt;&amp;&#39;&#34;\"\n")),
            ),
            (&[("k-network-probe", b"\xe9")], Some((400, "unexpected probe header value: \"\\xe9\"\n"))),
            (&[("user-agent", b"curl")], None),
        ];
        for (fields, expected) in rows {
            let answered = ask(fields, &readiness);
            assert_eq!(answered.as_ref().map(|(s, b)| (*s, b.as_str())), expected, "{fields:?}");
        }
    }
}
