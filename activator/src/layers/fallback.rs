//! Sends a request to its workload's fallback.
//!
//! Only held requests get here. Nothing of them has been sent to a pod, and their bodies are unread, so a request is
//! sent whole and once. If the fallback is unreachable, each of its addresses is tried; if it closed a reused
//! connection, it is tried once more. Then the request is refused with the name of the Service. If the fallback
//! temporarily has no room for a connection, the activator retries. The workload's timeout limits all of this, and a
//! request that waits for room is charged like a held one.
//!
//! # Accounting
//!
//! Until here the request was load of its workload, like every held request. That ends before it is sent
//! ([`PendingFallback::load`]), so a slow response of the fallback does not keep the workload awake. The request
//! takes no slot of a pod, and its outcome does not affect the state of pods. It is counted in
//! `zeroscale_answered_total` as `fallback`.
//!
//! # Destination
//!
//! The request goes to the Service of that name in the workload's own namespace. The name is resolved here, so a status
//! cannot direct a request anywhere else. Neither can the Service itself, which may have changed since it was checked:
//! in a cluster its address is the cluster IP from the API server ([`common_runtime::resolve::ClusterIps`]).
//! [`crate::answers::fallback_addresses`] limits the time for which an address is used.

use crate::answers::fallback::{Fallback, MARK};
use crate::layers::call::Call;
use crate::layers::hold::RequestResources;
use crate::layers::send::{Client, Sending};
use crate::metrics::WordCounter;
use crate::refusal::Refusal;
use activator_core::accounting::InFlight;
use activator_core::contract::Contract;
use activator_net::{Evidence, Failure, Guarded, PodBody, Pools, Prepared, ProxyError};
use common_runtime::resolve::Resolve;
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longest lookup if no address is known.
const FOUND_WITHIN: Duration = Duration::from_secs(5);
/// Longest lookup if an address is known.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of failed attempts per request: at several addresses, or twice at one.
const ATTEMPTS: std::ops::RangeInclusive<usize> = 2..=4;

/// Fallback of a request, and the request's share of the load until it is sent there.
pub(crate) struct PendingFallback {
    pub(crate) fallback: Arc<Fallback>,
    /// Dropped before the request is sent there.
    pub(super) load: Mutex<Option<InFlight>>,
}

/// Sends requests to fallbacks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fallbacks {
    pub(crate) pools: Arc<Pools>,
    pub(crate) resolver: Arc<dyn Resolve>,
    /// DNS domain, such as `cluster.local`.
    pub(crate) cluster_domain: Arc<str>,
    pub(crate) answered: WordCounter,
}

impl Fallbacks {
    /// Sends the request and returns the fallback's response.
    pub(super) async fn answer(
        &self,
        call: Box<Call>,
        pending: Arc<PendingFallback>,
    ) -> Result<Response<Guarded<PodBody, RequestResources>>, Refusal> {
        let Call { mut request, peer, received, is_subsequent, counts, revision, trace, released, .. } = *call;
        let (fallback, clock) = (&pending.fallback, released.as_deref());
        let client =
            Client { peer: &peer, version: request.version(), is_subsequent, counts, received, clock, affinity: None };
        client.release(Some(Instant::now()));
        drop(pending.load.lock().take());
        let workload = HeaderValue::try_from(revision.key.name()).unwrap_or(HeaderValue::from_static("unknown"));
        request.headers_mut().insert(MARK, workload);
        let addresses = self.addresses(fallback, revision.key.namespace()).await;
        if addresses.is_empty() {
            return Err(failed(fallback, "the address of the Service is not known".to_owned()));
        }
        let mut prepared = Prepared::new(request, Contract::Plain, fallback.protocol, peer.clone(), None)?;
        let mut sending = Sending::new(client, trace);
        let mut attempts = addresses.len().clamp(*ATTEMPTS.start(), *ATTEMPTS.end());
        for address in addresses.iter().cycle() {
            let pool = self.pools.get(*address, revision.key.namespace());
            match sending.attempt(&revision, prepared, &pool).await? {
                Ok(mut response) => {
                    sending.charge(&revision, &mut response)?;
                    response.headers_mut().insert(MARK, fallback.mark.clone());
                    self.answered.count("fallback");
                    return Ok(response
                        .map(|body| Guarded::new(body, RequestResources { _permit: None, _trace: sending.at_pod })));
                }
                Err(Failure::Elsewhere { request, cause, evidence }) => {
                    sending.record_failure(&cause, evidence);
                    attempts -= usize::from(evidence != Evidence::None);
                    if attempts == 0 {
                        fallback.addresses.lock().await.failed(Instant::now());
                        return Err(failed(fallback, cause));
                    }
                    sending.prepare_retry(&revision, &request, evidence)?;
                    prepared = request;
                }
                Err(Failure::Final { error: ProxyError::Pod { cause, .. }, .. }) => {
                    return Err(failed(fallback, cause));
                }
                Err(Failure::Final { error, .. }) => return Err(error.into()),
            }
        }
        Err(failed(fallback, "the Service has no address".to_owned()))
    }

    /// Returns the addresses of a fallback; empty if none is known.
    async fn addresses(&self, fallback: &Fallback, namespace: &str) -> Vec<SocketAddr> {
        // Concurrent requests share one lookup.
        let mut last = fallback.addresses.lock().await;
        if let Some(addresses) = last.fresh(Instant::now()) {
            return addresses;
        }
        let name = format!("{}.{namespace}.svc.{}.", fallback.service, self.cluster_domain);
        let within = if last.addresses.is_empty() { FOUND_WITHIN } else { CONFIRMED_WITHIN };
        let result = timeout(within, self.resolver.resolve(&name, fallback.port)).await;
        let result = result.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        if let Err(error) = &result {
            tracing::debug!(name, %error, "the lookup of a fallback failed");
        }
        last.record(Instant::now(), result);
        last.addresses.clone()
    }
}

fn failed(fallback: &Fallback, cause: String) -> Refusal {
    Refusal::Fallback { service: fallback.service.clone(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{Answers, Request};
    use crate::metrics::Metrics;
    use common_api::zeroscaler;
    use common_runtime::environment::Mode;
    use common_runtime::resolve::ClusterIps;
    use http::{HeaderMap, Method};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio_util::sync::CancellationToken;

    /// Returns a workload's fallback, and a sender in a cluster whose API server has the Service, and may be silent.
    fn cluster(is_silent: Arc<AtomicBool>) -> (Arc<Fallback>, Fallbacks) {
        let server = tower::service_fn(move |_: http::Request<Body>| {
            let is_silent = is_silent.load(Ordering::Relaxed);
            async move {
                if is_silent {
                    return std::future::pending().await;
                }
                let spec = json!({"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": [{"port": 80}]});
                let list = json!({"metadata": {}, "items": [{"spec": spec}]}).to_string();
                Ok::<_, Infallible>(Response::new(Body::from(list.into_bytes())))
            }
        });
        let resolver = Arc::new(ClusterIps::new(Client::new(server, "default"), "cluster.local"));
        let pools = Pools::start((1, 1), None, CancellationToken::new());
        let metrics = Metrics::new(&common_runtime::telemetry::Metrics::default(), Mode::Standalone, None);
        let status = serde_json::from_value(json!({"service": "sorry", "port": 80, "afterMs": 0})).expect("a status");
        let answers = Answers::new(&zeroscaler::Answers { fallback: Some(status), ..Default::default() });
        let request = Request { method: &Method::GET, path: "/", headers: &HeaderMap::new() };
        let fallback = answers.fallback(request).expect("for all requests").clone();
        let cluster_domain = "cluster.local".into();
        (fallback, Fallbacks { pools, resolver, cluster_domain, answered: metrics.answered })
    }

    async fn addresses((fallback, fallbacks): &(Arc<Fallback>, Fallbacks)) -> Vec<SocketAddr> {
        fallbacks.addresses(fallback, "ns").await
    }

    fn service_address() -> Vec<SocketAddr> {
        vec!["10.0.0.9:80".parse().expect("an address")]
    }

    /// Goal: only one of several requests waits for a lookup that hangs, and the others use its result.
    #[tokio::test(start_paused = true)]
    async fn requests_share_a_lookup_that_hangs() {
        let cluster = cluster(Arc::new(AtomicBool::new(true)));
        let begun = Instant::now();
        let found = futures::future::join_all((0..5).map(|_| addresses(&cluster))).await;
        assert!(found.iter().all(Vec::is_empty), "no address is known: {found:?}");
        assert!(begun.elapsed() < 2 * FOUND_WITHIN, "{:?}", begun.elapsed());
    }

    /// Goal: an unresponsive API server delays a request by a second at most, and the fallback stays usable.
    #[tokio::test(start_paused = true)]
    async fn the_last_address_stays_in_use_while_the_api_server_is_silent() {
        let is_silent = Arc::<AtomicBool>::default();
        let cluster = cluster(is_silent.clone());
        assert_eq!(addresses(&cluster).await, service_address());
        is_silent.store(true, Ordering::Relaxed);
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(5)).await;
            let begun = Instant::now();
            assert_eq!(addresses(&cluster).await, service_address());
            assert_eq!(addresses(&cluster).await, service_address(), "at once");
            assert!(begun.elapsed() <= Duration::from_millis(1100), "{:?}", begun.elapsed());
        }
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(addresses(&cluster).await, service_address(), "no lookup has said otherwise");
    }
}
