//! State of the server, shared by all requests: store, resources, addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::access::Audit;
use super::identity::Tokens;
use super::prepare::SERVICES;
use super::query::WriteOptions;
use super::resource::{Registry, Resource, Target};
use super::store::{Clash, NAMESPACES, Object, Store};
use super::{builtin, crd};
use crate::Range;
use crate::pool::Pool;
use crate::usage::UsageTable;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    /// Address to listen on: a loopback address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Bearer token of the administrator; `None` generates one.
    pub token: Option<String>,
    /// Range of ClusterIPs.
    pub service_range: Range,
    /// Number of changes in the history of each resource, for watches.
    pub history: usize,
    /// Callback for every request.
    pub audit: Option<Audit>,
    /// Address of the cluster's dashboard, for the kubeconfig.
    pub dashboard: Option<SocketAddr>,
}

impl ApiOptions {
    /// Returns the defaults: a free port of 127.0.0.1, a generated token, and a history of 8192 changes for each
    /// resource.
    pub fn new(service_range: Range) -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        ApiOptions { listen, token: None, service_range, history: 8192, audit: None, dashboard: None }
    }
}

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

impl Api {
    /// Creates the state with the built-in resources and the standard namespaces of a cluster.
    pub(crate) fn new(options: &ApiOptions, token: &str) -> Arc<Self> {
        let api = Arc::new(Api {
            store: Store::new(options.history),
            registry: ArcSwap::from_pointee(builtin::registry()),
            addresses: Pool::new(options.service_range, []),
            tokens: Tokens::new(token),
            audit: options.audit.clone(),
            logs: RwLock::new(None),
            usage: RwLock::new(None),
            shutdown: CancellationToken::new(),
            definitions: Mutex::new(()),
        });
        let namespaces = api.registry.load().by_table(NAMESPACES);
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let body = json!({"metadata": {"name": name}});
            let created = namespaces.as_ref().map(|resource| api.create(resource, "", body, &WriteOptions::default()));
            if let Some(Err(error)) = created {
                tracing::error!(namespace = name, error = %error.body, "the namespace cannot be created");
            }
        }
        api
    }

    /// Creates the state with the built-in resources, for tests.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        let range = "10.96.0.0/16".parse().expect("a range");
        Self::new(&ApiOptions { history: 16, ..ApiOptions::new(range) }, "token")
    }

    pub(crate) fn add_resource(&self, resource: Resource) {
        let _guard = self.definitions.lock();
        let mut registry = Registry::clone(&self.registry.load());
        registry.insert(Arc::new(resource));
        self.registry.store(Arc::new(registry));
    }

    /// Writes to the store ([`Store::commit`]), and updates addresses and resources accordingly.
    pub(crate) fn commit(
        &self,
        target: Target<'_>,
        expect: Option<u64>,
        value: Option<Value>,
    ) -> Result<Arc<Object>, Clash> {
        let resource = target.resource;
        let gone = value.is_none();
        let namespace = resource.namespaced.then_some(target.namespace);
        let definition = &*resource.table == crd::TABLE;
        let _guard = definition.then(|| self.definitions.lock());
        let before = if &*resource.table == SERVICES { self.store.get(SERVICES, &target.key()) } else { None };
        let object = self.store.commit(&resource.table, &target.key(), expect, value, namespace)?;
        let address = |object: &Object| object.text("/spec/clusterIP").parse::<Ipv4Addr>().ok();
        if let Some(before) = before.and_then(|before| address(&before))
            && (gone || address(&object) != Some(before))
        {
            self.addresses.release(before);
        }
        if definition {
            let mut registry = Registry::clone(&self.registry.load());
            let table: Arc<str> = crd::table_of(&object.value).into();
            registry.remove_table(&table);
            if !gone {
                self.store.open_table(&table);
                crd::resources(&object.value).into_iter().for_each(|resource| registry.insert(Arc::new(resource)));
            }
            self.registry.store(Arc::new(registry));
            if gone {
                self.store.drop_table(&table);
            }
        }
        Ok(object)
    }
}
