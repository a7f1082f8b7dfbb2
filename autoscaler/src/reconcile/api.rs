//! Writes of objects, each shown to readers as soon as it is answered.

use super::error::{Error, code};
use super::world::store::{Store, key_of};
use common::RevisionKey as Key;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A namespaced kind that we write.
pub(crate) trait Written:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Written for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Creates `object`.
///
/// # Errors
/// The API server's, `doing` and the name before it.
pub(crate) async fn create<K: Written>(client: &Client, store: &Store<K>, object: &K, doing: &str) -> Result<K, Error> {
    let key = key_of(object);
    let api: Api<K> = Api::namespaced(client.clone(), key.namespace());
    let created = api.create(&PostParams::default(), object).await;
    Ok(offer(store, &key, created.map_err(Error::api(format!("{doing} {}", key.name())))?))
}

/// Replaces an object by `object`, which carries the version that it was made from.
///
/// # Errors
/// The API server's, `doing` and the name before it; a conflict if somebody wrote first.
pub(crate) async fn replace<K: Written>(
    client: &Client,
    store: &Store<K>,
    object: &K,
    doing: &str,
) -> Result<K, Error> {
    let key = key_of(object);
    let api: Api<K> = Api::namespaced(client.clone(), key.namespace());
    let replaced = api.replace(key.name(), &PostParams::default(), object).await;
    Ok(offer(store, &key, replaced.map_err(Error::api(format!("{doing} {}", key.name())))?))
}

/// Deletes an object; one that is not there is deleted already.
///
/// # Errors
/// The API server's, `doing` and the name before it.
pub(crate) async fn delete<K: Written>(client: &Client, store: &Store<K>, key: &Key, doing: &str) -> Result<(), Error> {
    let api: Api<K> = Api::namespaced(client.clone(), key.namespace());
    match api.delete(key.name(), &DeleteParams::background()).await {
        Err(error) if code(&error) != Some(404) => Err(Error::api(format!("{doing} {}", key.name()))(error)),
        _ => {
            store.withdraw(key);
            Ok(())
        }
    }
}

fn offer<K: Written>(store: &Store<K>, key: &Key, object: K) -> K {
    let mut held = object.clone();
    held.meta_mut().managed_fields = None;
    let version = object.meta().resource_version.clone().unwrap_or_default();
    store.offer(key, &version, held);
    object
}
