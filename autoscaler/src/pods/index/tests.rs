//! Tests of the index, with pods fed by hand.

use super::*;
use crate::pods::ownership::tests::named_controller;
use crate::scale::Chain;
use crate::scale::fixture::ready_pod;
use std::time::Duration;

fn pod(labels: &[(&str, &str)], phase: Phase, ready: bool) -> PodState {
    PodState {
        state: pod_counts::CountedPod { phase, deleting: false, ready },
        address: Some("10.0.0.1".parse().expect("address")),
        ..ready_pod(labels)
    }
}

fn selector(pairs: &[(&str, &str)]) -> PodSet {
    PodSet::Selector(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
}

fn cause(reason: &str) -> Cause {
    Cause { reason: reason.into(), message: "why".into(), remedy: "what helps".into() }
}

fn reason(index: &PodIndex, key: &RevisionKey) -> Option<String> {
    Some(index.failing(key)?.cause.reason)
}

fn index() -> (PodIndex, Requests, RevisionKey) {
    let requests = Requests::new();
    (PodIndex::new(requests.clone()), requests, RevisionKey::new("ns", "a"))
}

fn drain(requests: &Requests) -> Vec<RevisionKey> {
    std::iter::from_fn(|| Some(requests.try_next()?.key().clone())).collect()
}

/// Goal: counts follow pods that are created, change, move between selectors and are deleted, in any order of
/// tracking.
#[test]
fn counts_follow_the_pods() {
    let ((index, requests, a), b) = (index(), RevisionKey::new("ns", "b"));
    index.apply("ns", "p1", pod(&[("app", "a"), ("tier", "web")], Phase::Running, true));
    index.apply("other", "p1", pod(&[("app", "a"), ("tier", "web")], Phase::Running, true));
    index.track(&a, selector(&[("app", "a"), ("tier", "web")]), None);
    index.track(&b, selector(&[("app", "b")]), None);
    assert_eq!(index.counts(&a).ready, 1, "an earlier pod, but not the pod of that name in another namespace");
    assert_eq!(drain(&requests), [], "the caller of `track` reads the counts");

    index.apply("ns", "p2", pod(&[("app", "a")], Phase::Running, true));
    assert_eq!(index.counts(&a).ready, 1, "every label of a selector must match");
    index.apply("ns", "p3", pod(&[("app", "a"), ("tier", "web")], Phase::Pending, false));
    assert_eq!((index.counts(&a).pending, index.counts(&a).not_ready), (1, 1));
    assert_eq!(drain(&requests), std::slice::from_ref(&a));
    index.apply("ns", "p3", pod(&[("app", "b")], Phase::Running, true));
    assert_eq!((index.counts(&a).not_ready, index.counts(&b).ready), (0, 1), "relabelled pods move");
    drain(&requests);
    index.apply("ns", "p3", pod(&[("app", "b")], Phase::Running, true));
    assert_eq!(drain(&requests), [], "an event that changes no count is not reported");
    index.delete("ns", "p1");
    assert_eq!(index.counts(&a), PodCounts::default());
    index.untrack(&b);
    assert_eq!(index.counts(&b), PodCounts::default());
}

/// Goal: the label sets of own pods are known once all pods are listed, and a changed label queues the workload.
#[test]
fn labels_of_own_pods_are_known() {
    let (index, requests, key) = index();
    let labels = |pairs: &[(&str, &str)]| pod(pairs, Phase::Running, true).labels;
    index.begin_list();
    index.apply("ns", "p1", pod(&[("app", "a")], Phase::Running, true));
    index.track(&key, selector(&[("app", "a")]), None);
    assert_eq!(index.labels(&key), None, "other pods may follow");
    index.end_list();
    assert_eq!(index.labels(&key), Some([labels(&[("app", "a")])].into()));
    index.apply("ns", "p2", pod(&[("app", "a")], Phase::Pending, false));
    index.apply("ns", "over", pod(&[("app", "a"), ("x", "2")], Phase::Other, false));
    drain(&requests);
    index.apply("ns", "p1", pod(&[("app", "a"), ("x", "1")], Phase::Running, true));
    assert_eq!(drain(&requests), std::slice::from_ref(&key));
    assert_eq!(index.labels(&key), Some([labels(&[("app", "a")]), labels(&[("app", "a"), ("x", "1")])].into()));
    index.untrack(&key);
    assert_eq!(index.labels(&key), None);
}

/// Goal: pods that are selected by expressions are counted like others, and changes of their addresses are reported.
#[test]
fn pods_may_be_selected_by_expressions() {
    let (index, requests, key) = index();
    let expressions = common::labels::Selector::parse("app in (a,b),!canary").expect("a selector");
    index.apply("ns", "before", pod(&[("app", "b")], Phase::Running, true));
    index.apply("other", "elsewhere", pod(&[("app", "b")], Phase::Running, true));
    index.track(&key, PodSet::Expressions(expressions), None);
    let coming = PodState { address: None, ..pod(&[("app", "a")], Phase::Pending, false) };
    index.apply("ns", "later", coming);
    index.apply("ns", "canary", pod(&[("app", "a"), ("canary", "")], Phase::Running, true));
    assert_eq!((index.counts(&key).ready, index.counts(&key).not_ready), (1, 1));
    drain(&requests);
    index.apply("ns", "later", pod(&[("app", "a")], Phase::Pending, false));
    assert_eq!(drain(&requests), std::slice::from_ref(&key), "no count has changed, but its address");
    let found: Vec<_> = index.addresses(&key).into_iter().map(|pod| (pod.pod, pod.ready)).collect();
    assert_eq!(found, [("before".to_owned(), true), ("later".to_owned(), false)]);
    index.untrack(&key);
    assert_eq!(index.addresses(&key), []);
}

/// Goal: of pods with the same labels, only those of the owner are counted, addressed and reported as failing. The
/// controllers of the others are reported when they change. A pod does not count before its owner is known.
#[test]
fn foreign_pods_do_not_count() {
    let (index, requests, key) = index();
    let mut inquiries = index.inquiries().expect("the first call");
    let owner = PodOwner { chain: Chain::ReplicaSets, name: "web".into(), uid: "u".into() };
    let ready = |controller: Option<Controller>| PodState {
        controller: controller.map(Arc::new),
        ..pod(&[("app", "a")], Phase::Running, true)
    };
    let others = || index.foreign_pods(&key).map(|foreign| foreign.controllers);
    index.begin_list();
    index.apply("ns", "bare", ready(None));
    index.apply("ns", "own", ready(Some(named_controller("ReplicaSet", "web-1", Some("1")))));
    index.track(&key, selector(&[("app", "a")]), Some(owner.clone()));
    assert_eq!(others(), None, "other pods may follow");
    index.end_list();
    assert_eq!((index.counts(&key).ready, others()), (1, Some(vec!["Pod bare".to_owned()])));
    assert_eq!(drain(&requests), std::slice::from_ref(&key));

    let failing = PodState { cause: Some(cause("CrashLoop")), ..ready(Some(named_controller("Job", "batch", None))) };
    index.apply("ns", "failing", failing);
    index.apply("ns", "doubtful", ready(Some(named_controller("ReplicaSet", "former-2", Some("2")))));
    let names: Vec<_> = index.addresses(&key).into_iter().map(|pod| pod.pod).collect();
    assert_eq!((names, index.counts(&key).not_ready), (vec!["own".to_owned()], 0));
    let expected = ["Deployment former", "Job batch", "Pod bare"].map(str::to_owned);
    assert_eq!(others().as_deref(), Some(&expected[..]));
    let Ok(Inquiry::Controller(namespace, controller)) = inquiries.try_recv() else { panic!("no inquiry") };
    assert_eq!((namespace.as_str(), controller.name.as_str(), inquiries.try_recv().is_err()), ("ns", "former-2", true));
    let uid = controller.uid.clone();
    drop(controller);
    drain(&requests);
    let deployment = KnownOwner::Controller(named_controller("Deployment", "u", None).into());
    index.controlled_by(&uid, deployment.clone());
    assert_eq!((index.counts(&key).ready, drain(&requests)), (2, vec![key.clone()]), "the owner has adopted it");
    index.controlled_by(&uid, deployment);
    assert_eq!(drain(&requests), [], "no change");

    index.apply("ns", "failing", pod(&[("app", "a")], Phase::Other, false));
    index.delete("ns", "bare");
    assert_eq!((others(), drain(&requests)), (Some(Vec::new()), vec![key.clone()]), "finished pods do not count");
    index.track(&key, selector(&[("app", "a")]), Some(PodOwner { name: "other".into(), uid: "v".into(), ..owner }));
    assert_eq!((index.counts(&key).ready, others().map(|others| others.len())), (0, Some(2)), "another target");
    index.untrack(&key);
    assert_eq!(others(), None);
    for name in ["own", "doubtful", "failing"] {
        index.delete("ns", name);
    }
    assert!(!index.is_controller(&uid), "it has no pods any more");
}

/// Goal: unknown is not zero: before the first full list, and for revisions that are not tracked.
#[test]
fn nothing_is_known_before_the_first_list() {
    let (index, requests, key) = index();
    assert_eq!(index.ready(&key), Err(Unknown::Pods));
    index.track(&key, PodSet::Revision("a".into()), None);
    assert_eq!(index.ready(&key), Err(Unknown::Pods));
    index.begin_list();
    index.apply("ns", "p", pod(&[(common::names::REVISION, "a")], Phase::Running, true));
    index.end_list();
    assert_eq!(index.ready(&key), Ok(1));
    assert_eq!(drain(&requests), std::slice::from_ref(&key));
    index.begin_list();
    index.end_list();
    assert_eq!(index.ready(&key), Ok(0), "a pod that is not in a new list is gone");
}

/// Goal: a failing pod is not reported while another one is starting or ready; terminating and finished pods do not
/// count as starting. If every pod fails, the first one's cause is reported.
#[test]
fn a_cause_is_reported_only_if_every_pod_fails() {
    let (index, _, key) = index();
    index.track(&key, selector(&[("app", "a")]), None);
    let starting = || pod(&[("app", "a")], Phase::Pending, false);
    let failing = |why: &str| PodState { cause: Some(cause(why)), ..starting() };
    index.apply("ns", "p1", failing("CrashLoopBackOff"));
    assert_eq!(reason(&index, &key).as_deref(), Some("CrashLoopBackOff"));
    for other in [pod(&[("app", "a")], Phase::Running, true), starting()] {
        index.apply("ns", "p2", other);
        assert_eq!(reason(&index, &key), None);
    }
    index.apply("ns", "p2", failing("ImagePullBackOff"));
    assert_eq!(reason(&index, &key).as_deref(), Some("CrashLoopBackOff"), "the first one's");
    let mut ending = starting();
    ending.state.deleting = true;
    index.apply("ns", "p3", ending);
    index.apply("ns", "p4", pod(&[("app", "a")], Phase::Other, false));
    assert_eq!(reason(&index, &key).as_deref(), Some("CrashLoopBackOff"), "they do not count");
    index.delete("ns", "p1");
    assert_eq!(reason(&index, &key).as_deref(), Some("ImagePullBackOff"));
}

/// Goal: a pod with a port test is ready once it listens, fails if it does not for a while, and is tested again after
/// a restart.
#[tokio::test(start_paused = true)]
async fn pods_without_a_probe_are_ready_once_they_listen() {
    let index = PodIndex::new(Requests::new());
    let (key, name) = (RevisionKey::new("ns", "a"), PodName::new("ns", "p1"));
    let mut inquiries = index.inquiries().expect("the first call");
    let test = || Some(Inquiry::Port(name.clone()));
    index.track(&key, selector(&[("app", "a")]), None);
    index.apply("ns", "p1", pod(&[("app", "a")], Phase::Running, true));
    assert_eq!((index.counts(&key).ready, inquiries.try_recv().is_err()), (1, true), "Kubernetes' condition counts");
    index.require_listening(&key, Some(80));
    assert_eq!((index.counts(&key).ready, inquiries.try_recv().ok()), (0, test()));
    assert_eq!(index.probe_address(&name), Some(("10.0.0.1".parse().expect("address"), 80)));
    index.record_probe(&name, 80, false);
    assert_eq!(reason(&index, &key), None, "it may be starting");
    tokio::time::advance(Duration::from_secs(10)).await;
    index.record_probe(&name, 80, false);
    assert_eq!(reason(&index, &key).as_deref(), Some("PortClosed"));
    index.record_probe(&name, 80, true);
    assert_eq!((index.counts(&key).ready, reason(&index, &key), index.probe_address(&name)), (1, None, None));
    for ready in [false, true] {
        index.apply("ns", "p1", pod(&[("app", "a")], Phase::Running, ready));
    }
    assert_eq!((index.counts(&key).ready, inquiries.try_recv().ok()), (0, test()));
}

/// Goal: only ready pods with an address are scraped; their start times are known.
#[test]
fn only_ready_pods_with_an_address_are_scraped() {
    let (index, _, key) = index();
    index.track(&key, selector(&[("app", "a")]), None);
    let (labels, started) = (&[("app", "a")], Some(Timestamp::from_secs(1_000_000)));
    index.apply("ns", "ready", PodState { started, ..pod(labels, Phase::Running, true) });
    index.apply("ns", "nowhere", PodState { address: None, ..pod(labels, Phase::Running, true) });
    let terminating = pod_counts::CountedPod { phase: Phase::Running, deleting: true, ready: true };
    index.apply("ns", "terminating", PodState { state: terminating, ..pod(labels, Phase::Running, true) });
    for (name, phase, ready) in
        [("starting", Phase::Running, false), ("pending", Phase::Pending, true), ("over", Phase::Other, true)]
    {
        index.apply("ns", name, pod(labels, phase, ready));
    }
    assert_eq!(index.scrape_targets(&key), [(IpAddr::from([10, 0, 0, 1]), started)]);
}
