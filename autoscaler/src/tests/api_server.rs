//! API server in memory, for tests.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

/// Returns a client of an API server, and `METHOD PATH` of each request. `respond` returns status and body; `None`: the
/// request gets no response.
pub(crate) fn client(
    respond: impl Fn(&Request<Body>) -> Option<(u16, Value)> + Send + 'static,
) -> (Client, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let recorded = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        recorded.lock().push(format!("{} {}", request.method(), request.uri().path()));
        let response = respond(&request).map(|(code, body)| {
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            response.expect("a response")
        });
        async move {
            match response {
                Some(response) => Ok::<_, Infallible>(response),
                None => pending().await,
            }
        }
    });
    (Client::new(service, "default"), requests)
}
