//! Connections to the API server: few idle ones, with small buffers.
//!
//! kube's own client keeps every connection that a burst of requests has opened for as long as the server allows. Each
//! keeps a buffer as large as the longest response, up to 400 KiB after a list. After its start, a process would hold
//! some MiB of buffers that it never needs again. [`Retries`] defines the repetition of requests. Unlike in kube,
//! single requests have no spans, and the expiry date that a kubeconfig's command gives for its certificate is ignored.
//! Everything else is as in kube.
//!
//! A watch only reads, so it does not notice a server that disappears silently: TCP keepalive detects that
//! ([`KEEPALIVE_AFTER`]).
//!
//! # Not here
//!
//! Proxies on the way to the API server: kube is built without them and reports that.

use super::retries::Retries;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt, DynBody};
use std::time::Duration;
use tower::retry::RetryLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// Maximum number of idle connections, so that a busy worker finds one. The surplus of a burst is closed.
const IDLE_MAX: usize = 8;

/// Time for which an idle connection is kept, as in Kubernetes' own clients.
const IDLE_FOR: Duration = Duration::from_secs(90);

/// Largest buffer of a connection, and largest head of a response: two TLS records.
const BUFFER_MAX: usize = 32 * 1024;

/// Idle time before the first keepalive probe. Further probes follow each [`KEEPALIVE_INTERVAL`]. After
/// [`KEEPALIVE_PROBES`] without a reply the connection is closed.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

pub(super) type ApiService = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Returns a client builder for the API server in `config`. Fails if the configuration cannot be used.
pub(super) fn client_builder(config: Config) -> kube::Result<ClientBuilder<ApiService>> {
    if config.proxy_url.is_some() {
        return ClientBuilder::try_from(config);
    }
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector())?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client: Client<_, Body> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_FOR)
        .pool_max_idle_per_host(IDLE_MAX)
        .http1_max_buf_size(BUFFER_MAX)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(Retries::default())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|response: Response<_>| {
            response.map(|body| Box::new(BodyExt::map_err(body, BoxError::from)) as Box<DynBody>)
        });
    Ok(ClientBuilder::new(BoxService::new(service), config.default_namespace))
}

/// Returns a connector with TCP keepalive, which detects peers that disappear silently.
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_keepalive(Some(KEEPALIVE_AFTER));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    connector
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::listen;
    use bytes::Bytes;
    use futures::FutureExt;
    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use kube::Client;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::{Barrier, watch};
    use tokio::time::timeout;

    /// Goal: the loss of a server that disappears silently is noticed within half a minute.
    #[tokio::test]
    async fn keepalive_notices_a_lost_server_within_half_a_minute() {
        let (_listener, address) = listen().await;
        let uri: http::Uri = format!("http://{address}").parse().expect("a URI");
        let stream = connector().oneshot(uri).await.expect("connected");
        let socket = socket2::SockRef::from(stream.inner());
        let time = |option: std::io::Result<Duration>| option.expect("an option of the socket");
        assert!(socket.keepalive().expect("an option of the socket"));
        let total = time(socket.tcp_keepalive_time()) + time(socket.tcp_keepalive_interval()) * KEEPALIVE_PROBES;
        assert!(total <= Duration::from_secs(30), "{total:?}");
        assert_eq!(socket.tcp_keepalive_retries().expect("an option of the socket"), KEEPALIVE_PROBES);
    }

    /// Serves `answer` on a free port. Returns a client, and the number of connections: currently, and in total.
    async fn serve<F>(
        answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> (Client, watch::Receiver<(usize, usize)>)
    where
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let (listener, address) = listen().await;
        let uri = format!("http://{address}").parse().expect("a URI");
        let (open, observed) = watch::channel((0_usize, 0_usize));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                open.send_modify(|(now, ever)| (*now, *ever) = (*now + 1, *ever + 1));
                let (open, answer) = (open.clone(), answer.clone());
                let service = service_fn(move |request| answer(request).map(Ok::<_, Infallible>));
                tokio::spawn(async move {
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                    open.send_modify(|(now, _)| *now -= 1);
                });
            }
        });
        (client_builder(Config::new(uri)).expect("usable").build(), observed)
    }

    /// Goal: a caller learns after a few tries, not minutes later, that the API server is unavailable.
    #[tokio::test]
    async fn an_unavailable_server_is_reported_after_five_tries() {
        let requests = Arc::<AtomicU32>::default();
        let counted = requests.clone();
        let (client, _) = serve(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = Response::builder().status(503).body(Full::<Bytes>::from("{}"));
            std::future::ready(answer.expect("a response"))
        })
        .await;
        let request = Request::get("/").body(Vec::new()).expect("a request");
        let answer = timeout(Duration::from_secs(10), client.request_text(request)).await;
        answer.expect("soon").expect_err("503");
        assert_eq!(requests.load(Ordering::Relaxed), 5);
    }

    /// Goal: each request of a burst has its own connection; few of them remain afterwards, and these are reused.
    /// Method: a server that responds once the whole burst has arrived, and counts its open connections.
    #[tokio::test]
    async fn surplus_connections_of_a_burst_are_closed() {
        const BURST: usize = 3 * IDLE_MAX;
        let all = Arc::new(Barrier::new(BURST));
        let (client, mut observed) = serve(move |request| {
            let all = all.clone();
            async move {
                if request.uri().path() == "/burst" {
                    all.wait().await;
                }
                Response::new(Full::<Bytes>::from("{}"))
            }
        })
        .await;
        let ask = |path: &'static str| {
            let client = client.clone();
            let request = Request::get(path).body(Vec::new()).expect("a request");
            async move { client.request_text(request).await.expect("an answer") }
        };
        let bounded = timeout(Duration::from_secs(60), async {
            futures::future::join_all((0..BURST).map(|_| ask("/burst"))).await;
            observed.wait_for(|(now, ever)| (*now, *ever) == (IDLE_MAX, BURST)).await.expect("the server lives");
            ask("/").await;
            assert_eq!(*observed.borrow(), (IDLE_MAX, BURST), "no further connection was needed");
        });
        bounded.await.expect("the surplus is closed");
    }
}
