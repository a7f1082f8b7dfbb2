//! Events about pods: what `kubectl describe` shows when something is wrong.
//!
//! Only what a user must know is told: warnings, and why a container was killed. The same event of the same pod is
//! counted up, not repeated. Events are written by a task of their own from a queue of [`QUEUE_MAX`]; when it is full
//! the newest are dropped, since an event that comes late helps less than the ones before it. Losing one loses no work.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::HashMap;
use tokio::sync::mpsc;

/// Events waiting to be written: a few for each of a hundred pods that fail at once.
const QUEUE_MAX: usize = 256;
/// Events remembered for counting; beyond, all are forgotten and counts start anew.
const REMEMBERED_MAX: usize = 512;

/// What makes two events the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Same {
    uid: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

/// An event that was written, and how often it has happened.
struct Counted {
    name: String,
    count: i32,
}

#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
}

impl Events {
    /// Writes events with `client` until the last handle is dropped.
    pub(crate) fn start(client: Client) -> Self {
        let (queue, mut receiver) = mpsc::channel::<Event>(QUEUE_MAX);
        tokio::spawn(async move {
            let mut seen: HashMap<Same, Counted> = HashMap::new();
            while let Some(event) = receiver.recv().await {
                if seen.len() >= REMEMBERED_MAX {
                    seen.clear();
                }
                let key = Same {
                    uid: event.involved_object.uid.clone(),
                    reason: event.reason.clone(),
                    message: event.message.clone(),
                };
                let api: Api<Event> = Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
                let written = match seen.get_mut(&key) {
                    Some(Counted { name, count }) => {
                        *count += 1;
                        let patch = json!({"count": *count, "lastTimestamp": event.last_timestamp});
                        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                            // Events do not live for ever: one that comes again after long is another.
                            Err(kube::Error::Api(status)) if status.code == 404 => {
                                seen.remove(&key);
                                api.create(&PostParams::default(), &event).await
                            }
                            written => written,
                        }
                    }
                    None => api.create(&PostParams::default(), &event).await,
                };
                match written {
                    Ok(written) => {
                        seen.entry(key).or_insert(Counted { name: written.name_any(), count: 1 });
                    }
                    Err(error) => {
                        seen.remove(&key);
                        tracing::debug!(%error, reason = event.reason, "an event could not be written");
                    }
                }
            }
        });
        Self { queue }
    }

    /// Something is wrong with `pod`.
    pub(crate) fn warn(&self, pod: &Pod, node: &str, reason: &str, message: &str) {
        self.send("Warning", "kubelet", pod, node, reason, message);
    }

    /// No node takes `pod`, for this reason.
    pub(crate) fn unschedulable(&self, pod: &Pod, message: &str) {
        self.send("Warning", "default-scheduler", pod, "", "FailedScheduling", message);
    }

    /// Something was done about `pod`.
    pub(crate) fn note(&self, pod: &Pod, node: &str, reason: &str, message: &str) {
        self.send("Normal", "kubelet", pod, node, reason, message);
    }

    fn send(&self, type_: &str, component: &str, pod: &Pod, node: &str, reason: &str, message: &str) {
        let now = Some(Time(Timestamp::now()));
        let event = Event {
            metadata: ObjectMeta {
                namespace: pod.namespace(),
                generate_name: Some(format!("{}.", pod.name_any())),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                namespace: pod.namespace(),
                name: Some(pod.name_any()),
                uid: pod.uid(),
                ..ObjectReference::default()
            },
            type_: Some(type_.into()),
            reason: Some(reason.into()),
            message: Some(message.into()),
            source: Some(EventSource { component: Some(component.into()), host: Some(node.into()) }),
            reporting_component: Some(component.into()),
            reporting_instance: Some(node.into()),
            first_timestamp: now.clone(),
            last_timestamp: now,
            count: Some(1),
            ..Event::default()
        };
        if self.queue.try_send(event).is_err() {
            tracing::debug!(pod = pod.name_any(), reason, "an event was dropped: too many at once");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ApiOptions, ApiServer};
    use common_runtime::api_server;
    use futures::StreamExt;
    use kube::Config;
    use kube::api::{DeleteParams, WatchEvent, WatchParams};
    use std::time::Duration;

    /// Far beyond what anything here takes: only there so that a bug fails a test and does not hang it.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Goal: what happens again after its event was deleted, as that was old, is told again and not lost.
    #[tokio::test]
    async fn an_event_that_is_gone_is_written_anew() {
        let range = "10.96.0.0/16".parse().expect("a range");
        let server = ApiServer::start(ApiOptions::new(range)).await.expect("a free port");
        let mut config = Config::new(server.url().parse().expect("a URL"));
        config.auth_info.token = Some(server.token().to_owned().into());
        let client = api_server::client(config, "test").expect("a client");
        let api: Api<Event> = Api::namespaced(client.clone(), "default");
        let mut seen = api.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
        let (events, mut pod) = (Events::start(client), Pod::default());
        (pod.metadata.name, pod.metadata.namespace) = (Some("p".into()), Some("default".into()));
        let mut names = Vec::new();
        while names.len() < 2 {
            events.warn(&pod, "node", "BackOff", "it fails");
            let next = tokio::time::timeout(PATIENCE, async {
                loop {
                    if let Some(Ok(WatchEvent::Added(event))) = seen.next().await {
                        return event.name_any();
                    }
                }
            });
            let name = next.await.expect("an event");
            api.delete(&name, &DeleteParams::default()).await.expect("deleted");
            names.push(name);
        }
        assert_ne!(names[0], names[1]);
    }
}
