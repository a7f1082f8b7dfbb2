//! Helpers of tests: a mock API server, environment variables, certificates, waiting.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

/// Returns a client of an API server that responds with a status code and a body, or never (`None`).
pub(crate) fn mock_api(answer: impl Fn(&Request<Body>) -> Option<(u16, Value)> + Send + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(&request);
        async move {
            let Some((code, body)) = answer else { return std::future::pending().await };
            let body = Body::from(format!("{body}\n").into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("a response"))
        }
    });
    Client::new(service, "default")
}

/// Returns the response of an API server that refuses a request with this status code.
pub(crate) fn failure(code: u16) -> Option<(u16, Value)> {
    Some((code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"})))
}

/// Returns a reader of environment variables that have these values and names that begin with `prefix`.
pub(crate) fn variables(prefix: &str, pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (format!("{prefix}_{key}"), (*value).to_owned())).collect();
    move |name| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

/// Returns a self-signed certificate for `name` and its private key, both in PEM.
pub(crate) fn self_signed(name: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("valid");
    (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
}

/// Listens on a free port.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// Waits until `condition` holds, with a time limit.
pub(crate) async fn wait_until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("in time");
}
