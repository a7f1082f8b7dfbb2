//! `kubectl zeroscale release`: restores workloads without a running autoscaler, for users who have removed it first.
//!
//! This performs the autoscaler's own clean-up for a deleted ZeroScaler. First, for all objects, replicas become
//! max(1, min, adopted replicas), and each borrowed Service gets its selector back. Then, object by object, it waits
//! until Kubernetes' own EndpointSlices lead to the pods ([`handover`](crate::standalone::release::handover)), and
//! deletes our slices, the Services that we made, and last the finalizer. The pods of all objects start at the same
//! time, so the waits overlap, and running activators hold requests meanwhile. ZeroScalers that are being deleted
//! disappear then. The others remain without effect until an autoscaler runs again, and that autoscaler adopts their
//! targets as it finds them.
//!
//! If the scope is a namespace or the whole cluster, Services whose ZeroScaler is already gone, because its finalizer
//! was removed by hand, are restored as well. The former replicas of their workloads are no longer known.
//!
//! Users with Kubernetes' roles `edit` or `admin` may do all of this but one step: those roles cannot delete
//! EndpointSlices. If the object is being deleted, the garbage collector deletes our slices after it, since only the
//! object's finalizer kept them. If it is not being deleted, the slices would keep leading to activators, so the
//! object keeps its finalizer, and the error names the missing right.
//!
//! Every object is read before it is written, and read again after a conflict. The command may therefore run twice,
//! and beside an autoscaler that still runs. A failure with one object is reported and does not stop the others.

use crate::cluster::facts::Target;
use crate::cluster::target_key::TargetResource;
use crate::standalone::finalizer::{ADOPTED_REPLICAS, ADOPTED_TARGET, adopted_target, has_finalizer};
use crate::standalone::release::handover::{Addresses, WAIT_MAX};
use crate::standalone::release::restored_replicas;
use crate::standalone::traffic::adopt::{self, ADOPTED_BY, is_controlled_by};
use crate::standalone::traffic::slices::{SERVICE_NAME, ready};
use anyhow::{Context, ensure};
use common::names;
use common_api::ZeroScaler;
use common_controller::code;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum attempts of a write that conflicts with another writer.
const ATTEMPTS_MAX: u32 = 5;
/// Time between two polls of a pending condition.
const LOOK: Duration = Duration::from_millis(100);

/// Objects to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Named ZeroScalers of one namespace.
    Named(String, Vec<String>),
    /// All ZeroScalers of a namespace.
    Namespace(String),
    /// All ZeroScalers of the cluster.
    All,
}

/// Releases the objects of `scope` and reports each step to `report`.
///
/// # Errors
/// The objects cannot be listed, a name is unknown, or some could not be released; `report` has received the reasons.
pub async fn release(client: &Client, scope: &Scope, report: impl FnMut(String)) -> anyhow::Result<()> {
    let objects = find(client, scope).await?;
    let mut release = Release { client, report, failed: 0 };
    let mut restored = Vec::new();
    for object in &objects {
        match release.restore(object).await {
            Ok(has_target) => restored.push((object, has_target)),
            Err(error) => release.failed(&format!("{} was not released", described(object)), &error),
        }
    }
    let until = Instant::now() + WAIT_MAX;
    for (object, has_target) in restored {
        match release.clean_up(object, has_target, until).await {
            Ok(()) => (release.report)(format!("{} was released", described(object))),
            Err(error) => release.failed(&format!("{} was not released", described(object)), &error),
        }
    }
    if !matches!(scope, Scope::Named(..)) {
        release.restore_orphans(scope, &objects).await?;
    }
    ensure!(release.failed == 0, "{} objects were not released: see the reasons above", release.failed);
    Ok(())
}

async fn find(client: &Client, scope: &Scope) -> anyhow::Result<Vec<ZeroScaler>> {
    let api = api_in_scope::<ZeroScaler>(client, scope);
    let Scope::Named(namespace, names) = scope else {
        return Ok(api.list(&ListParams::default()).await.context("ZeroScalers cannot be listed")?.items);
    };
    let mut found = Vec::new();
    for name in names {
        let read = api.get_opt(name).await;
        let object = read.with_context(|| format!("ZeroScaler {namespace}/{name} cannot be read"))?;
        found.push(object.with_context(|| format!("ZeroScaler {name:?} does not exist in namespace {namespace:?}"))?);
    }
    Ok(found)
}

/// Returns the API for a kind within the scope.
fn api_in_scope<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(
    client: &Client,
    scope: &Scope,
) -> Api<K> {
    match scope {
        Scope::Named(namespace, _) | Scope::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        Scope::All => Api::all(client.clone()),
    }
}

struct Release<'a, S> {
    client: &'a Client,
    report: S,
    failed: u32,
}

impl<S: FnMut(String)> Release<'_, S> {
    /// Returns the API for a kind within the namespace of an object.
    fn beside<K>(&self, object: &impl Resource) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &namespace(object))
    }

    fn failed(&mut self, what: &str, error: &anyhow::Error) {
        self.failed += 1;
        (self.report)(format!("{what}: {error:#}"));
    }

    /// Restores the replicas and Services that an object holds. Returns whether its target exists.
    async fn restore(&mut self, object: &ZeroScaler) -> anyhow::Result<bool> {
        let uid = object.uid().context("the object has no uid")?;
        let has_target = has_finalizer(object) && self.replicas(object).await?;
        let services: Api<Service> = self.beside(object);
        for service in services.list(&ListParams::default()).await.context("Services cannot be listed")?.items {
            if service.annotations().get(ADOPTED_BY) == Some(&uid) {
                self.return_service(&services, service).await?;
            }
        }
        Ok(has_target)
    }

    /// Deletes everything that was made for an object, and removes its finalizer. Our slices stay until Kubernetes' own
    /// slices lead to the pods, but not beyond `until`.
    async fn clean_up(&mut self, object: &ZeroScaler, has_target: bool, until: Instant) -> anyhow::Result<()> {
        let uid = object.uid().context("the object has no uid")?;
        let slices: Api<EndpointSlice> = self.beside(object);
        let mut ours = slices.list(&ListParams::default()).await.context("EndpointSlices cannot be listed")?.items;
        ours.retain(|slice| is_controlled_by(slice.meta(), &uid));
        for service in ours.iter().filter_map(|slice| slice.labels().get(SERVICE_NAME)).collect::<BTreeSet<_>>() {
            while Instant::now() < until && !is_handed_over(self.client, object, service, has_target).await? {
                sleep(LOOK).await;
            }
        }
        for slice in &ours {
            self.delete_slice(&slices, slice, object).await?;
        }
        let services: Api<Service> = self.beside(object);
        for service in services.list(&ListParams::default()).await.context("Services cannot be listed")?.items {
            if is_controlled_by(service.meta(), &uid) {
                delete(&services, &service).await?;
                let (service, owner) = (service.name_any(), object.name_any());
                (self.report)(format!("service/{service} was deleted: it had been created for {owner}"));
            }
        }
        unfinalize(&self.beside(object), object).await
    }

    /// Deletes one of our slices. If the user lacks the right and the object is being deleted, the garbage collector
    /// deletes it.
    async fn delete_slice(
        &mut self,
        slices: &Api<EndpointSlice>,
        slice: &EndpointSlice,
        object: &ZeroScaler,
    ) -> anyhow::Result<()> {
        let Err(error) = delete(slices, slice).await else { return Ok(()) };
        if error.downcast_ref().and_then(code) != Some(403) {
            return Err(error);
        }
        if object.meta().deletion_timestamp.is_some() {
            let (name, owner) = (slice.name_any(), object.name_any());
            (self.report)(format!(
                "endpointslice/{name} is left to the garbage collector, which deletes it after {owner}"
            ));
            return Ok(());
        }
        let namespace = namespace(object);
        Err(error.context(format!(
            "the right to delete endpointslices of discovery.k8s.io in namespace {namespace} is missing: run the command \
             again with this right, or once the ZeroScaler is being deleted"
        )))
    }

    /// Sets the target to max(1, min, adopted replicas), unless it is gone or has that number. Returns whether it
    /// exists.
    async fn replicas(&mut self, object: &ZeroScaler) -> anyhow::Result<bool> {
        let noted = adopted_target(object.annotations());
        let reference = noted.unwrap_or_else(|| object.spec.target.clone());
        let resource = TargetResource::for_kind(&reference.api_version, &reference.kind).resource();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace(object), &resource);
        let what = format!("{} {}", reference.kind, reference.name);
        let found = api.get_opt(&reference.name).await.with_context(|| format!("{what} cannot be read"))?;
        let Some(target) = found.map(|found| Target::from_object(&found)) else { return Ok(false) };
        let current = target.current();
        let replicas = restored_replicas(object, &target, object.spec.scale.min.unwrap_or(0));
        if replicas != current {
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let patched = api.patch_scale(&reference.name, &PatchParams::default(), &patch).await;
            patched.with_context(|| format!("{what} cannot be scaled to {replicas}"))?;
            (self.report)(format!("{what} was scaled from {current} to {replicas}"));
        }
        Ok(true)
    }

    /// Restores a borrowed Service to its original form.
    async fn return_service(&mut self, services: &Api<Service>, service: Service) -> anyhow::Result<()> {
        let name = service.name_any();
        let is_borrowed = |service: &Service| service.annotations().contains_key(ADOPTED_BY);
        let replace =
            async |service: &Service| services.replace(&name, &PostParams::default(), &adopt::release(service)).await;
        let written = write(services, service, is_borrowed, replace).await;
        if written.with_context(|| format!("service/{name} cannot be given back"))? {
            (self.report)(format!("service/{name} was given back: it has its selector again"));
        }
        Ok(())
    }

    /// Restores Services that are borrowed by objects which no longer exist.
    async fn restore_orphans(&mut self, scope: &Scope, released: &[ZeroScaler]) -> anyhow::Result<()> {
        let known: BTreeSet<String> = released.iter().filter_map(ResourceExt::uid).collect();
        let services = api_in_scope::<Service>(self.client, scope).list(&ListParams::default()).await;
        for service in services.context("Services cannot be listed")?.items {
            if service.annotations().get(ADOPTED_BY).is_none_or(|uid| known.contains(uid)) {
                continue;
            }
            let what = format!("service/{} in namespace {}", service.name_any(), namespace(&service));
            (self.report)(format!("{what} belonged to a ZeroScaler that is gone: check the replicas of its workload"));
            if let Err(error) = self.return_service(&self.beside(&service), service).await {
                self.failed(&format!("{what} was not given back"), &error);
            }
        }
        Ok(())
    }
}

/// Reports whether our slices of a Service are no longer needed. A target that exists counts as one expected pod.
async fn is_handed_over(client: &Client, object: &ZeroScaler, service: &str, has_target: bool) -> anyhow::Result<bool> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace(object));
    let about = async |service: &str| -> anyhow::Result<Vec<_>> {
        let selected = ListParams::default().labels(&format!("{SERVICE_NAME}={service}"));
        let found = slices.list(&selected).await.context("EndpointSlices cannot be listed")?;
        Ok(found.items.into_iter().map(Arc::new).collect())
    };
    let pods = ready(&about(&names::private_service(&object.name_any())).await?);
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace(object));
    let found = services.get_opt(service).await.with_context(|| format!("service/{service} cannot be read"))?;
    Ok(Addresses::count(found.as_ref(), pods.max(has_target.into()), about(service).await?).is_handed_over())
}

/// Removes our finalizer and the annotations recorded with it. Succeeds if the object is gone.
async fn unfinalize(api: &Api<ZeroScaler>, object: &ZeroScaler) -> anyhow::Result<()> {
    let is_held = |present: &ZeroScaler| present.uid() == object.uid() && has_finalizer(present);
    let patch = async |present: &ZeroScaler| {
        let others: Vec<_> = present.finalizers().iter().filter(|finalizer| *finalizer != names::FINALIZER).collect();
        let patch = json!({"metadata": {
            "finalizers": others, "annotations": {ADOPTED_REPLICAS: null, ADOPTED_TARGET: null},
            "resourceVersion": present.resource_version(),
        }});
        api.patch(&present.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
    };
    write(api, object.clone(), is_held, patch).await.context("the finalizer cannot be removed")?;
    Ok(())
}

/// Writes an object, again after each conflict with another writer, as long as its present version is `due`. Returns
/// whether it was written; otherwise it is gone, or another writer was faster.
async fn write<K: Resource + Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    mut object: K,
    due: impl Fn(&K) -> bool,
    write: impl AsyncFn(&K) -> kube::Result<K>,
) -> kube::Result<bool> {
    let mut attempts = 0;
    while due(&object) {
        attempts += 1;
        match write(&object).await {
            Ok(_) => return Ok(true),
            Err(error) if code(&error) == Some(404) => break,
            Err(error) if code(&error) != Some(409) || attempts == ATTEMPTS_MAX => return Err(error),
            Err(_) => match api.get_opt(&object.name_any()).await? {
                Some(newer) => object = newer,
                None => break,
            },
        }
    }
    Ok(false)
}

/// Deletes exactly this object, by its uid. Succeeds if it is already gone.
async fn delete<K: Resource + Clone + DeserializeOwned + Debug>(api: &Api<K>, object: &K) -> anyhow::Result<()> {
    let preconditions = Some(Preconditions { uid: object.uid(), resource_version: None });
    match api.delete(&object.name_any(), &DeleteParams { preconditions, ..DeleteParams::background() }).await {
        Err(error) if !matches!(code(&error), Some(404 | 409)) => {
            Err(error).with_context(|| format!("{} cannot be deleted", object.name_any()))
        }
        _ => Ok(()),
    }
}

fn described(object: &ZeroScaler) -> String {
    format!("zeroscaler.zeroscale.dev/{} in namespace {}", object.name_any(), namespace(object))
}

fn namespace(object: &impl Resource) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server;
    use http::Method;
    use parking_lot::Mutex;
    use serde_json::Value;

    /// Returns an API server with the ZeroScaler `hello` and one of our slices, whose deletion returns this code, and
    /// its requests.
    fn server(object: &ZeroScaler, deletion: u16) -> (Client, Arc<Mutex<Vec<String>>>) {
        let object = json!(object);
        let owner = json!([{"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": "hello", "uid": "u",
            "controller": true}]);
        let slice = json!({"addressType": "IPv4", "endpoints": [], "metadata": {"name": "hello-1", "namespace": "shop",
            "uid": "s", "labels": {SERVICE_NAME: "hello"}, "ownerReferences": owner}});
        let list = |items: Vec<Value>| (200, json!({"metadata": {}, "items": items}));
        let failure = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "" };
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"}))
        };
        api_server::client(move |request| {
            let path = request.uri().path();
            Some(match (request.method(), path.rsplit('/').next().unwrap_or_default()) {
                (&Method::GET, "services") => list(vec![]),
                (&Method::GET, "endpointslices") => list(vec![slice.clone()]),
                (&Method::DELETE, "hello-1") if deletion != 200 => failure(deletion),
                (&Method::DELETE, _) => (200, json!({"kind": "Status", "status": "Success"})),
                (_, "hello") if path.contains("/zeroscalers/") => (200, object.clone()),
                _ => failure(404),
            })
        })
    }

    /// Goal: a user who may edit but not delete EndpointSlices can release an object that is being deleted. If the
    /// slices would stay, the error names the missing right. Any other failure keeps the finalizer.
    ///
    /// Each row: (object is being deleted, status of the slice's deletion, writes, reported text).
    #[tokio::test]
    async fn forbidden_slice_deletions_do_not_block_the_release_of_a_deleted_object() {
        let slice = "DELETE /apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/hello-1";
        let finalizer = "PATCH /apis/zeroscale.dev/v1alpha1/namespaces/shop/zeroscalers/hello";
        let right = "the right to delete endpointslices of discovery.k8s.io in namespace shop is missing";
        let rows = [
            (true, 200, vec![slice, finalizer], Ok("hello in namespace shop was released")),
            (true, 403, vec![slice, finalizer], Ok("endpointslice/hello-1 is left to the garbage collector")),
            (false, 200, vec![slice, finalizer], Ok("hello in namespace shop was released")),
            (false, 403, vec![slice], Err(right)),
            (true, 500, vec![slice], Err("hello in namespace shop was not released: hello-1")),
        ];
        for (is_deleted, deletion, expected, text) in rows {
            let mut object = ZeroScaler::new("hello", common_api::ZeroScalerSpec::deployment("hello"));
            object.metadata.namespace = Some("shop".to_owned());
            object.metadata.uid = Some("u".to_owned());
            object.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
            let mut object = json!(object);
            if is_deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let object = serde_json::from_value(object).expect("a ZeroScaler");
            let (client, requests) = server(&object, deletion);
            let (scope, mut output) = (Scope::Named("shop".to_owned(), vec!["hello".to_owned()]), String::new());
            let outcome = release(&client, &scope, |step| output.push_str(&format!("{step}\n"))).await;
            let writes: Vec<_> = requests.lock().iter().filter(|line| !line.starts_with("GET ")).cloned().collect();
            assert_eq!(writes, expected, "{is_deleted}, {deletion}: {output}");
            assert_eq!(outcome.is_ok(), text.is_ok(), "{is_deleted}, {deletion}: {output}");
            let (Ok(text) | Err(text)) = text;
            assert!(output.contains(text), "{is_deleted}, {deletion}: {output}");
        }
    }
}
