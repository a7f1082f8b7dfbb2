//! Workloads that request a ZeroScaler by the label `zeroscale.dev/enabled: "true"` on a Deployment or StatefulSet. The
//! value "false" requests none. Any other value is ignored and reported by an event on the workload.
//!
//! A ZeroScaler of the workload's name is created with defaults and the same label. The workload owns it, so both are
//! deleted together. It is also deleted when the label is removed, and gives everything back. A ZeroScaler that another
//! client created is left alone.
//!
//! No ZeroScaler is deleted before everything has been listed, because missing knowledge is no proof of a missing
//! label. A namespace without permissions counts as listed, and when the permissions return, ZeroScalers may be known
//! before their owners. Therefore the API server is asked for the owner before each deletion; each removed label causes
//! only one deletion. Without a response within [`ANSWERED_WITHIN`](super::super::unread::ANSWERED_WITHIN) nothing is
//! deleted.

use super::super::unread::answered;
use super::{COMPONENT, Scalers};
use crate::cluster::error::Error;
use crate::cluster::writes::Writes;
use common::RevisionKey as Key;
use common_api::{ZeroScaler, ZeroScalerSpec, zeroscaler};
use common_controller::changes::{Change, watch};
use common_controller::objects::{controller, controller_reference};
use common_controller::{Kind, Priority, Severity, WorkQueue, key_of};
use common_runtime::namespaces::{Namespaces, Reach};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::ListParams;
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

/// Label on a workload that requests a ZeroScaler, and on the ZeroScaler created for it.
pub(crate) const ENABLED: &str = "zeroscale.dev/enabled";
/// Number of kinds that may have the label.
const KINDS: usize = 2;

/// All workloads with the label.
#[derive(Debug, Default)]
pub(crate) struct Enabled {
    /// Requests by name, then by kind. Of two kinds with the same name, the first kind wins.
    asking: RwLock<HashMap<Key, BTreeMap<String, OwnerReference>>>,
    /// Workloads with an unknown label value, by name and kind.
    strange: RwLock<HashMap<(Key, String), Strange>>,
    /// ZeroScalers that were created for a label.
    made: RwLock<BTreeSet<Key>>,
    /// Number of kinds that have been listed.
    listed: AtomicUsize,
    queue: WorkQueue<Key>,
}

/// Unknown value of the label, and the uid of its workload.
#[derive(Clone, Debug)]
struct Strange {
    uid: Option<String>,
    value: String,
    /// Set if the event about it was sent.
    is_told: bool,
}

impl Enabled {
    /// Returns the queue of names to reconcile.
    pub(crate) fn queue(&self) -> WorkQueue<Key> {
        self.queue.clone()
    }

    /// Follows labelled workloads until `shutdown`, in separate tasks.
    pub(crate) fn follow(self: &Arc<Self>, (client, namespaces): (&Client, &Namespaces), shutdown: &CancellationToken) {
        self.each::<Deployment>(namespaces.reach(client), shutdown);
        self.each::<StatefulSet>(namespaces.reach(client), shutdown);
    }

    fn each<K: Kind>(self: &Arc<Self>, reach: Reach<K>, shutdown: &CancellationToken) {
        let (enabled, shutdown) = (self.clone(), shutdown.clone());
        let mut changes = watch(reach, Config::default().labels(ENABLED));
        let mut is_listed = false; // A broken watch lists again, which must not count twice.
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = shutdown.cancelled() => return,
                };
                match change {
                    Some(Change::Applied(object)) => {
                        let value = object.labels().get(ENABLED).map(String::as_str).unwrap_or_default();
                        enabled.note::<K>(&key_of(&object), &object, value);
                        if value != "true" {
                            enabled.tell::<K>(&key_of(&object), None);
                            continue;
                        }
                        // Blocking the owner's deletion would require permissions on owners.
                        let owner = OwnerReference { block_owner_deletion: None, ..controller_reference(&object) };
                        enabled.tell::<K>(&key_of(&object), Some(owner));
                    }
                    Some(Change::Gone(key)) => {
                        enabled.strange.write().remove(&(key.clone(), K::kind(&()).into_owned()));
                        enabled.tell::<K>(&key, None);
                    }
                    Some(Change::Listed) => {
                        if !std::mem::replace(&mut is_listed, true) {
                            enabled.listed.fetch_add(1, Ordering::AcqRel);
                        }
                        enabled.look_at_made();
                    }
                    None => return,
                }
            }
        });
    }

    /// Records an unknown value of a workload's label, or forgets it after a correction.
    fn note<K: Kind>(&self, key: &Key, object: &K, value: &str) {
        let (at, uid) = ((key.clone(), K::kind(&()).into_owned()), object.uid());
        let mut strange = self.strange.write();
        if value == "true" || value == "false" {
            strange.remove(&at);
        } else if strange.get(&at).is_none_or(|known| known.value != value || known.uid != uid) {
            strange.insert(at, Strange { uid, value: value.to_owned(), is_told: false });
        }
    }

    /// Reports an unknown label value by an event, once.
    fn complain<K: Kind>(&self, key: &Key, writes: &Writes, about: impl FnOnce(ObjectMeta) -> K) {
        let mut strange = self.strange.write();
        let at = (key.clone(), K::kind(&()).into_owned());
        let Some(found) = strange.get_mut(&at).filter(|found| !found.is_told) else { return };
        found.is_told = true;
        let message = format!(
            "label {ENABLED}: {:?} asks for nothing: \"true\" makes a ZeroScaler, \"false\" makes none; set it to one of them",
            found.value
        );
        let (name, namespace) = (Some(key.name().to_owned()), Some(key.namespace().to_owned()));
        let object = about(ObjectMeta { name, namespace, uid: found.uid.clone(), ..ObjectMeta::default() });
        writes.recorder.say(COMPONENT, &object, Severity::Warning, "LabelNotUnderstood", message);
    }

    /// Records the request of a workload, or its end if `reference` is `None`.
    fn tell<K: Kind>(&self, key: &Key, reference: Option<OwnerReference>) {
        {
            let (mut asking, kind) = (self.asking.write(), K::kind(&()).into_owned());
            match reference {
                Some(reference) => {
                    asking.entry(key.clone()).or_default().insert(kind, reference);
                }
                None => {
                    if let Some(kinds) = asking.get_mut(key) {
                        kinds.remove(&kind);
                        if kinds.is_empty() {
                            asking.remove(key);
                        }
                    }
                }
            }
        }
        self.queue.add(key.clone(), Priority::Normal);
    }

    /// Records the present ZeroScaler of this name; `None` if there is none.
    pub(super) fn take(&self, key: &Key, object: Option<&ZeroScaler>) {
        let is_made = object.is_some_and(is_made);
        let mut made = self.made.write();
        match is_made {
            true => made.insert(key.clone()),
            false => made.remove(key),
        };
        drop(made);
        // If a requested ZeroScaler is deleted, another must be created.
        if is_made || object.is_none() {
            self.queue.add(key.clone(), Priority::Normal);
        }
    }

    /// Queues all ZeroScalers that were created for a label.
    fn look_at_made(&self) {
        let made: Vec<Key> = self.made.read().iter().cloned().collect();
        made.into_iter().for_each(|key| self.queue.add(key, Priority::Slow));
    }

    /// Returns the workload that requests a ZeroScaler of this name.
    fn asking(&self, key: &Key) -> Option<OwnerReference> {
        self.asking.read().get(key)?.values().next().cloned()
    }

    /// Reconciles one name.
    ///
    /// # Errors
    /// Returns errors of the API server.
    pub(crate) async fn reconcile(&self, key: &Key, scalers: &Scalers, writes: &Writes) -> Result<(), Error> {
        if !writes.leadership.owns(key) {
            return Ok(());
        }
        self.complain(key, writes, |metadata| Deployment { metadata, ..Deployment::default() });
        self.complain(key, writes, |metadata| StatefulSet { metadata, ..StatefulSet::default() });
        match (self.asking(key), scalers.get(key)) {
            (Some(workload), None) => {
                let made = made_for(key, workload);
                writes.create(key, &scalers.objects, &made, "failed to make the ZeroScaler of a label").await?;
            }
            (asking, Some(have)) if is_made(&have) && have.metadata.deletion_timestamp.is_none() => {
                let owner = controller(&have.metadata).map(|owner| owner.uid.as_str());
                let is_asked_for = asking.is_some_and(|workload| Some(workload.uid.as_str()) == owner);
                let is_listed = self.listed.load(Ordering::Acquire) >= KINDS;
                if is_listed && !is_asked_for && !is_asking(&writes.client, key, &have).await? {
                    writes.delete(key, &scalers.objects, key, "failed to delete the ZeroScaler of a label").await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Queues all labels and created ZeroScalers, because a new leader ignored all events before it became the leader.
    pub(crate) fn look(&self) {
        let mut asking: Vec<Key> = self.asking.read().keys().cloned().collect();
        asking.extend(self.strange.read().keys().map(|(key, _)| key.clone()));
        asking.into_iter().for_each(|key| self.queue.add(key, Priority::Slow));
        self.look_at_made();
    }
}

/// Reports whether a ZeroScaler was created for a label.
fn is_made(object: &ZeroScaler) -> bool {
    object.labels().get(ENABLED).is_some_and(|value| value == "true") && controller(&object.metadata).is_some()
}

/// Asks the API server whether the owner of a ZeroScaler exists and has the label.
async fn is_asking(client: &Client, key: &Key, have: &ZeroScaler) -> Result<bool, Error> {
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
    let doing = format!("failed to look for the label of {} {}", owner.kind, owner.name);
    let list = answered(doing, owners.list_metadata(&named)).await?;
    Ok(list.items.iter().map(|found| &found.metadata).any(|meta| {
        let label = meta.labels.as_ref().and_then(|labels| labels.get(ENABLED));
        meta.uid.as_deref() == Some(owner.uid.as_str()) && label.is_some_and(|value| value == "true")
    }))
}

/// Returns the ZeroScaler for a workload's label.
fn made_for(key: &Key, workload: OwnerReference) -> ZeroScaler {
    let target = zeroscaler::Target {
        api_version: workload.api_version.clone(),
        kind: workload.kind.clone(),
        name: workload.name.clone(),
    };
    let mut made = ZeroScaler::new(key.name(), ZeroScalerSpec { target, ..ZeroScalerSpec::default() });
    made.metadata.namespace = Some(key.namespace().to_owned());
    made.metadata.labels = Some([(ENABLED.to_owned(), "true".to_owned())].into());
    made.metadata.owner_references = Some(vec![workload]);
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::ports::Numbers;
    use crate::standalone::unread::ANSWERED_WITHIN;
    use common::write_rate::Rate;
    use common_controller::Alone;
    use common_controller::{Recorder, WriteLimiter};
    use common_runtime::clock::Clock;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::time::Instant;
    use tower_test::mock;

    fn drained(queue: &WorkQueue<Key>) -> Vec<String> {
        let mut keys: Vec<_> = std::iter::from_fn(|| queue.try_next()).map(|item| item.key().to_string()).collect();
        keys.sort_unstable();
        keys
    }

    /// Goal: a new leader looks at every label, also at removed ones, because a process that does not lead ignores
    /// events.
    #[tokio::test]
    async fn who_leads_anew_looks_at_every_label() {
        let scalers = Scalers::new(Arc::new(Alone), Numbers::new("system", WorkQueue::new()));
        let queue = scalers.enabled.queue();
        let owner = OwnerReference { uid: "d".into(), controller: Some(true), ..OwnerReference::default() };
        let mut made = made_for(&Key::new("ns", "made"), owner.clone());
        (made.metadata.uid, made.metadata.resource_version) = (Some("u".to_owned()), Some("1".to_owned()));
        scalers.take(made, &|_, _, _| {});
        scalers.enabled.tell::<Deployment>(&Key::new("ns", "asks"), Some(owner));
        assert_eq!(drained(&queue), ["ns/asks", "ns/made"]);
        assert_eq!(drained(&queue), [""; 0]);
        scalers.enabled.look();
        assert_eq!(drained(&queue), ["ns/asks", "ns/made"]);
    }

    /// Goal: an unknown value is reported once, another unknown value again, and known values never.
    #[test]
    fn a_value_that_means_nothing_is_noted_until_it_is_told() {
        let enabled = Enabled::default();
        let (key, object) = (Key::new("ns", "a"), Deployment::default());
        let at = (key.clone(), "Deployment".to_owned());
        for (value, is_new) in
            [("yes", true), ("yes", false), ("True", true), ("true", false), ("False", true), ("false", false)]
        {
            enabled.note(&key, &object, value);
            let found = enabled.strange.write().get_mut(&at).map(|found| !std::mem::replace(&mut found.is_told, true));
            assert_eq!(found.unwrap_or(false), is_new, "{value}");
        }
    }

    /// Returns the requests sent by a reconcile of `ns/made`, whose owner this process does not know, and the result.
    /// The API server has these Deployments; `None`: it does not respond.
    async fn asked_for(deployments: Option<Value>) -> (Vec<String>, Result<(), Error>) {
        let (service, mut server) = mock::pair::<Request<Body>, Response<Body>>();
        let (client, limiter) = (Client::new(service, "default"), WriteLimiter::new(Rate::WITH_CONTROLLER));
        let writes = Writes {
            client: client.clone(),
            leadership: Arc::new(Alone),
            limiter: limiter.clone(),
            decisions: WorkQueue::new(),
            recorder: Recorder::limited(client, limiter, CancellationToken::new()),
            clock: Clock::system(),
        };
        let scalers = Scalers::new(Arc::new(Alone), Numbers::new("system", WorkQueue::new()));
        let key = Key::new("ns", "made");
        let owner = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "made".into(),
            uid: "d".into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let mut made = made_for(&key, owner);
        (made.metadata.uid, made.metadata.resource_version) = (Some("u".to_owned()), Some("1".to_owned()));
        scalers.take(made, &|_, _, _| {});
        scalers.enabled.listed.store(KINDS, Ordering::Release);
        let mut asked = Vec::new();
        let answering = async {
            let mut unanswered = Vec::new();
            loop {
                let (request, respond) = server.next_request().await.expect("the client lives");
                asked.push(format!("{} {}", request.method(), request.uri().path()));
                let Some(items) = &deployments else {
                    unanswered.push(respond);
                    continue;
                };
                let list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {}, "items": items});
                respond.send_response(Response::new(Body::from(list.to_string().into_bytes())));
            }
        };
        let outcome = tokio::select! {
            outcome = scalers.enabled.reconcile(&key, &scalers, &writes) => outcome,
            () = answering => Ok(()),
        };
        (asked, outcome)
    }

    const LOOK: &str = "GET /apis/apps/v1/namespaces/ns/deployments";

    /// Goal: the ZeroScaler of a label stays while its owner has the label, although this process does not know that
    /// yet. It is deleted if the owner is gone, has lost the label, or has another uid.
    #[tokio::test]
    async fn what_is_asked_for_is_not_deleted_by_who_does_not_know_it_yet() {
        let owner = |uid: &str, label: &str| {
            let metadata = json!({"name": "made", "uid": uid, "labels": {ENABLED: label}});
            json!([{"metadata": metadata}])
        };
        let (asked, outcome) = asked_for(Some(owner("d", "true"))).await;
        outcome.expect("a look");
        assert_eq!(asked, [LOOK]);
        let delete = "DELETE /apis/zeroscale.dev/v1alpha1/namespaces/ns/zeroscalers/made";
        for shown in [json!([]), owner("d", "false"), owner("another", "true")] {
            let (asked, outcome) = asked_for(Some(shown.clone())).await;
            outcome.expect("a look");
            assert_eq!(asked, [LOOK, delete], "{shown}");
        }
    }

    /// Goal: an API server that does not respond about the owner delays the other labels only for seconds, and nothing
    /// is deleted.
    #[tokio::test(start_paused = true)]
    async fn who_is_not_answered_for_is_not_deleted() {
        let begun = Instant::now();
        let (asked, outcome) = asked_for(None).await;
        outcome.expect_err("nobody knows");
        assert_eq!((asked, begun.elapsed().as_secs()), (vec![LOOK.to_owned()], ANSWERED_WITHIN.as_secs()));
    }
}
