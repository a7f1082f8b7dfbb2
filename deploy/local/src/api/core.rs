//! State of the server, shared by all requests: store, resources, addresses.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::access::Audit;
use super::address::SERVICES;
use super::crd;
use super::identity::Tokens;
use super::query::WriteOptions;
use super::resource::{Registry, Resource, Target};
use super::store::{Clash, Object, Store, Write};
use crate::Range;
use crate::pool::Pool;
use crate::usage::UsageTable;

/// State behind the HTTP interface.
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: ArcSwap<Registry>,
    /// ClusterIPs of Services.
    pub(crate) addresses: Pool,
    pub(crate) tokens: Tokens,
    /// Audit of requests.
    pub(crate) audit: Option<Audit>,
    /// Folder in which the node keeps the logs of pods.
    pub(crate) logs: RwLock<Option<PathBuf>>,
    pub(crate) usage: RwLock<Option<UsageTable>>,
    pub(crate) shutdown: CancellationToken,
    /// Lock for replacing the registry.
    definitions: Mutex<()>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("version", &self.store.version()).finish_non_exhaustive()
    }
}

impl Api {
    /// Creates the state with these resources and the standard namespaces of a cluster.
    pub(crate) fn new(
        registry: Registry,
        token: &str,
        services: Range,
        history: usize,
        audit: Option<Audit>,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let api = Arc::new(Api {
            store: Store::new(history),
            registry: ArcSwap::from_pointee(registry),
            addresses: Pool::new(services, []),
            tokens: Tokens::new(token),
            audit,
            logs: RwLock::new(None),
            usage: RwLock::new(None),
            shutdown,
            definitions: Mutex::new(()),
        });
        let namespaces = api.registry.load().get("", "v1", "namespaces");
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            if let Some(resource) = &namespaces
                && let Err(error) =
                    api.create(resource, "", json!({"metadata": {"name": name}}), &WriteOptions::default())
            {
                tracing::error!(namespace = name, error = %error.body, "the namespace cannot be created");
            }
        }
        api
    }

    /// Creates the state with the built-in resources, for tests.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        let range = "10.96.0.0/16".parse().expect("a range");
        Self::new(super::builtin::registry(), "token", range, 16, None, CancellationToken::new())
    }

    /// Adds resources.
    pub(crate) fn add_resources(&self, resources: impl IntoIterator<Item = Resource>) {
        let _guard = self.definitions.lock();
        let mut registry = Registry::clone(&self.registry.load());
        resources.into_iter().for_each(|resource| registry.insert(Arc::new(resource)));
        self.registry.store(Arc::new(registry));
    }

    /// Writes to the store, and updates addresses and resources accordingly.
    pub(crate) fn commit(&self, target: Target<'_>, expect: Option<u64>, write: Write) -> Result<Arc<Object>, Clash> {
        let resource = target.resource;
        let gone = matches!(write, Write::Delete(_));
        let namespace = resource.namespaced.then_some(target.namespace);
        let definition = &*resource.table == crd::TABLE;
        let _guard = definition.then(|| self.definitions.lock());
        let before = if &*resource.table == SERVICES { self.store.get(SERVICES, &target.key()) } else { None };
        let object = self.store.commit(&resource.table, &target.key(), expect, write, namespace)?;
        let address = |object: &Object| object.text("/spec/clusterIP").parse::<Ipv4Addr>().ok();
        if let Some(before) = before.and_then(|before| address(&before))
            && (gone || address(&object) != Some(before))
        {
            self.addresses.give_back(before);
        }
        if definition {
            let mut registry = Registry::clone(&self.registry.load());
            let table: Arc<str> = crd::table_of(&object.value).into();
            registry.remove_table(&table);
            if !gone {
                self.store.open_table(&table);
                crd::resources(&object.value).into_iter().for_each(|r| registry.insert(Arc::new(r)));
            }
            self.registry.store(Arc::new(registry));
            if gone {
                self.store.drop_table(&table);
            }
        }
        Ok(object)
    }
}
