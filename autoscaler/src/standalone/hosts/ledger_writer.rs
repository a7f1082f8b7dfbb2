//! Writer of the host ledger: one ConfigMap in the system namespace for each namespace that has hosts.
//!
//! Only the replica that leads the ledger writes. A reconcile takes the complete result of [`super`] and writes
//! the maps that differ. Maps that lose a host to another namespace come first, so no host is ever in two maps.
//!
//! If the ZeroScalers of a namespace may be unknown ([`super::super::unlisted`]), its map stays unchanged and no other
//! namespace gets its hosts. If a map that loses hosts cannot be written, no other namespace gets these hosts until the
//! write succeeds.

use crate::cluster::error::Error;
use crate::cluster::writes::Writes;
use crate::standalone::hosts::Hosts;
use crate::standalone::unlisted::{QUERY_INTERVAL, UnlistedNamespaces};
use common::RevisionKey as Key;
use common::hosts::claims::Ledger;
use common::hosts::ledger::{self, Grants};
use common::names;
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Controller that writes the ledger.
pub(crate) struct Controller {
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) writes: Writes,
    pub(crate) unlisted: Arc<UnlistedNamespaces>,
}

impl Controller {
    /// Runs one reconcile; `led` is the key of the ledger. If the write of one map is rejected, the others are written
    /// nevertheless.
    pub(crate) async fn reconcile(&self, led: &Key) -> Result<(), Error> {
        if !self.writes.leadership.owns(led) {
            return Ok(());
        }
        let Some((held, mut wanted)) = self.hosts.settle() else { return Ok(()) };
        let (protected, mut outcome) = self.unlisted.protected(&self.hosts.missing(&held), false).await;
        if !protected.is_empty() {
            keep(&mut wanted, &held, &protected);
            self.hosts.queue.add_after(led.clone(), QUERY_INTERVAL);
        }
        let mut stuck = BTreeSet::new();
        for (namespace, grants) in before_others_gain(&held, &wanted) {
            if let Err(error) = self.write(led, namespace, &grants).await {
                stuck.insert(namespace.to_owned());
                outcome = outcome.and(Err(error));
            }
        }
        keep(&mut wanted, &held, &stuck); // No other namespace may get hosts that these maps could not lose.
        let (none, namespaces) = (Grants::new(), held.keys().chain(wanted.keys()).collect::<BTreeSet<_>>());
        for namespace in namespaces {
            outcome = outcome.and(self.write(led, namespace, wanted.get(namespace).unwrap_or(&none)).await);
        }
        outcome
    }

    async fn write(&self, led: &Key, namespace: &str, grants: &Grants) -> Result<(), Error> {
        let (store, key) = (&self.hosts.ledger, self.hosts.map_key(namespace));
        let data = ledger::data(grants);
        let labels = || BTreeMap::from([(names::LEDGER.to_owned(), names::LEDGER_OF_HOSTS.to_owned())]);
        match store.get(&key) {
            None if grants.is_empty() => {}
            None => {
                let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
                map.metadata.namespace = Some(key.namespace().to_owned());
                map.metadata.name = Some(key.name().to_owned());
                map.metadata.labels = Some(labels());
                self.writes.create(led, store, &map, "failed to create the ConfigMap of hosts").await?;
                self.hosts.note_map(namespace);
            }
            Some(_) if grants.is_empty() => {
                self.writes.delete(led, store, &key, "failed to delete the ConfigMap of hosts").await?;
            }
            Some(have) if have.data.as_ref() == Some(&data) => {}
            Some(have) => {
                let next = ConfigMap { data: Some(data), ..ConfigMap::clone(&have) };
                self.writes.replace(led, store, &next, "failed to update the ConfigMap of hosts").await?;
            }
        }
        Ok(())
    }
}

/// Keeps the held hosts of these namespaces: they gain nothing, and no other namespace gets any of them.
fn keep(wanted: &mut Ledger, held: &Ledger, namespaces: &BTreeSet<String>) {
    for (namespace, grants) in held.iter().filter(|(namespace, _)| namespaces.contains(*namespace)) {
        let held_hosts: BTreeSet<&String> = grants.values().flat_map(|grant| &grant.hosts).collect();
        for others in wanted.values_mut() {
            others.values_mut().for_each(|grant| grant.hosts.retain(|host| !held_hosts.contains(host)));
            others.retain(|_, grant| !grant.hosts.is_empty());
        }
        wanted.insert(namespace.clone(), grants.clone());
    }
}

/// Returns the maps of namespaces that lose a host to another namespace: the hosts that remain, without any gains.
fn before_others_gain<'a>(held: &'a Ledger, wanted: &Ledger) -> Vec<(&'a str, Grants)> {
    let mut goes_to: HashMap<&str, &str> = HashMap::new();
    for (namespace, grants) in wanted {
        goes_to.extend(hosts(grants).map(|host| (host, namespace.as_str())));
    }
    let is_lost = |namespace: &str, host: &str| goes_to.get(host).is_some_and(|to| *to != namespace);
    let mut left = Vec::new();
    for (namespace, grants) in held {
        if hosts(grants).any(|host| is_lost(namespace, host)) {
            let had: BTreeSet<&str> = hosts(grants).collect();
            let mut remaining = wanted.get(namespace).cloned().unwrap_or_default();
            remaining.values_mut().for_each(|grant| grant.hosts.retain(|host| had.contains(host.as_str())));
            remaining.retain(|_, grant| !grant.hosts.is_empty());
            left.push((namespace.as_str(), remaining));
        }
    }
    left
}

/// Returns all hosts of a namespace.
fn hosts(grants: &Grants) -> impl Iterator<Item = &str> {
    grants.values().flat_map(|grant| grant.hosts.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::hosts::ledger::Grant;

    fn ledger_of(rows: &[(&str, &str, &[&str])]) -> Ledger {
        let mut ledger = Ledger::new();
        for (namespace, name, hosts) in rows {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let grant = Grant { uid: format!("{namespace}/{name}"), hosts };
            ledger.entry((*namespace).to_owned()).or_default().insert((*name).to_owned(), grant);
        }
        ledger
    }

    #[test]
    fn a_host_is_removed_from_its_former_map_first() {
        let held = ledger_of(&[("a", "x", &["1", "2"]), ("b", "y", &["3"]), ("c", "z", &["4"])]);
        let wanted = ledger_of(&[("a", "x", &["2", "3"]), ("b", "y", &["1"]), ("c", "z", &["4", "5"])]);
        let left = before_others_gain(&held, &wanted);
        assert_eq!(left, [("a", ledger_of(&[("a", "x", &["2"])])["a"].clone()), ("b", Grants::new())]);
        assert_eq!(before_others_gain(&held, &held), []);
        let within = ledger_of(&[("a", "w", &["1", "2"]), ("b", "y", &["3"]), ("c", "z", &["4"])]);
        assert_eq!(before_others_gain(&held, &within), [], "within a namespace one write moves it");
        let given_up = ledger_of(&[("b", "y", &["3"]), ("c", "z", &["4"])]);
        assert_eq!(before_others_gain(&held, &given_up), [], "a released host blocks no other map");
    }
}
