//! Sends a request to its workload's fallback.
//!
//! Only what was held goes there: nothing of it has been sent to a pod, and its body lies unread where its client has put
//! it. So it is sent whole, and once. A fallback that cannot be reached is tried at each of its addresses, and one that
//! closed a kept connection once more; then the request is refused, and says which Service was to blame.
//!
//! # What it counts as
//!
//! Until here it was load of its workload, as whatever is held. That ends before it is sent ([`Standby::release`]), so a
//! fallback's slow answer keeps nobody awake. It takes no place at a pod, and no part in what is known of pods. It is counted
//! in `zeroscale_answered_total` as `fallback`.
//!
//! # Where it goes
//!
//! To the Service of that name in the workload's own namespace: the name is resolved here, so no status can lead a request
//! anywhere else. Addresses are kept for [`KEPT`], and beyond that while nobody can be asked.

use crate::answers::fallback::{Fallback, MARK};
use crate::layers::call::Call;
use crate::layers::charge;
use crate::layers::hold::{Occupied, head_too_much};
use crate::metrics::Answered;
use crate::refusal::Refusal;
use activator_core::accounting::InFlight;
use activator_core::contract::Contract;
use activator_net::{Failure, Guarded, HeadCharge, PodBody, Pools, Prepared, ProxyError};
use common_runtime::resolve::Resolve;
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long an address is believed.
const KEPT: Duration = Duration::from_secs(5);
/// Longest wait for a name's address.
const RESOLVED_WITHIN: Duration = Duration::from_secs(5);
/// Attempts for one request: at several addresses, or twice at one.
const ATTEMPTS: std::ops::RangeInclusive<usize> = 2..=4;

/// What a request may fall back on, and its part in the load until it does.
pub(crate) struct Standby {
    pub(crate) fallback: Arc<Fallback>,
    load: Mutex<Option<InFlight>>,
}

impl Standby {
    /// For one request.
    pub(crate) fn new(fallback: Arc<Fallback>) -> Arc<Self> {
        Arc::new(Self { fallback, load: Mutex::default() })
    }

    /// Keeps its part in the load.
    pub(super) fn hold(&self, load: InFlight) {
        *self.load.lock() = Some(load);
    }

    /// It is no load any more.
    pub(super) fn release(&self) {
        drop(self.load.lock().take());
    }
}

/// Sends to fallbacks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fallbacks {
    pools: Arc<Pools>,
    resolver: Arc<dyn Resolve>,
    /// Such as `cluster.local`.
    cluster_domain: Arc<str>,
    answered: Answered,
}

impl Fallbacks {
    /// Over these parts of an activator.
    pub(crate) fn new(pools: Arc<Pools>, resolver: Arc<dyn Resolve>, cluster_domain: &str, answered: Answered) -> Self {
        Self { pools, resolver, cluster_domain: cluster_domain.into(), answered }
    }

    /// The fallback's answer.
    pub(super) async fn answer(
        &self,
        call: Call,
        standby: Arc<Standby>,
    ) -> Result<Response<Guarded<PodBody, Occupied>>, Refusal> {
        let Call { mut request, peer, revision, trace, .. } = call;
        standby.release();
        let fallback = &standby.fallback;
        let client = request.version();
        let workload = HeaderValue::try_from(revision.key.name()).unwrap_or(HeaderValue::from_static("unknown"));
        request.headers_mut().insert(MARK, workload);
        let addresses = self.addresses(fallback, revision.key.namespace()).await?;
        let mut prepared = Prepared::new(request, Contract::Plain, fallback.protocol, peer, None)?;
        let mut at_pod = trace.as_ref().map(|trace| Box::new(trace.proxying()));
        let mut cause = "it has no address".to_owned();
        let attempts = addresses.len().clamp(*ATTEMPTS.start(), *ATTEMPTS.end());
        for address in addresses.iter().cycle().take(attempts) {
            let pool = self.pools.get(*address, revision.key.namespace());
            if let (Some(trace), Some(at_pod)) = (&trace, &mut at_pod) {
                trace.sending(at_pod, prepared.head_mut());
            }
            match prepared.send(&pool).await {
                Ok(mut response) => {
                    if let Some(at_pod) = &at_pod {
                        at_pod.answered(response.status());
                    }
                    if let Some(kept) = charge::answer(response.headers(), client) {
                        let charge = revision.memory.hold(kept).map_err(head_too_much)?;
                        response.extensions_mut().insert(HeadCharge::new(charge));
                    }
                    response.headers_mut().insert(MARK, fallback.mark.clone());
                    self.answered.count("fallback");
                    return Ok(response.map(|body| Guarded::new(body, Occupied::nothing(at_pod))));
                }
                Err(Failure::Elsewhere { request, cause: why, .. }) => {
                    if let Some(at_pod) = &mut at_pod {
                        at_pod.failed(&why);
                    }
                    (prepared, cause) = (request, why);
                }
                Err(Failure::Final { error: ProxyError::Pod { cause, .. }, .. }) => {
                    if let Some(at_pod) = &mut at_pod {
                        at_pod.failed(&cause);
                    }
                    return Err(failed(fallback, cause));
                }
                Err(Failure::Final { error, .. }) => return Err(error.into()),
            }
        }
        *fallback.found.lock().await = None; // They may be others by now.
        Err(failed(fallback, cause))
    }

    async fn addresses(&self, fallback: &Fallback, namespace: &str) -> Result<Vec<SocketAddr>, Refusal> {
        // Who comes together asks once.
        let mut found = fallback.found.lock().await;
        if let Some((at, addresses)) = &*found
            && at.elapsed() < KEPT
        {
            return known(fallback, addresses.clone());
        }
        let name = format!("{}.{namespace}.svc.{}.", fallback.service, self.cluster_domain);
        let error = match timeout(RESOLVED_WITHIN, self.resolver.resolve(&name, fallback.port)).await {
            Ok(Ok(addresses)) => {
                *found = Some((Instant::now(), addresses.clone()));
                return Ok(addresses);
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let said = error.as_ref().map_or("no answer".to_owned(), ToString::to_string);
        tracing::debug!(name, error = said, "a fallback's address is not known, or not as it is now");
        let before = found.take().map(|(_, before)| before).unwrap_or_default();
        // Whoever waits behind does not wait for the same again: what was known holds for a while.
        if error.is_none() || !before.is_empty() {
            *found = Some((Instant::now(), before.clone()));
        }
        known(fallback, before)
    }
}

/// The addresses, if there are any.
fn known(fallback: &Fallback, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refusal> {
    if addresses.is_empty() { Err(failed(fallback, "its address is not known".to_owned())) } else { Ok(addresses) }
}

fn failed(fallback: &Fallback, cause: String) -> Refusal {
    Refusal::Fallback { service: fallback.service.clone(), cause }
}
