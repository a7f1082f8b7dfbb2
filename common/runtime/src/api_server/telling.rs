//! The layer around the client that hears every answer, and the lack of one.

use super::ask::Ask;
use super::connect::carrier;
use super::fault::{self, HEAR_US, KNOW_US, give_right, missing_right};
use crate::trouble::Trouble;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::client::{Body, DynBody};
use kube::core::Status;
use kube::{Client, Config};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, interval_at, timeout};
use tower::{BoxError, Service};

/// A request that waits for so long is told as unanswered, and again after as long.
pub(super) const UNANSWERED: Duration = Duration::from_secs(10);
/// Longest wait for the head of an answer: a little more than the API server gives itself.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(65);
/// Who gives a request up after less has not waited for an answer.
const GIVEN_UP: Duration = Duration::from_millis(900);
/// Faults of single resources that are remembered at most; of those beyond nothing is said.
const FAULTS_MAX: usize = 256;
/// Longest refusal that is read.
const REFUSAL_MAX: usize = 64 * 1024;

/// A client of the API server that `config` names, which tells what is wrong with it. See [the module](super).
///
/// # Errors
/// The configuration cannot be used.
pub fn client(config: Config) -> kube::Result<Client> {
    let told = Arc::new(Told::about(config.cluster_url.authority().map_or_else(String::new, ToString::to_string)));
    let layer = tower::layer::layer_fn(move |inner| Telling { inner, told: told.clone() });
    Ok(carrier(config)?.with_layer(&layer).build())
}

/// What is known to be wrong.
struct Told {
    server: String,
    reach: Mutex<Trouble>,
    faults: Mutex<HashMap<Fault, (String, Trouble)>>,
}

/// A fault of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// The right to this is missing; told once, in whichever namespaces it is.
    Denied(String),
    /// This resource is not served.
    NotServed(String),
}

impl Told {
    fn about(server: String) -> Self {
        let reach = Mutex::new(Trouble::with(format!("the way to the API server {server}")));
        Self { server, reach, faults: Mutex::default() }
    }

    fn unanswered(&self, waited: Duration) {
        self.reach.lock().failed_for(&format!("no answer within {} s", waited.as_secs().max(1)), &HEAR_US);
    }

    fn unreachable(&self, error: &(dyn Error + 'static)) {
        self.reach.lock().failed_for(&fault::chain(error), &fault::reach(error, &self.server));
    }

    fn failed(&self, fault: Fault, ask: &Ask, error: &str, remedy: &str) {
        let mut faults = self.faults.lock();
        if faults.len() >= FAULTS_MAX && !faults.contains_key(&fault) {
            return;
        }
        let thing = || (ask.namespace.clone(), Trouble::with(ask.to_string()));
        let (namespace, trouble) = faults.entry(fault).or_insert_with(thing);
        namespace.clone_from(&ask.namespace);
        trouble.failed_for(&error, &remedy);
    }

    /// What was asked for was answered. A right that is there in one namespace may still be missing in another.
    fn works(&self, ask: &Ask) {
        let mut faults = self.faults.lock();
        if faults.is_empty() {
            return;
        }
        for fault in [Fault::Denied(ask.to_string()), Fault::NotServed(ask.qualified())] {
            if faults.get(&fault).is_some_and(|(namespace, _)| *namespace == ask.namespace)
                && let Some((_, mut trouble)) = faults.remove(&fault)
            {
                trouble.over();
            }
        }
    }

    async fn hear(self: Arc<Self>, ask: Option<Ask>, response: Response<Box<DynBody>>) -> Response<Box<DynBody>> {
        if response.status() == StatusCode::UNAUTHORIZED {
            self.reach.lock().failed_for(&"401 Unauthorized", &KNOW_US);
            return response;
        }
        self.reach.lock().over();
        let Some(ask) = ask else { return response };
        match response.status() {
            StatusCode::NOT_FOUND if ask.is_about_all() => {
                let error = "404 Not Found: the API server does not serve it";
                self.failed(Fault::NotServed(ask.qualified()), &ask, error, &fault::serve(&ask));
                response
            }
            StatusCode::FORBIDDEN => {
                let (response, message) = read(response).await;
                if let Some(message) = message.filter(|message| missing_right(message)) {
                    self.failed(Fault::Denied(ask.to_string()), &ask, &message, give_right(&ask));
                }
                response
            }
            // Any other refusal comes after the right was looked at.
            _ => {
                self.works(&ask);
                response
            }
        }
    }
}

/// The same response, and the message of the Status that it carries.
async fn read(response: Response<Box<DynBody>>) -> (Response<Box<DynBody>>, Option<String>) {
    let (head, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    // What cannot be read is left out: the status says enough to whoever asked.
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

/// A request under way.
struct Pending {
    since: Instant,
    told: Arc<Told>,
    is_over: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if !self.is_over && waited >= GIVEN_UP {
            self.told.unanswered(waited);
        }
    }
}

/// The layer's service.
struct Telling<S> {
    inner: S,
    told: Arc<Told>,
}

impl<S> Service<Request<Body>> for Telling<S>
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
        let ask = Ask::of(request.method(), request.uri());
        let answer = self.inner.call(request);
        let told = self.told.clone();
        let pending = Pending { since: Instant::now(), told: told.clone(), is_over: false };
        Box::pin(async move {
            let mut pending = pending; // All of it, so that it is dropped with this future.
            let (since, waiting) = (pending.since, told.clone());
            let answered = timeout(HEAD_WITHIN, async move {
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
                Ok(Ok(response)) => Ok(told.hear(ask, response).await),
                Ok(Err(error)) => {
                    told.unreachable(&*error);
                    Err(error)
                }
                Err(_) => {
                    told.unanswered(HEAD_WITHIN);
                    Err(format!("the API server has not answered within {} s", HEAD_WITHIN.as_secs()).into())
                }
            }
        })
    }
}

#[cfg(test)]
#[path = "telling_tests.rs"]
mod tests;
