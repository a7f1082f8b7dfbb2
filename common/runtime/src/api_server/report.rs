//! Client layer that inspects every response, or its absence, and logs faults.

use super::connect::client_builder;
use super::fault_remedy::{self, NO_RESPONSE, UNKNOWN_TOKEN, is_missing_permission, permission_remedy};
use super::request_info::RequestInfo;
use crate::failure_log::FailureLog;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::client::{Body, DynBody};
use kube::core::Status;
use kube::{Client, Config};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::env::consts::{ARCH, OS};
use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, interval_at, timeout};
use tower::{BoxError, Service};

/// Time after which a waiting request counts as unanswered, and the interval at which it counts again.
pub(super) const UNANSWERED: Duration = Duration::from_secs(10);
/// Longest wait for the head of a response: slightly longer than the API server's own limit.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(65);
/// Minimum wait after which a cancelled request counts as unanswered.
const GIVEN_UP: Duration = Duration::from_millis(900);
/// Maximum number of remembered faults of single resources; further ones are not logged.
const FAULTS_MAX: usize = 256;
/// Longest error response that is read.
const REFUSAL_MAX: usize = 64 * 1024;

/// Returns a client of the API server in `config` that logs faults; see [the module](super). Its user agent is
/// `zeroscale-COMPONENT`, which appears in the API server's audit log and in the `managedFields` of objects. Fails if
/// the configuration cannot be used.
pub fn client(mut config: Config, component: &str) -> kube::Result<Client> {
    config.headers.push((USER_AGENT, user_agent(component)));
    let faults =
        Arc::new(Faults::for_server(config.cluster_url.authority().map_or_else(String::new, ToString::to_string)));
    let layer = tower::layer::layer_fn(move |inner| FaultReporter { inner, faults: faults.clone() });
    Ok(client_builder(config)?.with_layer(&layer).build())
}

/// Returns the user agent in the form of Kubernetes' own clients: the part before the slash is the name of the field
/// manager.
fn user_agent(component: &str) -> HeaderValue {
    let text = format!("zeroscale-{component}/{} ({}/{})", env!("CARGO_PKG_VERSION"), OS, ARCH);
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("zeroscale"))
}

struct Faults {
    server: String,
    /// Faults of the connection to the server.
    connection: Mutex<FailureLog>,
    /// Faults of single resources, each with the namespace in which it last occurred.
    resources: Mutex<HashMap<Fault, (String, FailureLog)>>,
}

/// Fault of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// The permission for this verb and resource is missing: one fault across all namespaces.
    Denied(String),
    /// This resource is not served.
    NotServed(String),
}

impl Faults {
    fn for_server(server: String) -> Self {
        let connection = Mutex::new(FailureLog::for_operation(format!("the connection to the API server {server}")));
        Self { server, connection, resources: Mutex::default() }
    }

    fn unanswered(&self, waited: Duration) {
        let error = format!("no response within {} s", waited.as_secs().max(1));
        self.connection.lock().failed_with_remedy(&error, Some(&NO_RESPONSE));
    }

    fn unreachable(&self, error: &(dyn Error + 'static)) {
        let remedy = fault_remedy::unreachable(error, &self.server);
        self.connection.lock().failed_with_remedy(&fault_remedy::chain(error), Some(&remedy));
    }

    fn failed(&self, fault: Fault, info: &RequestInfo, error: &str, remedy: &str) {
        let mut faults = self.resources.lock();
        if faults.len() >= FAULTS_MAX && !faults.contains_key(&fault) {
            return;
        }
        let new = || (info.namespace.clone(), FailureLog::for_operation(info.to_string()));
        let (namespace, failures) = faults.entry(fault).or_insert_with(new);
        namespace.clone_from(&info.namespace);
        failures.failed_with_remedy(&error, Some(&remedy));
    }

    /// Records a success. A permission that exists in one namespace may still be missing in another.
    fn works(&self, info: &RequestInfo) {
        let mut faults = self.resources.lock();
        if faults.is_empty() {
            return;
        }
        for fault in [Fault::Denied(info.to_string()), Fault::NotServed(info.qualified())] {
            if faults.get(&fault).is_some_and(|(namespace, _)| *namespace == info.namespace)
                && let Some((_, mut failures)) = faults.remove(&fault)
            {
                failures.recovered();
            }
        }
    }

    /// Inspects a response and passes it on unchanged.
    async fn inspect(
        self: Arc<Self>,
        info: Option<RequestInfo>,
        response: Response<Box<DynBody>>,
    ) -> Response<Box<DynBody>> {
        if response.status() == StatusCode::UNAUTHORIZED {
            self.connection.lock().failed_with_remedy(&"401 Unauthorized", Some(&UNKNOWN_TOKEN));
            return response;
        }
        self.connection.lock().recovered();
        let Some(info) = info else { return response };
        match response.status() {
            StatusCode::NOT_FOUND if info.is_list_or_watch() => {
                let error = "404 Not Found: the API server does not serve this resource";
                self.failed(Fault::NotServed(info.qualified()), &info, error, &fault_remedy::not_served(&info));
                response
            }
            StatusCode::FORBIDDEN => {
                let (response, message) = read(response).await;
                if let Some(message) = message.filter(|message| is_missing_permission(message)) {
                    self.failed(Fault::Denied(info.to_string()), &info, &message, permission_remedy(&info));
                }
                response
            }
            // The API server checks the permission before it returns any other error.
            _ => {
                self.works(&info);
                response
            }
        }
    }
}

/// Returns the same response, and the message of the Status in it.
async fn read(response: Response<Box<DynBody>>) -> (Response<Box<DynBody>>, Option<String>) {
    let (head, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    // An unreadable body is dropped: the status code is sufficient for the caller.
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > REFUSAL_MAX {
            break;
        }
    }
    let message = serde_json::from_slice::<Status>(&bytes).ok().map(|status| status.message);
    (Response::from_parts(head, whole(bytes.freeze())), message)
}

fn whole(bytes: Bytes) -> Box<DynBody> {
    Box::new(Full::new(bytes).map_err(|never| match never {}))
}

/// Request that waits for its response. If it is dropped before that, after [`GIVEN_UP`], it counts as unanswered.
struct Pending {
    since: Instant,
    faults: Arc<Faults>,
    is_over: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if !self.is_over && waited >= GIVEN_UP {
            self.faults.unanswered(waited);
        }
    }
}

struct FaultReporter<S> {
    inner: S,
    faults: Arc<Faults>,
}

impl<S> Service<Request<Body>> for FaultReporter<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let info = RequestInfo::from_request(request.method(), request.uri());
        let answer = self.inner.call(request);
        let faults = self.faults.clone();
        let pending = Pending { since: Instant::now(), faults: faults.clone(), is_over: false };
        Box::pin(async move {
            let mut pending = pending; // Moves the whole value, so that it is dropped with this future.
            let (since, waiting) = (pending.since, faults.clone());
            let answered = timeout(HEAD_TIMEOUT, async move {
                let mut ticks = interval_at(since + UNANSWERED, UNANSWERED);
                tokio::pin!(answer);
                loop {
                    tokio::select! {
                        answered = &mut answer => return answered,
                        _ = ticks.tick() => waiting.unanswered(since.elapsed()),
                    }
                }
            });
            let answered = answered.await;
            pending.is_over = true;
            match answered {
                Ok(Ok(response)) => Ok(faults.inspect(info, response).await),
                Ok(Err(error)) => {
                    faults.unreachable(&*error);
                    Err(error)
                }
                Err(_) => {
                    faults.unanswered(HEAD_TIMEOUT);
                    Err(format!("the API server did not respond within {} s", HEAD_TIMEOUT.as_secs()).into())
                }
            }
        })
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
