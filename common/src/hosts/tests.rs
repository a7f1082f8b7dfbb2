//! Isolation of tenants: the rules together, over worlds of arbitrary objects.

use super::claims::{Claim, Confinement, Ledger, Rules, settle};
use super::ledger::{self, Grant};
use super::table::HostTable;
use crate::RevisionKey;
use crate::host::HostPattern;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

const DOMAIN: &str = "cluster.local";
/// Existing namespaces; some are named like parts of domains.
const NAMESPACES: [&str; 4] = ["prod", "evil", "dev", "svc"];
const SERVICES: [&str; 4] = ["hello", "shop", "svc", "prod"];
const HOSTS: &str = "hello hello.prod shop.dev prod.svc hello.prod.svc hello.prod.svc.cluster.local \
    hello.prod.svc.cluster hello.evil.svc pod.hello.prod.svc prod.svc.cluster.local example.com shop.example.com \
    a.shop.example.com 10.0.0.1 *.prod *.dev *.svc *.prod.svc *.hello.prod *.hello.prod.svc *.local *.cluster.local \
    *.svc.cluster.local *.prod.svc.cluster.local *.com *.example.com *.shop.example.com cluster.local";

/// One object of a namespace, as a tenant writes it. The API server sets age and uid.
#[derive(Clone, Debug)]
struct Object {
    key: RevisionKey,
    /// Claimed name of its Service, true or not.
    service: &'static str,
    claim: Claim,
}

fn host() -> impl Strategy<Value = &'static str> {
    select(HOSTS.split(' ').collect::<Vec<_>>())
}

prop_compose! {
    fn object()(
        namespace in select(&NAMESPACES[..]),
        name in 0..3u8,
        service in select(&SERVICES[..]),
        hosts in vec(host(), 0..6),
        is_readable in prop::bool::weighted(0.9),
        incarnation in 0..3i64,
    ) -> Object {
        let hosts = hosts.iter().filter_map(|host| HostPattern::parse(host)).collect();
        let key = RevisionKey::new(namespace, format!("w{name}"));
        let claim = Claim {
            uid: format!("{key}#{incarnation}"), created: incarnation * 10, hosts: is_readable.then_some(hosts),
        };
        Object { key, service, claim }
    }
}

/// Generates the objects that exist at one time, at most one for each name.
fn world() -> impl Strategy<Value = BTreeMap<RevisionKey, Object>> {
    vec(object(), 0..10).prop_map(|all| all.into_iter().map(|object| (object.key.clone(), object)).collect())
}

fn namespaces() -> BTreeMap<String, Confinement> {
    NAMESPACES.iter().map(|name| ((*name).to_owned(), Confinement::Free)).collect()
}

fn settled(world: &BTreeMap<RevisionKey, Object>, held: &Ledger) -> Ledger {
    let namespaces = namespaces();
    let rules = Rules { cluster_domain: DOMAIN, namespaces: &namespaces };
    settle(world.iter().map(|(key, object)| (key, &object.claim)), held, rules)
}

fn table(world: &BTreeMap<RevisionKey, Object>, held: &Ledger) -> HostTable<RevisionKey> {
    let services = world.values().map(|object| (object.key.namespace(), object.service, object.key.clone()));
    let claims: Vec<_> = held
        .iter()
        .flat_map(|(namespace, grants)| ledger::hosts(grants).map(move |(host, name)| (namespace, host, name)))
        .collect();
    let owner = |namespace: &str, name: &str| RevisionKey::new(namespace, name);
    let claims = claims.iter().map(|(namespace, host, name)| (namespace.as_str(), host, owner(namespace, name)));
    HostTable::new(DOMAIN, services, claims)
}

/// Returns all spellings of the names of one namespace's Services.
fn reserved(namespace: &str) -> Vec<String> {
    let names = SERVICES.iter().map(|service| format!("{service}.{namespace}"));
    names.flat_map(|name| [name.clone(), format!("{name}.svc"), format!("{name}.svc.{DOMAIN}")]).collect()
}

fn of_namespace<V: Clone>(all: &BTreeMap<RevisionKey, V>, namespace: &str) -> BTreeMap<RevisionKey, V> {
    let matching = all.iter().filter(|(key, _)| key.namespace() == namespace);
    matching.map(|(key, value)| (key.clone(), value.clone())).collect()
}

proptest! {
    /// Goal: a reserved name keeps its meaning whatever other namespaces write or have ever written; a bare name
    /// depends on the caller's namespace alone.
    #[test]
    fn no_other_namespace_changes_the_owner_of_a_reserved_name(before in world(), now in world()) {
        let held = settled(&now, &settled(&before, &Ledger::new()));
        let shared = table(&now, &held);
        for namespace in NAMESPACES {
            let own = of_namespace(&now, namespace);
            let only = held.iter().filter(|(owner, _)| *owner == namespace).map(|(n, g)| (n.clone(), g.clone())).collect();
            let alone = table(&own, &only);
            for host in reserved(namespace) {
                let meant = shared.get(&host, || None::<&str>);
                prop_assert_eq!(meant, alone.get(&host, || None::<&str>), "{}", host);
                prop_assert!(meant.is_none_or(|key| key.namespace() == namespace), "{} means {:?}", host, meant);
                prop_assert_eq!(meant, shared.get(&format!("{}.:80", host.to_uppercase()), || None::<&str>));
            }
            for service in SERVICES {
                let meant = shared.get(service, || Some(namespace));
                prop_assert_eq!(meant, alone.get(service, || Some(namespace)), "{}", service);
                prop_assert_eq!(shared.get(service, || None::<&str>), None);
            }
        }
    }

    /// Goal: a table ignores recorded claims of names that are always reserved, whatever the ledger contains.
    #[test]
    fn no_ledger_transfers_a_reserved_name(now in world(), grants in vec((select(&NAMESPACES[..]), host()), 0..20)) {
        let mut held = Ledger::new();
        for (namespace, host) in grants {
            let grant = || Grant { uid: "any".into(), hosts: vec![] };
            held.entry(namespace.to_owned()).or_default().entry("w0".to_owned()).or_insert_with(grant).hosts.push(host.into());
        }
        let shared = table(&now, &held);
        for namespace in NAMESPACES {
            for host in reserved(namespace).iter().filter(|host| host.matches('.').count() > 1) {
                let meant = shared.get(host, || None::<&str>);
                prop_assert!(meant.is_none_or(|key| key.namespace() == namespace), "{} means {:?}", host, meant);
            }
        }
    }

    /// Goal: a workload keeps its host while the same object claims it, whatever other objects write or how old they
    /// are. A host that is claimed and permitted has exactly one owner, which claims it.
    #[test]
    fn a_workload_keeps_its_host_while_it_claims_it(before in world(), now in world()) {
        let held = settled(&before, &Ledger::new());
        let next = settled(&now, &held);
        prop_assert_eq!(&settled(&now, &next), &next, "without a change no host moves");
        let owner = |ledger: &Ledger, host: &str| {
            let all = ledger.iter().flat_map(|(namespace, grants)| grants.iter().map(move |grant| (namespace, grant)));
            let owners = all.filter(|(_, (_, grant))| grant.hosts.iter().any(|has| has == host));
            owners.map(|(namespace, (name, grant))| (RevisionKey::new(namespace.as_str(), name.as_str()), grant.uid.clone())).collect::<Vec<_>>()
        };
        let namespaces = namespaces();
        let rules = Rules { cluster_domain: DOMAIN, namespaces: &namespaces };
        for text in HOSTS.split(' ') {
            let host = HostPattern::parse(text).expect("a pattern");
            let (before, after) = (owner(&held, text), owner(&next, text));
            prop_assert!(before.len() <= 1 && after.len() <= 1, "{} has {:?}, then {:?}", text, before, after);
            let claims = |object: &&Object| object.claim.hosts.as_ref().is_some_and(|hosts| hosts.contains(&host))
                && rules.refuse(object.key.namespace(), &host).is_none();
            let had = |object: &&Object| before.first() == Some(&(object.key.clone(), object.claim.uid.clone()));
            let keeps = now.values().find(|object| had(object) && (claims(object) || object.claim.hosts.is_none()));
            let oldest = now.values().filter(claims).min_by_key(|object| (object.claim.created, object.key.clone()));
            let expected = keeps.or(oldest).map(|object| (object.key.clone(), object.claim.uid.clone()));
            prop_assert_eq!(after.first(), expected.as_ref(), "{}", text);
        }
    }
}

#[test]
fn namespaces_are_confined_to_what_their_annotation_allows() {
    let known = |annotation: Option<&str>| {
        BTreeMap::from([("shop".to_owned(), Confinement::read(annotation)), ("com".to_owned(), Confinement::Free)])
    };
    let refuse = |namespaces: &BTreeMap<String, Confinement>, host: &str| {
        let host = HostPattern::parse(host).expect("a pattern");
        Rules { cluster_domain: DOMAIN, namespaces }.refuse("shop", &host)
    };
    let allowed = Some("shop.example.com, *.shop.example.com");
    let (reserved, not_allowed) = (Some("in namespace \"com\""), Some("does not allow it"));
    for (annotation, hosts, expected) in [
        (None, "anything.example.com example.org", None),
        (None, "example.com", reserved),
        (allowed, "shop.example.com a.shop.example.com *.shop.example.com *.a.shop.example.com", None),
        (allowed, "*.example.com other.example.com", not_allowed),
        (Some("a.example.com"), "*.a.example.com", not_allowed),
        (Some("*.com"), "example.com", reserved),
        (Some(""), "anything.example.com", not_allowed),
        (Some("http://x"), "anything.example.com", not_allowed),
    ] {
        for host in hosts.split(' ') {
            let refused = refuse(&known(annotation), host);
            assert!(refused.is_some() == expected.is_some(), "{annotation:?} {host}: {refused:?}");
            assert!(refused.unwrap_or_default().ends_with(expected.unwrap_or_default()), "{annotation:?} {host}");
        }
    }
    assert_eq!(refuse(&BTreeMap::new(), "a.example.com").as_deref(), Some("the namespace is not known yet"));
}

#[test]
fn a_ledger_is_read_as_it_was_written() {
    let grant = Grant { uid: "u".into(), hosts: vec!["a.example.com".into(), "*.b.example.com".into()] };
    let grants = ledger::Grants::from([("hello".to_owned(), grant)]);
    let data = ledger::data(&grants);
    assert_eq!(data["hosts"], r#"{"hello":{"uid":"u","hosts":["a.example.com","*.b.example.com"]}}"#);
    assert_eq!(ledger::grants(Some(&data)).expect("readable"), grants);
    assert_eq!(ledger::grants(None).expect("nothing"), ledger::Grants::new());
    assert_eq!(ledger::namespace_of(&ledger::map_name("ns")), Some("ns"));
    assert_eq!(ledger::namespace_of("config-autoscaler"), None);
}
