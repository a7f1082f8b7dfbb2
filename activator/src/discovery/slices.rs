//! Union of the EndpointSlices or Endpoints of each revision.
//!
//! The addresses of a Service come in several slices, separate objects that change independently; only their union
//! counts. [`Index`] stores the relevant part of each object. If an object changes, it returns the revision whose union
//! may have changed. Objects without addresses are not stored.
//!
//! # Edge cases
//!
//! - Terminating addresses are left out: their program may refuse new requests at any moment.
//! - The condition `ready` may be absent, which Kubernetes defines as ready.
//! - Slices of families other than IPv4 and IPv6 (`FQDN`) hold no addresses.
//! - A slice without a port of the wanted name: its only port is taken in standalone mode, none in knative mode.

use super::{Event, Listing, Spec};
use activator_core::Destination;
use common::RevisionKey;
use common::names;
use common::pod_names::PodNames;
use common_controller::ObjectKey;
use common_controller::objects::controller;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Addresses that one object contributes to one Service of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: RevisionKey,
    pub(crate) role: ServiceRole,
    pub(crate) controller_uid: Option<Arc<str>>,
    pub(crate) ports: Box<[(Box<str>, u16)]>,
    /// Addresses, each with its readiness.
    pub(crate) addresses: Addresses,
    /// Names of the pods at these addresses, for slices that Kubernetes writes. Empty if unknown.
    pods: Box<[Box<str>]>,
}

type Addresses = Arc<[(IpAddr, bool)]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServiceRole {
    /// Service that selects the pods.
    Private,
    /// Service that clients call.
    Public,
}

/// Entries of every object that has addresses.
#[derive(Debug, Default)]
pub(crate) struct Index {
    objects: BTreeMap<ObjectKey, Box<[Entry]>>,
    objects_by_revision: BTreeSet<(RevisionKey, ObjectKey)>,
    /// Last addresses of activators. They are the same for all sleeping workloads, so entries share one copy.
    activators: Addresses,
}

pub(crate) type ServiceRef = (RevisionKey, ServiceRole);

/// Rule for choosing a port if none has the wanted name. Without a wanted name, `http` or `http2` is used, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortRule {
    /// The only port of the slice, if it has just one.
    NamedOrOnly,
    /// No port.
    Named,
}

impl Entry {
    /// Reads a slice of standalone mode; returns nothing if it belongs to no revision.
    pub(crate) fn of_slice(slice: &EndpointSlice) -> Vec<Self> {
        let Some((key, role)) = service_ref(slice, names::SIDE, names::WORKLOAD) else { return Vec::new() };
        let ports = slice.ports.iter().flatten();
        let ports =
            ports.filter_map(|p| Some((p.name.as_deref().unwrap_or_default().into(), u16::try_from(p.port?).ok()?)));
        let is_ours = slice.labels().get(names::SLICE_MANAGED_BY).is_some_and(|by| by == names::MANAGED_BY);
        let names_pods = role == ServiceRole::Private && !is_ours;
        let addresses = slice.endpoints.iter().flatten().filter_map(|endpoint| {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let ready = conditions.ready.unwrap_or(true);
            let usable = !conditions.terminating.unwrap_or(false);
            let pod = endpoint.target_ref.as_ref().filter(|_| names_pods).and_then(|pod| pod.name.as_deref());
            usable.then_some(((endpoint.addresses.first()?.parse().ok()?, ready), Box::from(pod.unwrap_or_default())))
        });
        let (addresses, pods): (Vec<_>, Vec<Box<str>>) = addresses.unzip();
        let controller_uid = controller(&slice.metadata).map(|owner| owner.uid.as_str().into());
        let has_names = pods.iter().any(|pod| !pod.is_empty());
        let pods = if has_names { pods.into() } else { Box::default() };
        vec![Self { key, role, controller_uid, ports: ports.collect(), addresses: addresses.into(), pods }]
    }

    /// Reads Endpoints of Knative, one entry per subset; returns nothing if they belong to no revision.
    pub(crate) fn of_endpoints(endpoints: &Endpoints) -> Vec<Self> {
        let Some((key, role)) = service_ref(endpoints, names::SERVICE_TYPE, names::REVISION) else { return Vec::new() };
        let subsets = endpoints.subsets.iter().flatten();
        let entry = |subset: &k8s_openapi::api::core::v1::EndpointSubset| {
            let ports = subset.ports.iter().flatten();
            let ports =
                ports.filter_map(|p| Some((p.name.as_deref().unwrap_or_default().into(), u16::try_from(p.port).ok()?)));
            let ready = subset.addresses.iter().flatten().map(|address| (address, true));
            let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
            let addresses = ready.chain(not_ready);
            let addresses = addresses.filter_map(|(address, ready)| Some((address.ip.parse().ok()?, ready))).collect();
            let (key, ports) = (key.clone(), ports.collect());
            Self { key, role, controller_uid: None, ports, addresses, pods: Box::default() }
        };
        subsets.map(entry).collect()
    }

    /// Replaces equal names by those of `spec`, so that all data of a revision shares one copy of each.
    pub(crate) fn share(&mut self, spec: &Spec) {
        if self.key == spec.key {
            self.key = spec.key.clone();
        }
        if self.controller_uid.as_ref() == Some(&spec.uid) {
            self.controller_uid = Some(spec.uid.clone());
        }
    }

    fn port(&self, wanted: Option<&str>, rule: PortRule) -> Option<u16> {
        let named = |name: &str| self.ports.iter().find(|(n, _)| **n == *name).map(|(_, port)| *port);
        match (wanted, rule, &*self.ports) {
            (Some(name), _, _) if named(name).is_some() => named(name),
            (_, PortRule::NamedOrOnly, [(_, only)]) => Some(*only),
            (None, _, _) => named("http").or_else(|| named("http2")),
            _ => None,
        }
    }
}

impl Index {
    /// Stores the entries of one object, which are none if it was deleted. Returns the Services whose union may have
    /// changed.
    pub(crate) fn set(&mut self, name: ObjectKey, entries: Vec<Entry>) -> Vec<ServiceRef> {
        let with_addresses = entries.into_iter().filter(|entry| !entry.addresses.is_empty());
        let entries: Box<[Entry]> = with_addresses.map(|entry| self.shared(entry)).collect();
        let service_ref_of = |entries: &[Entry]| entries.first().map(|entry| (entry.key.clone(), entry.role));
        let service = service_ref_of(&entries);
        let former = match &service {
            Some(_) if self.objects.get(&name) == Some(&entries) => return Vec::new(),
            Some(_) => self.objects.insert(name.clone(), entries),
            None => self.objects.remove(&name),
        };
        let mut changed = Vec::new();
        // The object was deleted, relabelled, or has no addresses any more: its former revision must be updated.
        let former = former.as_deref().and_then(service_ref_of);
        if let Some(former) = former.filter(|former| Some(former) != service.as_ref()) {
            self.objects_by_revision.remove(&(former.0.clone(), name.clone()));
            changed.push(former);
        }
        if let Some(service) = service {
            self.objects_by_revision.insert((service.0.clone(), name));
            changed.push(service);
        }
        changed
    }

    /// Lets the entry share its addresses with an earlier one if they are equal.
    fn shared(&mut self, mut entry: Entry) -> Entry {
        match entry.role {
            ServiceRole::Public if entry.addresses == self.activators => entry.addresses = self.activators.clone(),
            ServiceRole::Public => self.activators = entry.addresses.clone(),
            ServiceRole::Private => {}
        }
        entry
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    /// Returns the union of the entries of one Service that `counts` accepts. `port`: name of the wanted port, if the
    /// revision is known. `last`: port to use if `rule` finds none. `own`: names that the revision's pods may have; it
    /// applies to objects that the autoscaler did not write.
    pub(crate) fn event(
        &self,
        service: &ServiceRef,
        port: Option<&str>,
        rule: PortRule,
        last: Option<u16>,
        own: &PodNames,
        counts: impl Fn(&Entry) -> bool,
    ) -> Event {
        let (key, role) = service;
        let objects = self.objects_by_revision.range((key.clone(), ObjectKey::new("", ""))..);
        let objects = objects.take_while(|(revision, _)| revision == key);
        let entries = objects.filter_map(|(_, name)| self.objects.get(name)).flatten();
        let entries = entries.filter(|entry| entry.role == *role && counts(entry));
        match role {
            ServiceRole::Private => {
                let mut listing = Listing::default();
                for entry in entries {
                    let last = || last.filter(|last| entry.ports.iter().any(|(_, number)| number == last));
                    let Some(port) = entry.port(port, rule).or_else(last) else { continue };
                    for (n, (ip, ready)) in entry.addresses.iter().enumerate() {
                        if entry.pods.get(n).is_some_and(|pod| !pod.is_empty() && !own.matches(pod)) {
                            continue; // Pod of another workload with the same labels.
                        }
                        if entry.ports.len() > 1 {
                            let named = entry.ports.iter().map(|(name, port)| (name.to_string(), *port));
                            listing.ports.insert(*ip, named.collect());
                        }
                        let destination = Destination::from(SocketAddr::new(*ip, port));
                        if *ready { &mut listing.ready } else { &mut listing.not_ready }.insert(destination);
                    }
                }
                listing.not_ready = &listing.not_ready - &listing.ready;
                Event::Pods { key: key.clone(), listing }
            }
            ServiceRole::Public => {
                let with_port = entries.filter(|entry| entry.port(port, rule).is_some());
                let ready = with_port.flat_map(|entry| entry.addresses.iter().filter(|(_, ready)| *ready));
                let addresses: BTreeSet<String> = ready.map(|(ip, _)| ip.to_string()).collect();
                Event::Activators { key: key.clone(), addresses: addresses.into_iter().collect() }
            }
        }
    }
}

fn service_ref(object: &impl ResourceExt, role: &str, name: &str) -> Option<ServiceRef> {
    let label = |name: &str| object.labels().get(name);
    let role = match label(role)?.as_str() {
        names::SERVICE_TYPE_PRIVATE => ServiceRole::Private,
        names::SERVICE_TYPE_PUBLIC => ServiceRole::Public,
        _ => return None,
    };
    Some((RevisionKey::new(object.namespace()?, label(name)?.as_str()), role))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(name: &str, kind: &str, endpoints: serde_json::Value) -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": name, "labels": {
                names::SIDE: kind, names::WORKLOAD: "app"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080}],
            "endpoints": endpoints,
        }))
        .expect("a slice")
    }

    fn service_of(role: ServiceRole) -> ServiceRef {
        (RevisionKey::new("ns", "app"), role)
    }

    fn put(index: &mut Index, slice: &EndpointSlice) -> Vec<ServiceRef> {
        index.set(ObjectKey::new("ns", slice.name_any()), Entry::of_slice(slice))
    }

    fn event(index: &Index, role: ServiceRole, port: Option<&str>, own: &PodNames) -> Event {
        index.event(&service_of(role), port, PortRule::NamedOrOnly, None, own, |_| true)
    }

    fn pods(index: &Index) -> (Vec<String>, Vec<String>) {
        match event(index, ServiceRole::Private, Some("http"), &PodNames::Any) {
            Event::Pods { listing, .. } => (
                listing.ready.iter().map(ToString::to_string).collect(),
                listing.not_ready.iter().map(ToString::to_string).collect(),
            ),
            other => panic!("not pods: {other:?}"),
        }
    }

    #[test]
    fn a_listing_is_the_union_of_its_slices_without_terminating_pods() {
        let mut index = Index::default();
        let endpoints = json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.0.0.4"]},
        ]);
        let changed = put(&mut index, &slice("a", "Private", endpoints));
        assert_eq!(changed, [service_of(ServiceRole::Private)]);
        let more = slice("b", "Private", json!([{"addresses": ["10.0.0.2"], "conditions": {"ready": true}}]));
        put(&mut index, &more);
        assert_eq!(pods(&index).0, ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.4:8080"], "ready in any slice is ready");
        assert!(pods(&index).1.is_empty());
        assert!(put(&mut index, &more).is_empty(), "an equal slice is no change");
        assert_eq!(index.set(ObjectKey::new("ns", "a"), vec![]), [service_of(ServiceRole::Private)]);
        assert_eq!(pods(&index).0, ["10.0.0.2:8080"]);
    }

    #[test]
    fn public_slices_list_the_ready_activators() {
        let mut index = Index::default();
        let endpoints = json!([
            {"addresses": ["10.0.1.2"], "conditions": {"ready": true}},
            {"addresses": ["10.0.1.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.1.3"], "conditions": {"ready": false}},
        ]);
        put(&mut index, &slice("p", "Public", endpoints));
        let event = event(&index, ServiceRole::Public, None, &PodNames::Any);
        let Event::Activators { addresses, .. } = event else { panic!("not activators") };
        assert_eq!(addresses, ["10.0.1.1", "10.0.1.2"]);
        assert_eq!(pods(&index), (vec![], vec![]), "roles are kept apart");
    }

    /// Goal: pods of another workload with the same labels are left out of slices that Kubernetes writes. In slices
    /// that the autoscaler writes, all pods count.
    #[test]
    fn pods_named_after_another_workload_are_excluded() {
        let endpoints = json!([
            {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "web-6c4d4cdbcf-vd82f"}},
            {"addresses": ["10.0.0.2"], "targetRef": {"kind": "Pod", "name": "other-6c4d4cdbcf-vd82f"}},
            {"addresses": ["10.0.0.3"], "targetRef": null},
        ]);
        let own = PodNames::for_workload("apps/v1", "Deployment", "web".into());
        let rows = [
            ("endpointslice-controller.k8s.io", vec!["10.0.0.1:8080", "10.0.0.3:8080"]),
            (names::MANAGED_BY, vec!["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"]),
        ];
        for (manager, expected) in rows {
            let (mut index, mut slice) = (Index::default(), slice("s", "Private", endpoints.clone()));
            slice.labels_mut().insert(names::SLICE_MANAGED_BY.to_owned(), manager.to_owned());
            put(&mut index, &slice);
            let event = event(&index, ServiceRole::Private, None, &own);
            let Event::Pods { listing, .. } = event else { panic!("not pods") };
            let found: Vec<_> = listing.ready.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{manager}");
        }
    }

    /// Goal: a subset without a port of the wanted name contributes no address; standalone mode takes its only port.
    #[test]
    fn knative_requires_a_port_of_the_wanted_name() {
        let entries = |mut endpoints: serde_json::Value| {
            endpoints["metadata"] = json!({"namespace": "ns", "name": "app-private", "labels": {
                names::SERVICE_TYPE: "Private", names::REVISION: "app"}});
            Entry::of_endpoints(&serde_json::from_value(endpoints).expect("endpoints"))
        };
        assert!(entries(json!({})).is_empty(), "no subsets");
        let entries = entries(json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}],
             "ports": [{"name": "http2", "port": 8013}, {"name": "metrics", "port": 9090}]},
            {"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "other", "port": 1}]},
        ]}));
        assert_eq!(entries[0].port(Some("http2"), PortRule::Named), Some(8013));
        assert_eq!(entries[0].port(Some("http"), PortRule::Named), None);
        assert_eq!(entries[1].port(Some("http2"), PortRule::Named), None);
        assert_eq!(entries[1].port(Some("http2"), PortRule::NamedOrOnly), Some(1));
        assert_eq!(entries[0].addresses.len(), 2);
    }
}
