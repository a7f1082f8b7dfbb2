//! One request through the ingress.

use super::table::Table;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

type Body = BoxBody<Bytes, hyper::Error>;

/// Headers that end at this hop (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
];
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Endpoints tried for one request before it is refused.
const ENDPOINTS_TRIED_MAX: usize = 3;

/// Forwards requests along the table.
pub(super) struct Proxy {
    table: Arc<Table>,
    http1: Client<HttpConnector, Body>,
    h2c: Client<HttpConnector, Body>,
}

impl Proxy {
    pub(super) fn new(table: Arc<Table>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(60));
        let http1 = builder.clone().build(connector.clone());
        let h2c = builder.http2_only(true).build(connector);
        Self { table, http1, h2c }
    }

    /// Answers one request; failures become 404, 502 or 503 that say what was looked for.
    pub(super) async fn forward(&self, mut request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        let inbound = upgrade_of(request.headers()).map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
        let (head, body) = request.into_parts();
        let body = Unsent(Arc::new(Mutex::new(body)));
        match self.answered(&head, &body, inbound, peer).await {
            Ok(response) => response,
            Err((status, text)) => {
                read_over(body);
                refusal(status, text)
            }
        }
    }

    async fn answered(
        &self,
        head: &http::request::Parts,
        body: &Unsent,
        inbound: Option<(HeaderValue, OnUpgrade)>,
        peer: SocketAddr,
    ) -> Result<Response<Body>, (StatusCode, String)> {
        let host = host(head);
        let Some((namespace, name)) = self.table.service(&host) else {
            return Err((StatusCode::NOT_FOUND, format!("ingress: no Service for host {host:?}\n")));
        };
        let target = match self.table.target(&namespace, &name) {
            Some(target) if !target.addresses.is_empty() => target,
            Some(_) => {
                let text = format!("ingress: Service {namespace}/{name} has no ready endpoints\n");
                return Err((StatusCode::SERVICE_UNAVAILABLE, text));
            }
            None => {
                return Err((StatusCode::NOT_FOUND, format!("ingress: no endpoints for Service {namespace}/{name}\n")));
            }
        };
        let (upgrade, inbound) = inbound.unzip();
        let outgoing = Outgoing { head, host: &host, peer, upgrade, h2c: target.h2c };
        let client = if target.h2c { &self.h2c } else { &self.http1 };
        let mut failed = format!("ingress: {namespace}/{name}: no endpoint\n");
        for address in target.addresses.iter().take(ENDPOINTS_TRIED_MAX) {
            let Some(request) = outgoing.to(*address, body.clone()) else {
                return Err((StatusCode::BAD_REQUEST, format!("ingress: {:?} is no path\n", head.uri)));
            };
            match client.request(request).await {
                Ok(response) => return Ok(answer(response, inbound)),
                Err(error) => {
                    failed = format!("ingress: {namespace}/{name} at {address}: {}\n", chain(&error));
                    if !error.is_connect() {
                        break; // Something may have been sent.
                    }
                }
            }
        }
        Err((StatusCode::BAD_GATEWAY, failed))
    }
}

/// What goes to an endpoint, whichever it will be.
struct Outgoing<'a> {
    head: &'a http::request::Parts,
    host: &'a str,
    peer: SocketAddr,
    upgrade: Option<HeaderValue>,
    h2c: bool,
}

impl Outgoing<'_> {
    /// The request as `address` gets it; `None` if its path cannot be sent.
    fn to(&self, address: SocketAddr, body: Unsent) -> Option<Request<Body>> {
        let path = self.head.uri.path_and_query().map_or("/", |p| p.as_str());
        let mut request = Request::new(body.boxed());
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = Uri::try_from(format!("http://{address}{path}")).ok()?;
        *request.version_mut() = if self.h2c { Version::HTTP_2 } else { Version::HTTP_11 };
        let headers = request.headers_mut();
        *headers = self.head.headers.clone();
        let te = headers.get(header::TE).and_then(|te| te.to_str().ok());
        let trailers = te.is_some_and(|te| te.split(',').any(|t| t.trim().eq_ignore_ascii_case("trailers")));
        strip(headers);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
            if !self.h2c {
                headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
            }
        }
        if let Some(protocol) = &self.upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocol.clone());
        }
        headers.insert(header::HOST, HeaderValue::from_str(self.host).ok()?);
        forwarded_for(headers, self.peer);
        Some(request)
    }
}

fn answer(mut response: Response<Incoming>, inbound: Option<OnUpgrade>) -> Response<Body> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if let Some(inbound) = inbound {
            tunnel(inbound, hyper::upgrade::on(&mut response));
        }
    } else {
        strip(response.headers_mut());
    }
    response.map(BodyExt::boxed)
}

/// A request body that can be offered to several endpoints, as long as none has begun to read it.
#[derive(Clone)]
struct Unsent(Arc<Mutex<Incoming>>);

impl http_body::Body for Unsent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

/// Copies both ways until either side ends.
fn tunnel(inbound: OnUpgrade, outbound: OnUpgrade) {
    tokio::spawn(async move {
        if let (Ok(inbound), Ok(outbound)) = tokio::join!(inbound, outbound) {
            let (mut inbound, mut outbound) = (TokioIo::new(inbound), TokioIo::new(outbound));
            let _ = tokio::io::copy_bidirectional(&mut inbound, &mut outbound).await; // Either end may reset.
        }
    });
}

/// Reads what is left of a refused request: an end with bytes unread would reset the connection of a client that still
/// sends, and take the refusal from it.
fn read_over(mut body: Unsent) {
    if !body.is_end_stream() {
        tokio::spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
    }
}

fn host(head: &http::request::Parts) -> String {
    let authority = head.uri.authority().map(|a| a.as_str().to_owned());
    let header = head.headers.get(header::HOST).and_then(|h| h.to_str().ok()).map(str::to_owned);
    authority.or(header).unwrap_or_default()
}

fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers.get(header::CONNECTION)?.to_str().ok()?.to_ascii_lowercase();
    asked.split(',').any(|token| token.trim() == "upgrade").then(|| headers.get(header::UPGRADE).cloned())?
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

fn forwarded_for(headers: &mut HeaderMap, peer: SocketAddr) {
    let name = HeaderName::from_static("x-forwarded-for");
    let former: Vec<&str> = headers.get_all(&name).iter().filter_map(|v| v.to_str().ok()).collect();
    let mut all = former.join(", ");
    if !all.is_empty() {
        all.push_str(", ");
    }
    // Over IPv4 the listener of both families sees an IPv4-mapped address.
    all.push_str(&peer.ip().to_canonical().to_string());
    if let Ok(value) = HeaderValue::from_str(&all) {
        headers.insert(name, value);
    }
    let proto = HeaderName::from_static("x-forwarded-proto");
    headers.entry(proto).or_insert(HeaderValue::from_static("http"));
}

fn refusal(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pods see a client's IPv4 address as such, also where the listener of both families has mapped it.
    #[test]
    fn a_client_is_forwarded_by_the_address_that_it_has() {
        for (peer, former, expected) in [
            ("[::ffff:10.0.0.7]:5000", None, "10.0.0.7"),
            ("10.0.0.7:5000", None, "10.0.0.7"),
            ("[fd00::7]:5000", None, "fd00::7"),
            ("[::ffff:10.0.0.7]:5000", Some("192.0.2.1"), "192.0.2.1, 10.0.0.7"),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(former) = former {
                headers.insert("x-forwarded-for", HeaderValue::from_static(former));
            }
            forwarded_for(&mut headers, peer.parse().expect("an address"));
            assert_eq!(headers["x-forwarded-for"], expected, "{peer} after {former:?}");
        }
    }
}
