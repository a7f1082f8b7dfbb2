//! Last warnings among the events of pods that do not become ready, and of objects that create no pod.
//!
//! Some causes are visible only there: a volume that cannot be mounted, the last failure of a probe, and why a
//! StatefulSet creates no pod. Only pods that have been starting for a while are looked up, [`AT_ONCE`] at a time; the
//! others are looked up at their next check. If reading events is forbidden, nothing is known.

use common::RevisionKey as PodName;
use common::time::Timestamp;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of concurrent lookups of pods.
const AT_ONCE: usize = 8;
/// Longest wait for a response.
const WITHIN: Duration = Duration::from_secs(5);

/// Reason and message of a warning.
type Warning = Option<(String, String)>;

/// Lookups of pods' warnings.
pub(super) struct Warnings {
    client: Client,
    pub(super) lookups: FuturesUnordered<BoxFuture<'static, (PodName, Warning)>>,
}

impl Warnings {
    pub(super) fn new(client: Client) -> Self {
        Self { client, lookups: FuturesUnordered::new() }
    }

    /// Starts the lookup of a pod, unless too many are running. Returns whether it did.
    pub(super) fn look_up(&mut self, pod: &PodName) -> bool {
        let has_room = self.lookups.len() < AT_ONCE;
        if has_room {
            let api: Api<Event> = Api::namespaced(self.client.clone(), pod.namespace());
            let pod = pod.clone();
            self.lookups.push(Box::pin(async move {
                let about = format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name());
                let warning = last(&api, &about).await;
                (pod, warning.map(|(_, reason, message)| (reason, message)))
            }));
        }
        has_room
    }
}

/// Returns time, reason and message of the last warning that these field selectors match; none if there is none, or if
/// events cannot be read.
pub(crate) async fn last(api: &Api<Event>, about: &str) -> Option<(Timestamp, String, String)> {
    let warnings = ListParams::default().fields(&format!("{about},type=Warning"));
    let response = timeout(WITHIN, api.list(&warnings)).await.ok()?;
    let events = response.inspect_err(|error| tracing::debug!(about, %error, "events cannot be read")).ok()?;
    let time = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.or(event.event_time.as_ref().map(|time| time.0)).or(event.first_timestamp.as_ref().map(|time| time.0))
    };
    let newest = events.items.into_iter().max_by_key(time)?;
    let at = Timestamp::from_secs(time(&newest).map_or(0, |time| time.as_second()));
    Some((at, newest.reason.unwrap_or_default(), newest.message.unwrap_or_default()))
}
