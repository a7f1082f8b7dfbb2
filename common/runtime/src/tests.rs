//! API server for tests.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;

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
