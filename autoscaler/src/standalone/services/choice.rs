//! Choice of the served Services of a workload; its other Services lead directly to its pods.
//!
//! | `spec.services` | a Service that selects the pods | |
//! |---|---|---|
//! | names it | | served |
//! | names others | any | direct |
//! | empty | has the target's name; if there is none, the oldest | served, the first |
//! | | has a cluster IP, and shares a port of the pods with the first or is a LoadBalancer or NodePort | served |
//! | | leads to other ports, is headless or an ExternalName | direct |
//!
//! A Service that another ZeroScaler serves, or that has another ZeroScaler's name, belongs to that ZeroScaler. It is
//! direct, and reported as a conflict if it would be served otherwise.

use crate::cluster::facts::{Labels, Target};
use crate::cluster::multi_map::MultiMap;
use crate::standalone::services::service_ports::{is_tcp, leads_alike, ports_of, target_of};
use crate::standalone::traffic::adopt::{Claimant, ServiceOwnership, noted_selector, ownership, unfit};
use common::RevisionKey as Key;
use common_api::ZeroScaler;
use common_api::zeroscaler::{ServiceChoice, ServicePath, ServiceStatus};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Choice {
    /// Served Services, the first in precedence first; they may not exist yet.
    pub(crate) names: Vec<ServiceChoice>,
    /// Services that select the pods but are not served.
    pub(crate) direct: Vec<ServiceStatus>,
    /// Faults of Services that should be served.
    pub(crate) conflict: Option<String>,
}

impl Choice {
    /// Returns the choice in the status of an object, or else the Service that its spec names.
    pub(crate) fn from_status(object: &ZeroScaler) -> Self {
        let reported = object.status.iter().flat_map(|status| status.services.iter().cloned());
        let (served, direct): (Vec<_>, Vec<_>) = reported.partition(|service| service.path == ServicePath::Served);
        let choice = |name: &str| ServiceChoice { name: name.to_owned(), create: false };
        let mut names: Vec<_> = served.iter().map(|service| choice(&service.name)).collect();
        if names.is_empty() {
            names.push(choice(object.spec.service_name()));
        }
        Self { names, direct, conflict: None }
    }
}

pub(crate) struct Inputs<'a> {
    pub(crate) original: &'a ZeroScaler,
    pub(crate) target: &'a Target,
    /// ZeroScaler that claims the Services.
    pub(crate) claimant: Claimant<'a>,
    /// Services of the namespace that select the pods, and those that the ZeroScaler names.
    pub(crate) services: &'a [Arc<Service>],
    /// Returns the other ZeroScaler that owns the Service of this name, if there is one.
    pub(crate) other: &'a dyn Fn(&str) -> Option<String>,
}

/// Applies the table above.
pub(crate) fn choose(inputs: &Inputs<'_>) -> Choice {
    let Inputs { original, target, services, .. } = inputs;
    let named = &original.spec.services;
    let find = |name: &str| services.iter().find(|service| service.name_any() == name);
    let selects = |service: &&Arc<Service>| is_selected(service, &target.labels);
    let first = match named.first() {
        Some(first) => find(&first.name),
        None => default_first(inputs),
    };
    let found = |service: &Arc<Service>| ServiceChoice { name: service.name_any(), create: false };
    let mut names: Vec<_> = named.first().cloned().or_else(|| first.map(found)).into_iter().collect();
    let (mut direct, mut conflicts) = (Vec::new(), Vec::new());
    let mut further: Vec<_> = named.iter().skip(1).map(|named| (named.clone(), find(&named.name))).collect();
    for service in services.iter().filter(selects) {
        let is_first = first.is_some_and(|first| Arc::ptr_eq(first, service));
        if is_first || named.iter().any(|named| named.name == service.name_any()) {
            continue;
        }
        match why_direct(named.is_empty(), service, first, target) {
            Some(why) => direct.push(direct_status(service, &why)),
            None => further.push((found(service), Some(service))),
        }
    }
    for (choice, service) in further {
        match inputs.why_not(&choice.name, service, choice.create) {
            None => names.push(choice),
            Some(why) => {
                direct.extend(service.filter(selects).map(|service| direct_status(service, &why)));
                conflicts.push(why);
            }
        }
    }
    direct.sort_by(|one, other| one.name.cmp(&other.name));
    Choice { names, direct, conflict: (!conflicts.is_empty()).then(|| conflicts.join("; ")) }
}

impl Inputs<'_> {
    /// Returns the reason why a Service that should be served cannot be, or `None` if it can be.
    fn why_not(&self, name: &str, service: Option<&Arc<Service>>, create: bool) -> Option<String> {
        let other = (self.original.spec.services.is_empty()).then(|| (self.other)(name)).flatten();
        match ownership(service.map(|service| &**service), self.claimant) {
            ServiceOwnership::Foreign(why) => Some(why),
            ServiceOwnership::Absent if !create => Some(format!("Service {name:?} does not exist")),
            _ => other.map(|other| format!("Service {name:?} belongs to ZeroScaler {other:?}")),
        }
    }
}

/// Returns the first Service if the spec names none: the one with the target's name, or else the oldest that can be
/// served. Falls back to one that cannot be served, so that its fault is reported.
fn default_first<'a>(inputs: &Inputs<'a>) -> Option<&'a Arc<Service>> {
    let Inputs { original, target, services, .. } = inputs;
    let selects = |service: &&Arc<Service>| target.labels.is_empty() || is_selected(service, &target.labels);
    let is_fit = |service: &&Arc<Service>| inputs.why_not(&service.name_any(), Some(service), false).is_none();
    let named = services.iter().find(|service| service.name_any() == original.spec.target.name);
    let may_lead = |service: &&Arc<Service>| selects(service) || noted_or_live(service).is_none();
    let named_one = named.filter(may_lead);
    let oldest =
        || services.iter().filter(|service| selects(service) && is_fit(service)).min_by_key(|service| age(service));
    named_one.filter(is_fit).or_else(oldest).or(named_one).or_else(|| services.iter().find(selects))
}

fn age(service: &Service) -> (i64, String) {
    (service.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()), service.name_any())
}

/// Returns the reason why a Service that selects the pods is not served, or `None` if it is served. `first` is the
/// first Service in precedence.
fn why_direct(is_default: bool, service: &Service, first: Option<&Arc<Service>>, target: &Target) -> Option<String> {
    if let Some(why) = unfit(service) {
        return Some(why.to_owned());
    }
    if !is_default {
        return Some("spec.services does not name this Service".to_owned());
    }
    let type_ = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    let tcp = |service: &Service| ports_of(service).filter(|port| is_tcp(port)).map(target_of).collect::<Vec<_>>();
    let of_first = first.map(|first| tcp(first)).unwrap_or_default();
    let is_shared = tcp(service).iter().any(|port| of_first.iter().any(|of| leads_alike(of, port, Some(target))));
    let is_served = is_shared || matches!(type_, Some("LoadBalancer" | "NodePort"));
    let first = first.map(|first| first.name_any()).unwrap_or_default();
    (!is_served).then(|| format!("it shares no port of the pods with Service {first}"))
}

fn direct_status(service: &Service, why: &str) -> ServiceStatus {
    let message = Some(why.to_owned());
    ServiceStatus { name: service.name_any(), path: ServicePath::Direct, on_shared_ports: false, message }
}

/// Returns the selector of a Service, or the one it had before it was borrowed; `None` if it has neither.
fn noted_or_live(service: &Service) -> Option<Labels> {
    let live = service.spec.as_ref().and_then(|spec| spec.selector.clone()).filter(|selector| !selector.is_empty());
    live.or_else(|| noted_selector(service)).filter(|selector| !selector.is_empty())
}

fn is_selected(service: &Service, pods: &Labels) -> bool {
    noted_or_live(service).is_some_and(|selector| selector.iter().all(|(name, value)| pods.get(name) == Some(value)))
}

/// Index of Services by selector, of workloads by the labels of their pods, and of served Services. It leads from an
/// event to the workloads that it concerns. Label pairs are compared by their hashes, so callers check the results in
/// full.
#[derive(Debug, Default)]
pub(crate) struct Selections {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Services by one label pair of their selectors.
    services: MultiMap<u64, Key>,
    /// ZeroScalers by every label pair of their pods.
    pods: MultiMap<u64, Key>,
    /// ZeroScalers by the Services that serve them.
    served: MultiMap<Key, Key>,
    known: HashMap<Key, Known>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    pairs: SmallVec<[u64; 1]>,
    services: SmallVec<[Key; 1]>,
}

impl Selections {
    /// Records a change of a Service. Returns the workloads whose pods its selector may match, before or after the
    /// change.
    pub(crate) fn service(&self, key: &Key, old: Option<&Arc<Service>>, new: Option<&Arc<Service>>) -> Vec<Key> {
        let selector = |service: Option<&Arc<Service>>| service.and_then(|service| noted_or_live(service));
        let (before, after) = (selector(old), selector(new));
        let one = |selector: &Labels| pairs(key.namespace(), selector).next();
        let mut inner = self.inner.write();
        inner.services.relocate(key, before.as_ref().and_then(one).as_ref(), after.as_ref().and_then(one));
        let mut concerned = Vec::new();
        for selector in [before, after].iter().flatten() {
            // Each list contains all matching workloads; the shortest one is enough.
            let lists = pairs(key.namespace(), selector).map(|pair| inner.pods.get(&pair));
            concerned.extend(lists.min_by_key(|keys| keys.len()).into_iter().flatten().cloned());
        }
        concerned.sort_unstable();
        concerned.dedup();
        concerned
    }

    /// Records the pod labels of a workload. Returns the Services that may select its pods.
    pub(crate) fn selecting(&self, key: &Key, labels: &Labels) -> Vec<Key> {
        let mut inner = self.inner.write();
        let pairs: SmallVec<[u64; 1]> = pairs(key.namespace(), labels).collect();
        let former = inner.known.get(key).cloned().unwrap_or_default();
        if former.pairs != pairs {
            former.pairs.iter().for_each(|pair| inner.pods.remove(pair, key));
            pairs.iter().for_each(|pair| inner.pods.insert(*pair, key.clone()));
            inner.known.entry(key.clone()).or_default().pairs.clone_from(&pairs);
        }
        pairs.iter().flat_map(|pair| inner.services.get(pair)).cloned().collect()
    }

    pub(crate) fn serve(&self, key: &Key, names: &[ServiceChoice]) {
        let services: SmallVec<[Key; 1]> =
            names.iter().map(|service| Key::new(key.namespace(), service.name.as_str())).collect();
        let mut inner = self.inner.write();
        let former = inner.known.get(key).map(|known| known.services.clone()).unwrap_or_default();
        if former != services {
            former.iter().for_each(|service| inner.served.remove(service, key));
            services.iter().for_each(|service| inner.served.insert(service.clone(), key.clone()));
            inner.known.entry(key.clone()).or_default().services = services;
        }
    }

    pub(crate) fn services_of(&self, key: &Key) -> Vec<Key> {
        self.inner.read().known.get(key).map(|known| known.services.to_vec()).unwrap_or_default()
    }

    pub(crate) fn served_by(&self, service: &Key) -> Vec<Key> {
        self.inner.read().served.get(service).to_vec()
    }

    pub(crate) fn forget(&self, key: &Key) {
        let mut inner = self.inner.write();
        if let Some(known) = inner.known.remove(key) {
            known.pairs.iter().for_each(|pair| inner.pods.remove(pair, key));
            known.services.iter().for_each(|service| inner.served.remove(service, key));
        }
    }
}

fn pairs<'a>(namespace: &'a str, labels: &'a Labels) -> impl Iterator<Item = u64> + 'a {
    labels.iter().map(move |pair| {
        let mut hasher = DefaultHasher::new();
        (namespace, pair).hash(&mut hasher);
        hasher.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn services(all: Value) -> Vec<Arc<Service>> {
        serde_json::from_value::<Vec<Service>>(all).expect("Services").into_iter().map(Arc::new).collect()
    }

    fn service(name: &str, second: u32, spec: &Value) -> Value {
        let mut all =
            json!({"clusterIP": "10.0.0.1", "selector": {"app": "shop"}, "ports": [{"port": 80, "targetPort": 8080}]});
        json_patch::merge(&mut all, spec);
        let created = format!("2026-01-01T00:00:{second:02}Z");
        json!({"metadata": {"name": name, "namespace": "ns", "creationTimestamp": created}, "spec": all})
    }

    fn target() -> Target {
        let object = json!({"metadata": {"name": "shop"}, "spec": {"template": {
            "metadata": {"labels": {"app": "shop", "tier": "web"}},
            "spec": {"containers": [{"name": "app", "ports": [{"name": "web", "containerPort": 8080}]}]},
        }}});
        Target::from_object(&serde_json::from_value(object).expect("an object"))
    }

    /// Returns the served names in order, the direct names, and whether there is a conflict.
    fn chosen(spec: Value, all: Vec<Value>) -> (Vec<String>, Vec<String>, bool) {
        let mut object = json!({"metadata": {"name": "shop", "namespace": "ns"}, "spec": {"target": {"name": "shop"}}});
        json_patch::merge(&mut object["spec"], &spec);
        let choice = choose(&Inputs {
            original: &serde_json::from_value(object).expect("a ZeroScaler"),
            target: &target(),
            claimant: Claimant { name: "shop", uid: "me" },
            services: &services(Value::Array(all)),
            other: &|name| (name == "blog").then(|| "blog".to_owned()),
        });
        let names = choice.names.into_iter().map(|choice| choice.name).collect();
        (names, choice.direct.into_iter().map(|service| service.name).collect(), choice.conflict.is_some())
    }

    #[test]
    fn services_that_share_a_pod_port_with_the_first_are_served() {
        let plain = json!({});
        let metrics = service("metrics", 2, &json!({"ports": [{"port": 9090}]}));
        let named = service("named", 2, &json!({"ports": [{"port": 1, "targetPort": "web"}]}));
        let edge = service("edge", 2, &json!({"type": "LoadBalancer", "ports": [{"port": 9}]}));
        let rows: Vec<(Vec<Value>, &[&str], &[&str])> = vec![
            (vec![service("b", 2, &plain), service("a", 3, &plain)], &["b", "a"], &[]),
            (vec![service("old", 1, &plain), service("shop", 5, &plain)], &["shop", "old"], &[]),
            (vec![service("shop", 1, &plain), metrics], &["shop"], &["metrics"]),
            (vec![service("shop", 1, &plain), named], &["shop", "named"], &[]),
            (vec![service("shop", 1, &plain), edge], &["shop", "edge"], &[]),
            // A StatefulSet often has a headless Service beside the one that its clients call.
            (vec![service("shop", 1, &json!({"clusterIP": "None"})), service("z", 2, &plain)], &["z"], &["shop"]),
            (vec![service("shop", 1, &json!({"clusterIP": "None"}))], &["shop"], &[]),
            (vec![service("shop", 1, &json!({"selector": {"app": "another"}})), service("z", 2, &plain)], &["z"], &[]),
            (vec![service("z", 2, &json!({"selector": {"app": "shop", "tier": "db"}}))], &[], &[]),
        ];
        for (all, served, direct) in rows {
            let case = format!("{all:?}");
            assert_eq!(chosen(json!({}), all), (owned(served), owned(direct), false), "{case}");
        }
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn services_of_other_owners_are_reported_and_left_alone() {
        let plain = json!({});
        let mut taken = service("taken", 2, &json!({"selector": null}));
        taken["metadata"]["annotations"] =
            json!({"zeroscale.dev/adopted-by": "another", "zeroscale.dev/adopted-selector": "{\"app\":\"shop\"}"});
        let all = || vec![service("shop", 1, &plain), taken.clone(), service("blog", 3, &plain)];
        assert_eq!(chosen(json!({}), all()), (owned(&["shop"]), owned(&["blog", "taken"]), true));
        let named = |names: Value| chosen(json!({"services": names}), all());
        let only = (owned(&["blog"]), owned(&["shop", "taken"]), false);
        assert_eq!(named(json!([{"name": "blog"}])), only, "a name in the spec takes precedence");
        let two = named(json!([{"name": "shop"}, {"name": "taken"}]));
        assert_eq!(two, (owned(&["shop"]), owned(&["blog", "taken"]), true));
        let absent = named(json!([{"name": "shop"}, {"name": "none"}, {"name": "made", "create": true}]));
        assert_eq!(absent, (owned(&["shop", "made"]), owned(&["blog", "taken"]), true));
    }

    /// Goal: a Service leads to the workloads whose pods it selects, a workload leads to the Services that select its
    /// pods, and deleted objects leave no entries.
    #[test]
    fn services_and_pods_are_found_by_their_labels() {
        let selections = Selections::default();
        let (scaler, key) = (Key::new("ns", "shop"), Key::new("ns", "a"));
        let all = services(json!([
            service("a", 1, &json!({})),
            service("a", 1, &json!({"selector": {"tier": "web", "x": "y"}}))
        ]));
        assert_eq!(selections.service(&key, None, Some(&all[0])), []);
        assert_eq!(selections.selecting(&scaler, &target().labels), std::slice::from_ref(&key));
        let concerned = selections.service(&key, Some(&all[0]), Some(&all[1]));
        assert_eq!(concerned, std::slice::from_ref(&scaler), "it selected the pods");
        assert_eq!(selections.service(&key, Some(&all[1]), None), [], "no pod has both labels");
        selections.serve(&scaler, &[ServiceChoice { name: "a".into(), create: false }]);
        assert_eq!(selections.served_by(&key), std::slice::from_ref(&scaler));
        assert_eq!(selections.services_of(&scaler), std::slice::from_ref(&key));
        selections.forget(&scaler);
        let Inner { services, pods, served, known } = &*selections.inner.read();
        assert!(pods.is_empty() && served.is_empty() && services.is_empty() && known.is_empty());
    }
}
