//! Scale targets of any kind, watched from the first PodAutoscaler that names the kind.
//!
//! Deployments are watched like everything else that has `/scale`: as objects of which a few facts are read. A kind is
//! watched in all namespaces, by the plural that upstream derives from its name (lower case, `s` or `es`).

use super::facts::Target;
use common::RevisionKey as Key;
use common_api::ObjectReference;
use common_controller::Store;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Group, version, kind, namespace and name of one target.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TargetKey {
    /// Group and version, such as `apps/v1`.
    pub(crate) api_version: String,
    /// Kind, such as `Deployment`.
    pub(crate) kind: String,
    /// Namespace and name.
    pub(crate) object: Key,
}

/// Why a reference leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// The reference itself cannot be used.
    #[error("spec.scaleTargetRef.{field}: {value:?}: {rule}")]
    Reference {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule it broke.
        rule: &'static str,
    },
    /// There is no such object.
    #[error("{kind} {name:?} does not exist in namespace {namespace:?}")]
    Missing {
        /// Its kind.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The kind cannot be watched, so nothing is known of the object.
    #[error("{kind} objects of {api_version} cannot be watched: {error}")]
    Unwatchable {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
        /// What the API server said.
        error: String,
    },
    /// The first list of the kind is not complete yet; its end leads to another reconcile.
    #[error("{kind} objects of {api_version} are still being listed")]
    NotListed {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
}

impl TargetKey {
    /// What a reference in `namespace` names.
    ///
    /// # Errors
    /// A field is missing, or the group and version have another form than `v1` or `apps/v1`.
    pub(crate) fn of(namespace: &str, reference: &ObjectReference) -> Result<Self, TargetError> {
        let field = |field: &'static str, value: &Option<String>| match value.as_deref() {
            Some(value) if !value.is_empty() => Ok(value.to_owned()),
            _ => Err(TargetError::Reference { field, value: String::new(), rule: "must be set" }),
        };
        let api_version = field("apiVersion", &reference.api_version)?;
        if api_version.split('/').count() > 2 || api_version.split('/').any(str::is_empty) {
            let rule = "must be VERSION or GROUP/VERSION";
            return Err(TargetError::Reference { field: "apiVersion", value: api_version, rule });
        }
        let name = field("name", &reference.name)?;
        Ok(Self { api_version, kind: field("kind", &reference.kind)?, object: Key::new(namespace, name) })
    }

    /// How the API names this kind.
    pub(crate) fn resource(&self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let kind = self.kind.to_lowercase();
        let ending = if kind.ends_with('s') { "es" } else { "s" };
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            plural: format!("{kind}{ending}"),
        }
    }
}

/// What becomes known of targets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// A target came, changed in one of its facts, or went.
    Changed(&'a TargetKey),
    /// A kind has been listed for the first time: what is not known now does not exist.
    Listed,
}

type Listener = Arc<dyn Fn(News<'_>) + Send + Sync>;

/// Group and version, and kind.
type ApiVersionKind = (String, String);

/// All kinds that some PodAutoscaler has named.
pub(crate) struct Targets {
    client: Client,
    shutdown: CancellationToken,
    kinds: Mutex<HashMap<ApiVersionKind, Arc<Store<Target>>>>,
    listener: Listener,
}

impl Targets {
    /// Nothing watched yet.
    pub(crate) fn new(
        client: Client,
        shutdown: CancellationToken,
        listener: impl Fn(News<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self { client, shutdown, kinds: Mutex::default(), listener: Arc::new(listener) }
    }

    /// The facts of a target. The first look at a kind starts its watch.
    ///
    /// # Errors
    /// It does not exist, or nothing can be said about it yet.
    pub(crate) fn get(&self, key: &TargetKey) -> Result<Arc<Target>, TargetError> {
        let store = self.store(key);
        let (kind, api_version) = (key.kind.clone(), key.api_version.clone());
        match store.get(&key.object) {
            Some(target) => Ok(target),
            None if store.is_synced() => Err(TargetError::Missing {
                kind,
                namespace: key.object.namespace().to_owned(),
                name: key.object.name().to_owned(),
            }),
            None => match store.failure() {
                Some(error) => Err(TargetError::Unwatchable { kind, api_version, error }),
                None => Err(TargetError::NotListed { kind, api_version }),
            },
        }
    }

    /// Shows the outcome of our own patch until the watch has caught up.
    pub(crate) fn offer(&self, key: &TargetKey, version: &str, target: Target) {
        self.store(key).offer(&key.object, version, target);
    }

    /// Makes a target known without a watch.
    #[cfg(test)]
    pub(crate) fn put(&self, key: &TargetKey, version: &str, target: Option<Target>) {
        let mut kinds = self.kinds.lock();
        let kind = (key.api_version.clone(), key.kind.clone());
        let store = kinds.entry(kind).or_insert_with(|| {
            let store = Arc::new(Store::new(|_: &Key, _: Option<&Arc<Target>>, _: Option<&Arc<Target>>| {}));
            store.take(watcher::Event::InitDone, |object: DynamicObject| Target::from_object(&object));
            store
        });
        store.apply(&key.object, version, target);
    }

    fn store(&self, key: &TargetKey) -> Arc<Store<Target>> {
        let mut kinds = self.kinds.lock();
        let kind = (key.api_version.clone(), key.kind.clone());
        kinds.entry(kind).or_insert_with(|| self.watch(key)).clone()
    }

    fn watch(&self, key: &TargetKey) -> Arc<Store<Target>> {
        let (api_version, kind, changed) = (key.api_version.clone(), key.kind.clone(), self.listener.clone());
        let told = move |object: &Key, old: Option<&Arc<Target>>, new: Option<&Arc<Target>>| {
            if old != new {
                let (api_version, kind) = (api_version.clone(), kind.clone());
                changed(News::Changed(&TargetKey { api_version, kind, object: object.clone() }));
            }
        };
        let store = Arc::new(Store::packing(told));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &key.resource());
        let (following, shutdown, listener) = (store.clone(), self.shutdown.clone(), self.listener.clone());
        tokio::spawn(async move {
            let follow = following.follow(api, watcher::Config::default(), |object| Target::from_object(&object));
            let listed = async {
                following.synced().await;
                listener(News::Listed);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = follow => {}
                () = listed => {}
                () = shutdown.cancelled() => {}
            }
        });
        store
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(api_version: &str, kind: &str, name: &str) -> ObjectReference {
        let some = |s: &str| Some(s.to_owned());
        ObjectReference { api_version: some(api_version), kind: some(kind), name: some(name) }
    }

    #[test]
    fn a_kind_is_asked_for_by_upstreams_plural() {
        let rows = [
            ("apps/v1", "Deployment", "apps", "v1", "deployments"),
            ("v1", "ReplicationController", "", "v1", "replicationcontrollers"),
            ("example.com/v1beta1", "Canvas", "example.com", "v1beta1", "canvases"),
        ];
        for (api_version, kind, group, version, plural) in rows {
            let resource = TargetKey::of("ns", &reference(api_version, kind, "a")).expect("usable").resource();
            assert_eq!((&*resource.group, &*resource.version, &*resource.plural), (group, version, plural));
        }
    }

    #[test]
    fn a_reference_that_cannot_be_used_is_refused_by_field() {
        let rows = [
            (reference("apps///v1", "Deployment", "a"), "spec.scaleTargetRef.apiVersion: \"apps///v1\""),
            (reference("apps/v1", "", "a"), "spec.scaleTargetRef.kind: \"\": must be set"),
            (ObjectReference { name: None, ..reference("apps/v1", "Deployment", "") }, "spec.scaleTargetRef.name"),
        ];
        for (reference, message) in rows {
            let error = TargetKey::of("ns", &reference).expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
