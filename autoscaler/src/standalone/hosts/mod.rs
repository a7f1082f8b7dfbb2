//! Ownership of hosts, decided by the rules of [`common::hosts`]. The result is written ([`ledger_writer`]) into the
//! ledger in the system namespace, which activators follow.
//!
//! A reconcile follows each event that may change an owner:
//!
//! - a ZeroScaler is created or deleted, or claims other hosts;
//! - a namespace is created, deleted or confined;
//! - a map is edited by another client;
//! - the leader changes.
//!
//! No host moves before namespaces and ledger are listed. Hosts of unknown ZeroScalers do not move until the API server
//! confirms that those ZeroScalers do not exist ([`super::unlisted`]). Events within a short time are merged into one
//! reconcile.
//!
//! ZeroScalers whose hosts change are reconciled: their status lists the hosts that they lack, and the reasons.

pub(crate) mod claims;
pub(crate) mod ledger_writer;
mod namespace_hosts;

use crate::standalone::hosts::claims::Claims;
use crate::standalone::reasons::{HOST_CONFLICT, HOST_REFUSED};
use common::RevisionKey as Key;
use common::host::HostPattern;
use common::hosts::claims::{Confinement, Ledger, Rules};
use common::hosts::ledger::{self, Grants};
use common::names;
use common_controller::{Priority, Store, WorkQueue, trimmed};
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval within which events are merged into one reconcile, which reads every claim and the whole ledger.
pub(super) const MERGED_WITHIN: Duration = Duration::from_millis(100);

/// Namespaces, the ledger, and the owners of hosts.
pub(crate) struct Hosts {
    pub(crate) namespaces: Store<Confinement>,
    pub(crate) ledger: Store<ConfigMap>,
    system_namespace: String,
    cluster_domain: String,
    claims: Arc<Claims>,
    confinements: RwLock<BTreeMap<String, Confinement>>,
    /// Set if everything has been listed and all claimants have been queued.
    is_listed: AtomicBool,
    /// Owners of hosts according to the ledger.
    owners: RwLock<HashMap<String, Key>>,
    /// Namespaces that have a map, or were just given one.
    mapped: RwLock<BTreeSet<String>>,
    /// Queue of reconciles of the ledger.
    pub(crate) queue: WorkQueue<Key>,
    /// Queue of ZeroScalers to reconcile.
    autoscalers: WorkQueue<Key>,
}

impl Hosts {
    /// Builds hosts without known owners.
    pub(crate) fn new(
        system_namespace: &str,
        cluster_domain: &str,
        claims: Arc<Claims>,
        autoscalers: WorkQueue<Key>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|hosts: &Weak<Self>| {
            let (n, l) = (hosts.clone(), hosts.clone());
            Self {
                namespaces: Store::new(move |key, old: Option<&Arc<Confinement>>, new| {
                    if let Some(hosts) = n.upgrade().filter(|_| old != new) {
                        hosts.namespace(key.name(), new.map(|confinement| Confinement::clone(confinement)));
                    }
                }),
                ledger: Store::new(move |key, old, new| {
                    if let Some(hosts) = l.upgrade() {
                        hosts.map(key, old, new);
                    }
                }),
                system_namespace: system_namespace.to_owned(),
                cluster_domain: cluster_domain.to_owned(),
                claims,
                confinements: RwLock::default(),
                is_listed: AtomicBool::new(false),
                owners: RwLock::default(),
                mapped: RwLock::default(),
                queue: WorkQueue::new(),
                autoscalers,
            }
        })
    }

    /// Follows namespaces and ledger until `shutdown`, in separate tasks.
    pub(crate) fn follow(self: &Arc<Self>, client: &Client, namespaces: &Namespaces, shutdown: &CancellationToken) {
        let (client, namespaces) = (client.clone(), namespaces.clone());
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &self.system_namespace);
        let labelled = format!("{}={}", names::LEDGER, names::LEDGER_OF_HOSTS);
        let (hosts, shutdown) = (self.clone(), shutdown.clone());
        tokio::spawn(async move {
            let listed = async {
                hosts.namespaces.synced().await;
                hosts.ledger.synced().await;
                hosts.is_listed.store(true, Ordering::Relaxed);
                hosts.queue_with_claimants(hosts.claims.claimants());
                std::future::pending().await
            };
            tokio::select! {
                () = namespace_hosts::follow(&hosts.namespaces, &client, &namespaces) => {}
                () = hosts.ledger.follow(maps, watcher::Config::default().labels(&labelled), trimmed) => {}
                () = listed => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    pub(crate) fn queue_reconcile(&self) {
        // There is only one ledger, so one constant key is enough.
        let key = Key::new(self.system_namespace.as_str(), names::LEDGER_OF_HOSTS);
        self.queue.add_after(key, MERGED_WITHIN);
    }

    /// Returns the reason why a ZeroScaler does not have a host that it claims, as a word and a sentence. Returns
    /// `None` if it has the host, or nothing is known yet.
    pub(crate) fn lost(&self, autoscaler: &Key, host: &HostPattern) -> Option<(&'static str, String)> {
        if !self.namespaces.is_synced() {
            return None;
        }
        if let Some(why) = self.rules(|rules| rules.refuse(autoscaler.namespace(), host)) {
            return Some((HOST_REFUSED, format!("host {host} is refused: {why}")));
        }
        let owners = self.owners.read();
        let owner = owners.get(&host.to_string()).filter(|owner| *owner != autoscaler)?;
        Some((HOST_CONFLICT, format!("host {host} belongs to ZeroScaler {owner}, which claimed it first")))
    }

    /// Reports whether a host leads to a workload according to the ledger.
    pub(crate) fn has(&self, workload: &Key, host: &HostPattern) -> bool {
        self.owners.read().get(&host.to_string()) == Some(workload)
    }

    /// Returns the present and the intended ledger, or `None` until everything has been listed.
    pub(super) fn settle(&self) -> Option<(Ledger, Ledger)> {
        if !(self.namespaces.is_synced() && self.ledger.is_synced()) {
            return None;
        }
        let namespaces = self.mapped.read().clone();
        let held = namespaces.into_iter().filter_map(|namespace| {
            let map = self.ledger.get(&self.map_key(&namespace))?;
            Some((namespace, read(&map)))
        });
        let held: Ledger = held.collect();
        let wanted = self.rules(|rules| self.claims.settle(&held, rules));
        Some((held, wanted))
    }

    /// Returns the unknown ZeroScalers that have hosts, and their uids.
    pub(super) fn missing(&self, held: &Ledger) -> BTreeMap<Key, String> {
        let granted = held.iter().flat_map(|(namespace, grants)| {
            grants.iter().map(move |(name, grant)| (Key::new(namespace, name), grant.uid.clone()))
        });
        granted.filter(|(key, _)| !self.claims.knows(key)).collect()
    }

    pub(super) fn map_key(&self, namespace: &str) -> Key {
        Key::new(self.system_namespace.as_str(), ledger::map_name(namespace))
    }

    /// Records that a namespace was given a map, before the watch reports it.
    pub(super) fn note_map(&self, namespace: &str) {
        self.mapped.write().insert(namespace.to_owned());
    }

    fn queue_with_claimants(&self, autoscalers: Vec<Key>) {
        self.queue_reconcile();
        for autoscaler in autoscalers {
            self.autoscalers.add(autoscaler, Priority::Slow);
        }
    }

    fn rules<T>(&self, apply: impl FnOnce(Rules<'_>) -> T) -> T {
        let namespaces = self.confinements.read();
        apply(Rules { cluster_domain: &self.cluster_domain, namespaces: &namespaces })
    }

    fn namespace(&self, name: &str, confinement: Option<Confinement>) {
        match confinement {
            Some(confinement) => self.confinements.write().insert(name.to_owned(), confinement),
            None => self.confinements.write().remove(name),
        };
        if self.is_listed.load(Ordering::Relaxed) {
            self.queue_with_claimants(self.claims.concerned_by(name, &self.cluster_domain));
        }
    }

    fn map(&self, key: &Key, old: Option<&Arc<ConfigMap>>, new: Option<&Arc<ConfigMap>>) {
        let Some(namespace) = ledger::namespace_of(key.name()) else { return };
        let owners = |map: Option<&Arc<ConfigMap>>| -> BTreeMap<String, Key> {
            let grants = map.map(|map| read(map)).unwrap_or_default();
            let hosts = ledger::hosts(&grants).map(|(host, name)| (host.to_string(), Key::new(namespace, name)));
            hosts.collect()
        };
        match new {
            Some(_) => self.mapped.write().insert(namespace.to_owned()),
            None => self.mapped.write().remove(namespace),
        };
        let (before, after) = (owners(old), owners(new));
        let changed = before.keys().chain(after.keys()).filter(|host| before.get(*host) != after.get(*host));
        let changed: BTreeSet<&String> = changed.collect();
        let mut owners = self.owners.write();
        for host in &changed {
            match after.get(*host) {
                Some(owner) => owners.insert((*host).clone(), owner.clone()),
                // The map of another namespace may have named the host already.
                None if owners.get(*host) == before.get(*host) => owners.remove(*host),
                None => None,
            };
        }
        drop(owners);
        for host in changed {
            // In a mass creation one map reports all claimants at once, and each of them is queued for a reconcile
            // anyway.
            let priority = Priority::of_change(before.get(host), after.get(host));
            self.claims.of_host(host).into_iter().for_each(|autoscaler| self.autoscalers.add(autoscaler, priority));
        }
        self.queue_reconcile();
    }
}

/// Parses a map. An unreadable map counts as empty, and is written anew.
fn read(map: &ConfigMap) -> Grants {
    ledger::grants(map.data.as_ref()).unwrap_or_else(|error| {
        tracing::error!(config_map = map.name_any(), %error, "a ConfigMap of hosts is unreadable; its hosts are assigned again");
        Grants::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standalone::hosts::claims::Named;
    use common::hosts::claims::Claim;

    fn drain(queue: &WorkQueue<Key>) -> Vec<Key> {
        let mut keys: Vec<Key> = std::iter::from_fn(|| Some(queue.try_next()?.key().clone())).collect();
        keys.sort_unstable();
        keys
    }

    #[tokio::test]
    async fn a_changed_namespace_queues_its_own_claimants_and_claimants_of_its_names() {
        let (claims, autoscalers) = (Arc::<Claims>::default(), WorkQueue::<Key>::new());
        for (namespace, host) in [("shop", "x.example.com"), ("ns", "hello.shop"), ("other", "y.example.com")] {
            let (key, hosts) = (Key::new(namespace, "web"), HostPattern::parse(host).into_iter().collect());
            let claim = Claim { uid: namespace.to_owned(), created: 1, hosts: Some(hosts) };
            claims.apply(&key, Some(Named { services: [key.clone()].into(), claim }));
        }
        let hosts = Hosts::new("system", "cluster.local", claims, autoscalers.clone());
        hosts.is_listed.store(true, Ordering::Relaxed);
        let confined = Confinement::To(Vec::new());
        for (version, confinement) in [("1", Some(Confinement::Free)), ("2", Some(confined)), ("", None)] {
            hosts.namespaces.apply(&Key::new("", "shop"), version, confinement);
            assert_eq!(drain(&autoscalers), [Key::new("ns", "web"), Key::new("shop", "web")], "version {version:?}");
        }
    }
}
