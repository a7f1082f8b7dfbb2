//! Workloads that request a ZeroScaler by the label `zeroscale.dev/enabled: "true"` on a Deployment or StatefulSet. The
//! value "false" requests none. Any other value is ignored and reported by an event on the workload.
//!
//! A ZeroScaler of the workload's name is created with defaults and the same label. The workload owns it, so both are
//! deleted together. It is also deleted when the label is removed, and gives everything back. A ZeroScaler that another
//! client created is left alone.
//!
//! No ZeroScaler is deleted before everything has been listed, because until then a label may exist without being
//! known. A namespace without permissions counts as listed, and when the permissions return, ZeroScalers may be known
//! before their owners. Therefore the owner is read from the API server before each deletion; each removed label causes
//! only one deletion. Without a response within [`QUERY_TIMEOUT`](super::super::unlisted::QUERY_TIMEOUT) nothing is
//! deleted.

use super::{COMPONENT, Scalers};
use crate::cluster::error::Error;
use crate::cluster::writes::Writes;
use crate::standalone::unlisted::with_timeout;
use common::RevisionKey as Key;
use common_api::{ZeroScaler, ZeroScalerSpec, zeroscaler};
use common_controller::objects::{controller, controller_reference};
use common_controller::{Kind, Priority, Recorder, Store, WorkQueue};
use common_runtime::namespaces::{Namespaces, Reach};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::ListParams;
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Label on a workload that requests a ZeroScaler, and on the ZeroScaler created for it.
pub(crate) const ENABLED: &str = "zeroscale.dev/enabled";
/// Delay before the next check of a ZeroScaler whose owner may not be listed yet.
const LISTED_RECHECK: Duration = Duration::from_secs(1);

/// Workload with the label.
#[derive(Debug)]
struct Labelled {
    workload: OwnerReference,
    value: String,
}

/// All workloads with the label.
pub(crate) struct Enabled {
    deployments: Arc<Store<Labelled>>,
    stateful_sets: Arc<Store<Labelled>>,
    /// Queue of names to reconcile.
    pub(crate) queue: WorkQueue<Key>,
}

impl Default for Enabled {
    fn default() -> Self {
        let queue = WorkQueue::<Key>::new();
        let store = || {
            let queue = queue.clone();
            Arc::new(Store::new(move |key: &Key, _, _| queue.add(key.clone(), Priority::Normal)))
        };
        Self { deployments: store(), stateful_sets: store(), queue }
    }
}

impl Enabled {
    /// Follows labelled workloads until `shutdown`, in separate tasks.
    pub(crate) fn follow(&self, (client, namespaces): (&Client, &Namespaces), shutdown: &CancellationToken) {
        spawn::<Deployment>(&self.deployments, namespaces.reach(client), shutdown);
        spawn::<StatefulSet>(&self.stateful_sets, namespaces.reach(client), shutdown);
    }

    /// Records the present ZeroScaler of this name; `None` if there is none.
    pub(super) fn take(&self, key: &Key, object: Option<&ZeroScaler>) {
        // If a requested ZeroScaler is deleted, another must be created.
        if object.is_none_or(is_for_label) {
            self.queue.add(key.clone(), Priority::Normal);
        }
    }

    /// Returns the workload that requests a ZeroScaler of this name. Of two kinds with the same name, the first wins.
    fn requester(&self, key: &Key) -> Option<OwnerReference> {
        let mut found = [&self.deployments, &self.stateful_sets].into_iter().filter_map(|store| store.get(key));
        found.find(|found| found.value == "true").map(|found| found.workload.clone())
    }

    pub(crate) async fn reconcile(&self, key: &Key, scalers: &Scalers, writes: &Writes) -> Result<(), Error> {
        if !writes.leadership.owns(key) {
            return Ok(());
        }
        report_unknown_value::<Deployment>(&self.deployments, key, &writes.recorder);
        report_unknown_value::<StatefulSet>(&self.stateful_sets, key, &writes.recorder);
        match (self.requester(key), scalers.objects.get(key)) {
            (Some(workload), None) => {
                let made = scaler_for(key, workload);
                writes.create(key, &scalers.objects, &made, "failed to create the ZeroScaler for a label").await?;
            }
            (asking, Some(have)) if is_for_label(&have) && have.metadata.deletion_timestamp.is_none() => {
                let owner = controller(&have.metadata).map(|owner| owner.uid.as_str());
                if asking.is_some_and(|workload| Some(workload.uid.as_str()) == owner) {
                    return Ok(());
                }
                if !(self.deployments.is_synced() && self.stateful_sets.is_synced()) {
                    self.queue.add_after(key.clone(), LISTED_RECHECK);
                } else if !has_labelled_owner(&writes.client, key, &have).await? {
                    writes.delete(key, &scalers.objects, key, "failed to delete the ZeroScaler for a label").await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Queues all labels and the ZeroScalers of these names: a new leader has ignored all events until now.
    pub(crate) fn queue_all(&self, scalers: impl IntoIterator<Item = Key>) {
        let labelled = self.deployments.keys().into_iter().chain(self.stateful_sets.keys());
        labelled.chain(scalers).for_each(|key| self.queue.add(key, Priority::Slow));
    }
}

/// Feeds a store with the labelled workloads of one kind until `shutdown`, in a separate task.
fn spawn<K: Kind>(store: &Arc<Store<Labelled>>, reach: Reach<K>, shutdown: &CancellationToken) {
    let labelled = |object: K| Labelled {
        value: object.labels().get(ENABLED).cloned().unwrap_or_default(),
        // Blocking the owner's deletion would require permissions on owners.
        workload: OwnerReference { block_owner_deletion: None, ..controller_reference(&object) },
    };
    let (store, shutdown) = (store.clone(), shutdown.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = store.follow(reach, Config::default().labels(ENABLED), labelled) => {}
            () = shutdown.cancelled() => {}
        }
    });
}

/// Reports an unknown value of a workload's label by an event.
fn report_unknown_value<K: Kind + Default>(store: &Store<Labelled>, key: &Key, recorder: &Recorder) {
    let Some(found) = store.get(key).filter(|found| found.value != "true" && found.value != "false") else { return };
    let message = format!(
        "label {ENABLED}: {:?} has no effect. The value must be \"true\", which creates a ZeroScaler, or \"false\", which \
         creates none",
        found.value
    );
    let mut object = K::default();
    let (name, namespace) = (Some(key.name().to_owned()), Some(key.namespace().to_owned()));
    *object.meta_mut() = ObjectMeta { name, namespace, uid: Some(found.workload.uid.clone()), ..ObjectMeta::default() };
    recorder.record_error(COMPONENT, &object, "LabelNotUnderstood", message);
}

/// Reports whether a ZeroScaler was created for a label.
fn is_for_label(object: &ZeroScaler) -> bool {
    object.labels().get(ENABLED).is_some_and(|value| value == "true") && controller(&object.metadata).is_some()
}

/// Reports whether the owner of a ZeroScaler exists and has the label, according to the API server.
async fn has_labelled_owner(client: &Client, key: &Key, have: &ZeroScaler) -> Result<bool, Error> {
    let Some(owner) = controller(&have.metadata) else { return Ok(false) };
    match owner.kind.as_str() {
        "Deployment" => has_label::<Deployment>(client, key, owner).await,
        "StatefulSet" => has_label::<StatefulSet>(client, key, owner).await,
        _ => Ok(false),
    }
}

async fn has_label<K: Kind>(client: &Client, key: &Key, owner: &OwnerReference) -> Result<bool, Error> {
    let named = ListParams::default().fields(&format!("metadata.name={}", owner.name));
    let owners = Api::<K>::namespaced(client.clone(), key.namespace());
    let doing = format!("failed to read the label of {} {}", owner.kind, owner.name);
    let list = with_timeout(doing, owners.list_metadata(&named)).await?;
    Ok(list.items.iter().map(|found| &found.metadata).any(|meta| {
        let label = meta.labels.as_ref().and_then(|labels| labels.get(ENABLED));
        meta.uid.as_deref() == Some(owner.uid.as_str()) && label.is_some_and(|value| value == "true")
    }))
}

/// Returns the ZeroScaler for a workload's label.
fn scaler_for(key: &Key, workload: OwnerReference) -> ZeroScaler {
    let OwnerReference { api_version, kind, name, .. } = workload.clone();
    let target = zeroscaler::Target { api_version, kind, name };
    let mut made = ZeroScaler::new(key.name(), ZeroScalerSpec { target, ..ZeroScalerSpec::default() });
    made.metadata.namespace = Some(key.namespace().to_owned());
    made.metadata.labels = Some([(ENABLED.to_owned(), "true".to_owned())].into());
    made.metadata.owner_references = Some(vec![workload]);
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server;
    use crate::standalone::ports::PortAllocator;
    use crate::standalone::unlisted::QUERY_TIMEOUT;
    use common::write_rate::Rate;
    use common_controller::{Alone, WriteLimiter};
    use common_runtime::clock::Clock;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    fn drained(queue: &WorkQueue<Key>) -> Vec<String> {
        let mut keys: Vec<_> = std::iter::from_fn(|| queue.try_next()).map(|item| item.key().to_string()).collect();
        keys.sort_unstable();
        keys
    }

    fn labelled(workload: OwnerReference, value: &str) -> Labelled {
        Labelled { workload, value: value.to_owned() }
    }

    /// Returns the reference to the Deployment that owns [`made`].
    fn owner() -> OwnerReference {
        let (api_version, kind, name) = ("apps/v1".into(), "Deployment".into(), "made".into());
        let controller = Some(true);
        OwnerReference { api_version, kind, name, uid: "d".into(), controller, ..OwnerReference::default() }
    }

    /// Returns the ZeroScaler that was created for a label.
    fn made() -> ZeroScaler {
        let mut made = scaler_for(&Key::new("ns", "made"), owner());
        (made.metadata.uid, made.metadata.resource_version) = (Some("u".to_owned()), Some("1".to_owned()));
        made
    }

    /// Goal: a new leader queues every label, also removed ones, because a process that does not lead ignores events.
    #[tokio::test]
    async fn a_new_leader_checks_every_label() {
        let scalers = Scalers::new(Arc::new(Alone), PortAllocator::new("system", WorkQueue::new(), Clock::system()));
        let queue = scalers.enabled.queue.clone();
        scalers.apply(made(), &|_, _, _| {});
        scalers.enabled.deployments.apply(&Key::new("ns", "asks"), "1", Some(labelled(owner(), "true")));
        assert_eq!(drained(&queue), ["ns/asks", "ns/made"]);
        assert_eq!(drained(&queue), [""; 0]);
        scalers.enabled.queue_all(scalers.objects.keys());
        assert_eq!(drained(&queue), ["ns/asks", "ns/made"]);
    }

    /// Goal: only the value "true" requests a ZeroScaler, and a Deployment comes before a StatefulSet of its name.
    #[test]
    fn only_the_value_true_requests_a_zeroscaler() {
        let (enabled, key) = (Enabled::default(), Key::new("ns", "a"));
        let owner = |kind: &str| OwnerReference { kind: kind.into(), ..OwnerReference::default() };
        let asking = || enabled.requester(&key).map(|owner| owner.kind);
        enabled.stateful_sets.apply(&key, "1", Some(labelled(owner("StatefulSet"), "true")));
        for (version, value, expected) in
            [("2", "yes", "StatefulSet"), ("3", "true", "Deployment"), ("4", "false", "StatefulSet")]
        {
            enabled.deployments.apply(&key, version, Some(labelled(owner("Deployment"), value)));
            assert_eq!(asking().as_deref(), Some(expected), "{value}");
        }
        enabled.stateful_sets.apply(&key, "", None);
        assert_eq!(asking(), None);
    }

    /// Returns the requests sent by a reconcile of `ns/made`, whose owner this process does not know, and the result.
    /// The API server has these Deployments; `None`: it does not respond.
    async fn requests_of(deployments: Option<Value>) -> (Vec<String>, Result<(), Error>) {
        let (client, requests) = api_server::client(move |_| {
            let items = deployments.as_ref()?;
            Some((200, json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {}, "items": items})))
        });
        let limiter = WriteLimiter::new(Rate::WITH_CONTROLLER);
        let recorder = Recorder::limited(client.clone(), limiter.clone(), CancellationToken::new());
        let (leadership, decisions, clock) = (Arc::new(Alone), WorkQueue::new(), Clock::system());
        let writes = Writes { client, leadership, limiter, decisions, recorder, clock };
        let scalers = Scalers::new(Arc::new(Alone), PortAllocator::new("system", WorkQueue::new(), Clock::system()));
        scalers.apply(made(), &|_, _, _| {});
        scalers.enabled.deployments.listed();
        scalers.enabled.stateful_sets.listed();
        let outcome = scalers.enabled.reconcile(&Key::new("ns", "made"), &scalers, &writes).await;
        let requests = requests.lock().clone();
        (requests, outcome)
    }

    const LOOK: &str = "GET /apis/apps/v1/namespaces/ns/deployments";

    /// Goal: the ZeroScaler of a label stays while its owner has the label, although this process does not know that
    /// yet. It is deleted if the owner is gone, has lost the label, or has another uid.
    #[tokio::test]
    async fn a_requested_zeroscaler_is_not_deleted_while_its_owner_is_unknown() {
        let owner = |uid: &str, label: &str| {
            let metadata = json!({"name": "made", "uid": uid, "labels": {ENABLED: label}});
            json!([{"metadata": metadata}])
        };
        let (requests, outcome) = requests_of(Some(owner("d", "true"))).await;
        outcome.expect("a pass");
        assert_eq!(requests, [LOOK]);
        let delete = "DELETE /apis/zeroscale.dev/v1alpha1/namespaces/ns/zeroscalers/made";
        for deployments in [json!([]), owner("d", "false"), owner("another", "true")] {
            let (requests, outcome) = requests_of(Some(deployments.clone())).await;
            outcome.expect("a pass");
            assert_eq!(requests, [LOOK, delete], "{deployments}");
        }
    }

    /// Goal: an API server that does not respond about the owner delays the other labels only for seconds, and nothing
    /// is deleted.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_deleted_without_a_response_about_the_owner() {
        let begun = Instant::now();
        let (requests, outcome) = requests_of(None).await;
        outcome.expect_err("no response");
        assert_eq!((requests, begun.elapsed().as_secs()), (vec![LOOK.to_owned()], QUERY_TIMEOUT.as_secs()));
    }
}
