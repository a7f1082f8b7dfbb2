//! Workloads that ask for a ZeroScaler by a label alone: `zeroscale.dev/enabled: "true"` on a Deployment or a StatefulSet. With
//! "false" one asks for none. Any other value asks for nothing, and an event on the workload says so.
//!
//! One of its name is made, with defaults and the same label, and owned by the workload: it goes when the workload goes.
//! It goes as well when the label does, and gives everything back. One that somebody else has made is left alone.
//!
//! Nothing is taken away before everything has been listed: who does not know the labels yet does not know that one is
//! missing. A namespace whose rights are missing counts as listed, and where they come back ZeroScalers may be known before
//! their owners. So the API server is asked for the owner before each deletion, of which there is one for each label. Where
//! there is no answer within [`ANSWERED_WITHIN`](super::super::unread::ANSWERED_WITHIN), nothing is deleted.

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

/// Label on a workload that asks, and on the ZeroScaler that was made for it.
pub(crate) const ENABLED: &str = "zeroscale.dev/enabled";
/// Kinds that may ask.
const KINDS: usize = 2;

/// All that ask.
#[derive(Debug, Default)]
pub(crate) struct Enabled {
    /// By name, and then by kind: of two with one name the first by its kind.
    asking: RwLock<HashMap<Key, BTreeMap<String, OwnerReference>>>,
    /// Workloads whose label has a value that means nothing, by name and kind.
    strange: RwLock<HashMap<(Key, String), Strange>>,
    /// ZeroScalers that were made for a label.
    made: RwLock<BTreeSet<Key>>,
    /// Kinds that have been listed.
    listed: AtomicUsize,
    queue: WorkQueue<Key>,
}

/// A value of the label that means nothing, and what has it.
#[derive(Clone, Debug)]
struct Strange {
    uid: Option<String>,
    value: String,
    /// Set once it has been told.
    is_told: bool,
}

impl Enabled {
    /// Names to look at.
    pub(crate) fn queue(&self) -> WorkQueue<Key> {
        self.queue.clone()
    }

    /// Follows who asks until `shutdown`, in tasks of their own.
    pub(crate) fn follow(self: &Arc<Self>, (client, namespaces): (&Client, &Namespaces), shutdown: &CancellationToken) {
        self.each::<Deployment>(namespaces.reach(client), shutdown);
        self.each::<StatefulSet>(namespaces.reach(client), shutdown);
    }

    fn each<K: Kind>(self: &Arc<Self>, reach: Reach<K>, shutdown: &CancellationToken) {
        let (enabled, shutdown) = (self.clone(), shutdown.clone());
        let mut changes = watch(reach, Config::default().labels(ENABLED));
        let mut is_listed = false; // A watch that broke is listed again.
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
                        // To make the owner's end wait for us would take a right over owners.
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

    /// Takes in the value of a workload's label, if it means nothing.
    fn note<K: Kind>(&self, key: &Key, object: &K, value: &str) {
        let (at, uid) = ((key.clone(), K::kind(&()).into_owned()), object.uid());
        let mut strange = self.strange.write();
        if value == "true" || value == "false" {
            strange.remove(&at);
        } else if strange.get(&at).is_none_or(|known| known.value != value || known.uid != uid) {
            strange.insert(at, Strange { uid, value: value.to_owned(), is_told: false });
        }
    }

    /// Says of a workload, once, that the value of its label means nothing.
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

    /// Takes in that one asks; none: it does not.
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

    /// Takes in a ZeroScaler as it is now; none: there is none of this name.
    pub(super) fn take(&self, key: &Key, object: Option<&ZeroScaler>) {
        let is_made = object.is_some_and(is_made);
        let mut made = self.made.write();
        match is_made {
            true => made.insert(key.clone()),
            false => made.remove(key),
        };
        drop(made);
        // Who asks for one that is gone is to have another.
        if is_made || object.is_none() {
            self.queue.add(key.clone(), Priority::Normal);
        }
    }

    /// Looks again at those that were made.
    fn look_at_made(&self) {
        let made: Vec<Key> = self.made.read().iter().cloned().collect();
        made.into_iter().for_each(|key| self.queue.add(key, Priority::Slow));
    }

    /// Who asks for one of this name.
    fn asking(&self, key: &Key) -> Option<OwnerReference> {
        self.asking.read().get(key)?.values().next().cloned()
    }

    /// One look at one name.
    ///
    /// # Errors
    /// The API server's.
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

    /// Looks at all labels again: whoever leads now has passed by what it has been told before.
    pub(crate) fn look(&self) {
        let mut asking: Vec<Key> = self.asking.read().keys().cloned().collect();
        asking.extend(self.strange.read().keys().map(|(key, _)| key.clone()));
        asking.into_iter().for_each(|key| self.queue.add(key, Priority::Slow));
        self.look_at_made();
    }
}

/// Whether one was made for a label.
fn is_made(object: &ZeroScaler) -> bool {
    object.labels().get(ENABLED).is_some_and(|value| value == "true") && controller(&object.metadata).is_some()
}

/// Whether the owner of one is there and has the label, as the API server has it now.
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

/// The one that a workload's label stands for.
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

    /// Goal: who leads from now on looks at every label, at those that have gone as well: whoever is told of one and does not
    /// lead passes it by.
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

    /// Goal: a value that means nothing is told of once, another one again, and those that mean something never.
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

    /// What a look at `ns/made` asks for, whose owner this process does not know, and what comes of it, beside an API server
    /// that has these Deployments; none: it gives no answer.
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

    /// Goal: the ZeroScaler of a label stays while its owner has the label, though this process has not been told of it
    /// yet; of an owner that has gone, has lost the label, or is another one by uid it does not.
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

    /// Goal: an API server that does not answer who the owner is keeps the other labels waiting for seconds, and nothing is
    /// deleted.
    #[tokio::test(start_paused = true)]
    async fn who_is_not_answered_for_is_not_deleted() {
        let begun = Instant::now();
        let (asked, outcome) = asked_for(None).await;
        outcome.expect_err("nobody knows");
        assert_eq!((asked, begun.elapsed().as_secs()), (vec![LOOK.to_owned()], ANSWERED_WITHIN.as_secs()));
    }
}
