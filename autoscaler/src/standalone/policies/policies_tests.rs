//! Tests of the effect of policies on activators and on workloads' numbers.

use super::*;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

fn missing(specs: &[Value], pods: Option<&[(&str, &str)]>) -> Option<String> {
    let policies = policies("");
    for (n, spec) in specs.iter().enumerate() {
        policies.apply("shop", &format!("p{n}"), Some(serde_json::from_value(spec.clone()).expect("a policy")));
    }
    let pods = pods.map(|pods| pods.iter().map(|(l, v)| ((*l).to_owned(), (*v).to_owned())).collect());
    policies.missing_rule("shop", pods.as_ref())
}

impl Policies {
    /// Records a policy, or its deletion if `spec` is `None`.
    pub(crate) fn apply(&self, namespace: &str, name: &str, spec: Option<Spec>) {
        let key = Key::new(namespace, name);
        let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
        let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
        let applied = |spec| Change::Applied(NetworkPolicy { metadata, spec: Some(spec) });
        self.take(spec.map_or(Change::Gone(key), applied), &|_| {});
    }
}

fn policies(guarded: &str) -> Policies {
    let data = [("guarded".to_owned(), guarded.to_owned())].into_iter().filter(|_| !guarded.is_empty()).collect();
    let config = PortsConfig::from_map(&data).expect("a range");
    Policies::new("zeroscale-system", watch::channel(Arc::new(config)).1)
}

/// Returns policies that are followed, because the general one exists.
fn followed_policies() -> Policies {
    let policies = policies("");
    policies.apply("zeroscale-system", "activator", general());
    policies
}

fn spec(value: Value) -> Option<Spec> {
    Some(serde_json::from_value(value).expect("a policy"))
}

/// Returns a workload of namespace `shop` with the label `app: web` and port 8080. Without `has_template` other labels
/// of its pods are unknown.
fn target(has_template: bool) -> Target {
    let containers =
        if has_template { json!([{"name": "app", "ports": [{"containerPort": 8080}]}]) } else { json!([]) };
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers},
        }},
    });
    Target::from_object(&serde_json::from_value(object).expect("an object"))
}

fn general() -> Option<Spec> {
    spec(json!({"podSelector": {"matchLabels": {"app": "activator"}}, "ingress": [{"ports": [{"port": 8012}]}]}))
}

fn guard(policies: &Policies, has_template: bool) -> Guard {
    guard_pods(policies, has_template, Some(&[])).expect("all is known")
}

/// Determines the guard of a workload whose running pods have these labels besides `app: web`.
fn guard_pods(policies: &Policies, has_template: bool, pods: Option<&[&[(&str, &str)]]>) -> Option<Guard> {
    let port = PodPort { target: IntOrString::Int(8080), numbers: vec![18_000] };
    let labels = |pod: &&[(&str, &str)]| {
        pod.iter().chain(&[("app", "web")]).map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
    };
    let pods = || Some(pods?.iter().map(labels).collect());
    policies.guard(("shop", "u"), &target(has_template), pods, &[port])
}

/// Goal: running pods whose labels differ from the template's are protected too. A client must be admitted to each pod:
/// the label set with the fewest policies decides, and a workload whose pods have different policies is barred.
#[test]
fn running_pods_are_guarded_as_their_template_is() {
    let by = |label: &str, value: &str| spec(json!({"podSelector": {"matchLabels": {label: value}}}));
    let hash = |value: &'static str| [("pod-template-hash", value)];
    let (own, odd, x, xy) = (hash("1"), hash("2"), [("x", "1")], [("x", "1"), ("y", "1")]);
    type Row<'a> =
        (&'a [(&'a str, &'a str)], Option<&'a [&'a [(&'a str, &'a str)]]>, Option<Result<&'a [&'a str], ()>>);
    let rows: [Row<'_>; 12] = [
        (&[], Some(&[]), Some(Ok(&[]))),
        (&[], None, Some(Ok(&[]))), // No policy in the namespace: the pods do not matter.
        (&[("x", "1")], Some(&[]), Some(Ok(&[]))),
        (&[("x", "1")], Some(&[&x]), Some(Ok(&["x"]))),
        (&[("x", "1")], Some(&[&own, &x]), Some(Ok(&["x"]))), // The other pod admits every client.
        (&[("x", "1")], None, None),
        (&[("app", "web")], None, Some(Ok(&["app"]))),
        (&[("app", "web"), ("x", "1")], Some(&[&own, &x]), Some(Ok(&["app"]))), // The other pod admits more.
        (&[("x", "1"), ("y", "1")], Some(&[&x, &xy]), Some(Ok(&["x"]))),
        (&[("x", "1"), ("y", "1")], Some(&[&x, &[("y", "1")]]), Some(Err(()))),
        (&[("x", "2"), ("y", "2")], Some(&[&xy]), Some(Ok(&[]))),
        (&[("x", "1")], Some(&[&odd, &own]), Some(Ok(&[]))),
    ];
    for (selectors, pods, expected) in rows {
        let policies = followed_policies();
        selectors.iter().for_each(|(label, value)| policies.apply("shop", label, by(label, value)));
        let verdict = guard_pods(&policies, true, pods).map(|guard| guard.verdict);
        let found = verdict.map(|verdict| match verdict {
            Verdict::Open => Ok(Vec::new()),
            Verdict::Guarded(names) => Ok(names),
            Verdict::Barred(why) => {
                assert!(why.contains("different NetworkPolicies select its pods (x; y)"), "{why}");
                Err(())
            }
        });
        let expected = expected.map(|names| names.map(|names| names.iter().map(|&name| name.to_owned()).collect()));
        assert_eq!(found, expected, "{selectors:?} {pods:?}");
    }
}

/// Goal: a workload is guarded if an ingress policy selects its pods, by labels or expressions, and barred if that is
/// not known.
#[test]
fn a_workload_is_guarded_by_the_policies_that_select_its_pods() {
    let by = |labels: Value, expressions: Value| json!({"podSelector": {"matchLabels": labels, "matchExpressions": expressions}});
    let expression =
        |key: &str, operator: &str, values: Value| json!([{"key": key, "operator": operator, "values": values}]);
    let labels = |labels: Value| by(labels, json!([]));
    let asks = |expression: Value| by(json!({}), expression);
    let (yes, no, unknown) = (Some(true), Some(false), None);
    // With a pod template, and without one.
    let rows = [
        (json!({}), yes, yes),
        (json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}), yes, yes),
        (json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": []}), no, no),
        (labels(json!({"app": "web"})), yes, yes),
        (labels(json!({"app": "other"})), no, no),
        (labels(json!({"tier": "web"})), no, unknown),
        (labels(json!({"app": "other", "tier": "web"})), no, no),
        (labels(json!({"app": "web", "pod-template-hash": "1"})), unknown, unknown),
        (labels(json!({"app": "web", "rollouts-pod-template-hash": "1"})), unknown, unknown),
        (labels(json!({"app": "other", "pod-template-hash": "1"})), no, no),
        (asks(expression("app", "In", json!(["a", "web"]))), yes, yes),
        (asks(expression("app", "In", json!(["a"]))), no, no),
        (asks(expression("app", "NotIn", json!(["a"]))), yes, yes),
        (asks(expression("app", "NotIn", json!(["web"]))), no, no),
        (asks(expression("tier", "NotIn", json!(["a"]))), yes, unknown),
        (asks(expression("app", "Exists", json!([]))), yes, yes),
        (asks(expression("tier", "Exists", json!([]))), no, unknown),
        (asks(expression("tier", "DoesNotExist", json!([]))), yes, unknown),
        (asks(expression("app", "DoesNotExist", json!([]))), no, no),
        (asks(expression("app", "Like", json!(["w*"]))), unknown, unknown),
        (by(json!({"app": "web"}), expression("app", "NotIn", json!(["web"]))), no, no),
    ];
    for (policy, with, without) in rows {
        let policies = followed_policies();
        policies.apply("shop", "p", spec(policy.clone()));
        policies.apply("other", "q", spec(json!({"podSelector": {}})));
        for (has_template, expected) in [(true, with), (false, without)] {
            let found = match guard(&policies, has_template).verdict {
                Verdict::Open => Some(false),
                Verdict::Guarded(names) => Some(names == ["p"]),
                Verdict::Barred(why) => {
                    assert!(why.starts_with("NetworkPolicy \"p\" cannot be followed: its podSelector"), "{why}");
                    None
                }
            };
            assert_eq!(found, expected, "{policy}, with a template: {has_template}");
        }
    }
}

/// Goal: if the general policy is missing, policies for guarded numbers close no other ports. With `off` no policy is
/// followed. A workload that is open again admits every client to the guarded number that it keeps.
#[test]
fn policies_are_followed_only_beside_the_general_policy() {
    let deny = || spec(json!({"podSelector": {}}));
    let policies_of = |guarded: &str, has_general: bool, has_policy: bool| {
        let policies = policies(guarded);
        policies.apply("zeroscale-system", "activator", general().filter(|_| has_general));
        let autoscaler = spec(json!({"podSelector": {"matchLabels": {"app": "autoscaler"}}}));
        policies.apply("zeroscale-system", "autoscaler", autoscaler);
        policies.apply("shop", "deny", deny().filter(|_| has_policy));
        let Guard { verdict, rules } = guard(&policies, true);
        (verdict, rules.len())
    };
    let guarded = Verdict::Guarded(vec!["deny".to_owned()]);
    assert_eq!(policies_of("", true, true), (guarded, 1), "the planes alone");
    assert_eq!(policies_of("", true, false), (Verdict::Open, 2), "the planes, and every client");
    assert_eq!(policies_of("", false, false), (Verdict::Open, 0));
    assert_eq!(policies_of("off", true, true), (Verdict::Open, 2));
    let (verdict, rules) = policies_of("", false, true);
    let Verdict::Barred(why) = verdict else { panic!("{verdict:?}") };
    assert!(why.contains("\"activator\" of namespace zeroscale-system") && rules == 0, "{why}");
}

/// Goal: policies add up, so a policy that opens or may open guarded numbers to other clients bars guarded workloads
/// and is named.
#[test]
fn another_policy_that_opens_guarded_numbers_bars_workloads() {
    let activator = json!({"matchLabels": {"app": "activator"}});
    let rule = |rule: Value| json!({"podSelector": activator, "ingress": [rule]});
    let ports = |port: Value| rule(json!({"ports": [port]}));
    let rows = [
        (rule(json!({})), true),
        (rule(json!({"from": [{"podSelector": {}}]})), true),
        (rule(json!({"ports": []})), true),
        (ports(json!({})), true),
        (ports(json!({"protocol": "TCP"})), true),
        (ports(json!({"protocol": "UDP"})), false),
        (ports(json!({"protocol": "UDP", "port": 10_000})), false),
        (ports(json!({"port": 10_000})), true),
        (ports(json!({"port": 9_999})), false),
        (ports(json!({"port": 19_999})), true),
        (ports(json!({"port": 20_000, "endPort": 29_999})), false),
        (ports(json!({"port": 1024, "endPort": 10_000})), true),
        (ports(json!({"port": 1024, "endPort": 65_535})), true),
        (ports(json!({"port": 8012, "endPort": 9_999})), false),
        (ports(json!({"port": "http1"})), false),
        (json!({"podSelector": {}, "ingress": [{}]}), true),
        (json!({"podSelector": {}, "ingress": []}), false),
        (json!({"podSelector": {"matchLabels": {"tier": "x"}}, "ingress": [{}]}), true), // Perhaps activators.
        (json!({"podSelector": {"matchLabels": {"app": "autoscaler"}}, "ingress": [{}]}), false),
        (json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [{}]}), false),
    ];
    for (policy, is_barred) in rows {
        let policies = followed_policies();
        policies.apply("zeroscale-system", "more", spec(policy.clone()));
        assert_eq!(guard(&policies, true).verdict, Verdict::Open, "{policy}: no policy selects the workload");
        policies.apply("shop", "deny", spec(json!({"podSelector": {}})));
        let Guard { verdict, rules } = guard(&policies, true);
        match verdict {
            Verdict::Barred(why) => {
                assert!(is_barred && rules.is_empty(), "{policy}: {why}");
                assert!(why.contains("\"more\" of namespace zeroscale-system") && why.contains("10000-19999"), "{why}");
            }
            _ => assert!(!is_barred, "{policy}"),
        }
    }
    let policies = followed_policies();
    let peer = json!({"podSelector": {"matchLabels": {"app": "a".repeat(KEPT_BYTES_MAX)}}});
    policies.apply("zeroscale-system", "long", spec(json!({"podSelector": {}, "ingress": [{"from": [peer]}]})));
    policies.apply("shop", "deny", spec(json!({"podSelector": {}})));
    let verdict = guard(&policies, true).verdict;
    assert!(matches!(&verdict, Verdict::Barred(why) if why.contains("\"long\"")), "{verdict:?}");
}

/// Goal: policies that are not followed are not awaited. The general one counts as missing only once all are known.
#[test]
fn only_followed_policies_are_awaited() {
    for (guarded, is_awaited) in [("", true), ("off", false)] {
        let policies = policies(guarded);
        assert!(!policies.is_awaited() && policies.lacks_general());
        policies.is_awaited.store(true, Ordering::Release);
        assert_eq!((policies.is_awaited(), policies.lacks_general()), (is_awaited, false), "{guarded}");
        policies.is_awaited.store(false, Ordering::Release);
        policies.apply("zeroscale-system", "activator", general());
        assert!(!policies.is_awaited() && !policies.lacks_general());
    }
}

/// Goal: only guarded numbers of a workload are opened, and those of a former range if it has a policy.
#[test]
fn only_guarded_numbers_are_opened() {
    let policies = policies("30000-30009");
    let port = |port| TcpPort {
        id: common::ports::PortId { name: String::new(), port },
        target: IntOrString::Int(8080),
        app_protocol: None,
        also: Vec::new(),
    };
    let numbers_of = |policies: &Policies| -> Vec<_> {
        let numbers = |port: &TcpPort| vec![18_000, 29_999, 29_920 + port.id.port];
        let ports = policies.pod_ports("u", &[port(80), port(81)], numbers);
        ports.into_iter().map(|port| port.numbers).collect()
    };
    assert_eq!(numbers_of(&policies), [vec![30_000], vec![30_001]]);
    // A workload that had a policy keeps it until it has moved from the former range.
    let ours = policies.guard_policy(&Key::new("shop", "web"), "u", &[]);
    policies.guards.apply(&key_of(&ours), "1", Some(ours));
    assert_eq!(numbers_of(&policies), [vec![18_000, 30_000], vec![18_000, 30_001]]);
}

#[test]
fn only_a_policy_that_certainly_blocks_activators_is_reported() {
    let closed = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    let from = |peer: Value| json!({"podSelector": {}, "ingress": [{"from": [peer]}]});
    let name = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let ours =
        json!({"namespaceSelector": name("zeroscale-system"), "podSelector": {"matchLabels": {"app": "activator"}}});
    let shut = [
        vec![closed.clone()],
        vec![json!({"podSelector": {"matchLabels": {"app": "web"}}})],
        vec![from(json!({"podSelector": {}}))], // Only the policy's own namespace.
        vec![from(json!({"namespaceSelector": name("ingress")}))],
        vec![from(json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "nginx"}}}))],
        vec![closed.clone(), json!({"podSelector": {"matchLabels": {"app": "other"}}, "ingress": [{}]})],
    ];
    for specs in shut {
        let message = missing(&specs, Some(&[("app", "web")])).unwrap_or_else(|| panic!("{specs:?}"));
        assert!(message.contains("NetworkPolicy \"p0\"") && message.contains("zeroscale-system"), "{message}");
    }
    let open = [
        vec![],
        vec![json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": []})],
        vec![json!({"podSelector": {"matchLabels": {"app": "other"}}})],
        vec![json!({"podSelector": {"matchLabels": {"tier": "web"}}})], // May not select the pods.
        vec![closed.clone(), from(ours)],
        vec![closed.clone(), json!({"podSelector": {"matchLabels": {"tier": "web"}}, "ingress": [{}]})],
        vec![from(json!({"ipBlock": {"cidr": "10.0.0.0/8"}}))],
        vec![from(json!({"namespaceSelector": {"matchLabels": {"trusted": "yes"}}}))],
        vec![json!({"podSelector": {}, "ingress": [{"ports": [{"port": 8080}]}]})],
    ];
    for specs in open {
        assert_eq!(missing(&specs, Some(&[("app", "web")])), None, "{specs:?}");
    }
    assert!(missing(std::slice::from_ref(&closed), None).is_some(), "it is about all pods");
    assert_eq!(missing(&[json!({"podSelector": {"matchLabels": {"app": "web"}}})], None), None);
}

/// Goal: only the ingress part of a policy is kept, up to a maximum length, and policies are followed up to a maximum
/// number in a namespace. A policy that is not kept may admit activators, and bars workloads. Once there are fewer
/// policies, they are followed again.
#[test]
fn kept_policies_are_bounded_in_size_and_number() {
    let peers = |count: usize| -> Vec<Value> {
        (0..count).map(|n| json!({"podSelector": {"matchLabels": {"app": format!("a{n:04}")}}})).collect()
    };
    let policies = followed_policies();
    let egress = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{"to": peers(9000)}]});
    policies.apply("shop", "p", spec(egress));
    assert_eq!(guard(&policies, true).verdict, Verdict::Guarded(vec!["p".to_owned()]));
    assert!(policies.missing_rule("shop", None).is_some());
    for (count, is_kept) in [(300, true), (400, false)] {
        policies.apply("shop", "q", spec(json!({"podSelector": {}, "ingress": [{"from": peers(count)}]})));
        assert_eq!(policies.missing_rule("shop", None).is_some(), is_kept, "{count}");
        let Guard { verdict, rules } = guard(&policies, true);
        assert_eq!((matches!(verdict, Verdict::Guarded(_)), rules.len()), (is_kept, 2 * usize::from(is_kept)));
    }
    policies.apply("shop", "q", None);

    let close = |n: usize| policies.apply("shop", &format!("r{n:04}"), Some(Spec::default()));
    (1..FOLLOWED_MAX).for_each(close);
    assert!(policies.missing_rule("shop", None).is_some());
    close(FOLLOWED_MAX);
    close(FOLLOWED_MAX); // An edit of an existing policy.
    assert_eq!(policies.missing_rule("shop", None), None, "one more");
    assert!(matches!(guard(&policies, true).verdict, Verdict::Barred(why) if why.contains("at most 1000")));
    policies.apply("shop", "r0001", None);
    assert!(policies.missing_rule("shop", None).is_some());
    assert!(matches!(guard(&policies, true).verdict, Verdict::Guarded(names) if names.len() == FOLLOWED_MAX));
}

/// Goal: a policy written here stays ours, and bars no workload, if another writer removes its label or annotation.
#[test]
fn an_edited_guard_policy_stays_ours() {
    let policies = followed_policies();
    policies.apply("shop", "deny", spec(json!({"podSelector": {}})));
    let opens = Rule { from: None, ports: None };
    let mut ours = policies.guard_policy(&Key::new("shop", "web"), "u", &[opens]);
    let take = |policy: &NetworkPolicy| {
        let concerned = std::cell::RefCell::new(Vec::new());
        let concern = |concern: Concerned<'_>| {
            concerned.borrow_mut().push(match concern {
                Concerned::One(key) => key.to_string(),
                Concerned::All | Concerned::Namespace(_) => "others".to_owned(),
            });
        };
        policies.take(Change::Applied(policy.clone()), &concern);
        concerned.into_inner()
    };
    assert_eq!(take(&ours), ["shop/web"]);
    (ours.metadata.labels, ours.metadata.annotations) = (None, None);
    assert_eq!(take(&ours), ["shop/web"], "its workload restores it");
    assert_eq!(guard(&policies, true).verdict, Verdict::Guarded(vec!["deny".to_owned()]));
}

/// Goal: a workload that a policy selects only by labels of its pods stays guarded while it sleeps. It is open again if
/// a running pod has other labels, or the namespace has no ingress policy left.
#[test]
fn a_workload_guarded_by_its_pods_labels_stays_so_while_it_sleeps() {
    let policies = followed_policies();
    policies.apply("shop", "x", spec(json!({"podSelector": {"matchLabels": {"x": "1"}}})));
    let verdict = |pods: &[&[(&str, &str)]]| guard_pods(&policies, true, Some(pods)).map(|guard| guard.verdict);
    assert_eq!(verdict(&[&[("x", "1")]]), Some(Verdict::Guarded(vec!["x".to_owned()])));
    assert_eq!(verdict(&[]), Some(Verdict::Open), "no number of it was ever guarded");
    let ours = policies.guard_policy(&Key::new("shop", "web"), "u", &[]);
    policies.take(Change::Applied(ours), &|_| {});
    assert_eq!(verdict(&[]), None, "the present access stays");
    assert_eq!(verdict(&[&[("y", "1")]]), Some(Verdict::Open));
    policies.apply("shop", "x", None);
    assert_eq!(verdict(&[]), Some(Verdict::Open));
    assert!(policies.others.within("shop").is_empty(), "a deleted policy is forgotten");
}
