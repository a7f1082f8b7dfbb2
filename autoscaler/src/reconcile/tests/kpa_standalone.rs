//! Tests of workloads in standalone: creation, waking, falling asleep, refusals.

use super::fixture::{Exchange, Fixture, ago, assert_condition, condition, expect, leads, reports};
use super::kpa_knative::{SCALE, status};
pub(super) use super::kpa_knative::{pass, patched};
use super::scalers::{self, ZS};
use crate::cluster::error::Error;
use crate::scale::{Chain, ForeignPods, Initial, PodSet};
use autoscaler_core::history::{Cause, Obstacle};
use autoscaler_core::path_mode::PathMode;
use autoscaler_core::scale_to_zero::Reason;
use common_controller::{Failure, Priority, WriteError};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) const ACTIVATOR: &str = "10.9.0.1";

/// Returns a ZeroScaler with this spec that has adopted its target, with the findings of this status.
pub(super) fn scaler(spec: Value, status: Value) -> Value {
    let mut value = newborn();
    value["metadata"]["finalizers"] = json!(["zeroscale.dev/restore"]);
    value["metadata"]["annotations"] = json!({"zeroscale.dev/adopted-replicas": "0"});
    value["found"] = status;
    json_patch::merge(&mut value["spec"], &spec);
    value
}

/// Sets the number of replicas at adoption.
pub(super) fn adopted_at(replicas: &str, mut object: Value) -> Value {
    object["metadata"]["annotations"]["zeroscale.dev/adopted-replicas"] = json!(replicas);
    object
}

/// Returns the API server's response to the patch that adopts the target of a ZeroScaler.
fn adopting_response(replicas: &str) -> Value {
    let mut value = adopted_at(replicas, scaler(json!({}), Value::Null));
    value["metadata"]["resourceVersion"] = json!("100");
    value
}

fn newborn() -> Value {
    scalers::scaler(json!({"services": [{"name": "hello", "create": true}]}))
}

/// Goal: if another writer changes the replicas, the first changes are corrected at once, later ones after a pause,
/// and the history contains the reason. Other decisions are not delayed.
#[tokio::test]
async fn replicas_that_another_writer_keeps_changing_are_corrected_less_often() {
    let mut f = settled(json!({}), status("True", "", 60, 1, 2), 1);
    f.ready(1);
    f.decides(Some(2), -1);
    for turn in 0..5 {
        f.put_target_at(1, 200 + turn);
        let script = if turn < 4 { vec![patched(2)] } else { vec![] };
        scale_only(&mut f, script).await.expect("no error");
    }
    let acted = f.fakes.acted.lock().expect("recorded");
    assert_eq!(acted.because, Cause::Obstacle(Obstacle::Contested), "{acted:?}");
    f.decides(Some(3), -1);
    scale_only(&mut f, vec![patched(3)]).await.expect("another decision");
}

/// Goal: pods for which requests wait are requested every second, however often another writer removes them.
#[tokio::test(start_paused = true)]
async fn awaited_pods_are_requested_every_second() {
    let mut f = sleeping();
    f.decides(Some(1), -1);
    for turn in 0..9 {
        f.put_target_at(0, 200 + turn);
        if turn >= 4 {
            scale_only(&mut f, vec![]).await.expect("not yet");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        scale_only(&mut f, vec![patched(1)]).await.expect("no error");
    }
}

/// Goal: a wake whose pods another writer has removed ends when no request waits any more, not at the activation
/// timeout.
#[tokio::test]
async fn a_wake_without_pods_ends_with_its_requests() {
    let mut f = settled(json!({}), status("Unknown", "Queued", 20, 0, 1), 0);
    f.decides(Some(0), -1);
    pass(&mut f, vec![reports().with(|body| assert_condition(body, "Active", "False", "NoTraffic"))])
        .await
        .expect("a pass");
}

/// Goal: a patch that removes pods is not sent if new requests have arrived since the decision; the next reconcile
/// follows the load. Unchanged load, or load beyond the bounds, does not prevent the patch.
#[tokio::test]
async fn a_patch_that_removes_pods_is_checked_again_before_it_is_sent() {
    for (later, max, first, then) in [(4, 0, None, Some(4)), (1, 0, Some(1), None), (9, 2, Some(2), None)] {
        let mut f = settled(json!({"scale": {"max": max}}), status("True", "", 60, 5, 5), 5);
        f.ready(5);
        f.decides(Some(later), -1);
        *f.fakes.next_decision.lock() = *f.fakes.decision.lock();
        f.decides(Some(if max == 0 { 1 } else { 3 }), -1);
        let outcome = scale_only(&mut f, first.map(patched).into_iter().collect()).await;
        assert_eq!(outcome.is_err_and(|error| error.is_conflict()), first.is_none(), "{later}");
        scale_only(&mut f, then.map(patched).into_iter().collect()).await.expect("scaled");
    }
}

/// Goal: an urgent reconcile writes only the replicas. Workloads that are not adopted, refused, owned by another
/// process or being deleted wait for an ordinary reconcile.
#[tokio::test]
async fn an_urgent_pass_writes_only_the_replicas() {
    let mut f = sleeping();
    f.decides(Some(2), -1);
    scale_only(&mut f, vec![patched(2)]).await.expect("scaled");
    assert_eq!(*f.fakes.scaled.lock(), [(0, 2)]);
    scale_only(&mut f, vec![]).await.expect("no change");

    let asleep = status("False", "NoTraffic", 3600, 0, 0);
    let mut leaving = scaler(json!({}), asleep.clone());
    leaving["metadata"]["deletionTimestamp"] = json!(ago(1));
    for object in [newborn(), leaving, scaler(json!({"scale": {"window": "1s"}}), asleep)] {
        let mut f = settled(json!({}), Value::Null, 0);
        f.put_autoscaler(object);
        f.decides(Some(2), -1);
        scale_only(&mut f, vec![]).await.expect("left for later");
    }
    let mut f = sleeping();
    f.decides(Some(2), -1);
    *f.fakes.led_by_another.lock() = true;
    scale_only(&mut f, vec![]).await.expect("owned by another process");
}

/// Returns a fixture with all objects of a settled workload.
pub(super) fn settled(spec: Value, status: Value, replicas: i32) -> Fixture {
    let f = Fixture::standalone();
    put_settled(&f, spec, status, replicas);
    f
}

/// Returns a fixture with a workload that fell asleep an hour ago.
pub(super) fn sleeping() -> Fixture {
    settled(json!({}), status("False", "NoTraffic", 3600, 0, 0), 0)
}

/// Puts all objects of a settled workload.
pub(super) fn put_settled(f: &Fixture, spec: Value, status: Value, replicas: i32) {
    f.put_autoscaler(scaler(spec, status));
    f.put_path(PathMode::Proxy, "hello", Some(3600));
    f.put_service(public_service("zs"));
    f.put_target(replicas);
}

/// Returns a Service that another owner has taken over.
pub(super) fn taken_service() -> Value {
    json!({
        "metadata": {"name": "hello", "namespace": "ns", "annotations": {"zeroscale.dev/adopted-by": "another"}},
        "spec": {"ports": [{"port": 80}]},
    })
}

/// Returns our own public Service.
pub(super) fn public_service(owner: &str) -> Value {
    json!({
        "metadata": {"name": "hello", "namespace": "ns", "uid": "s", "resourceVersion": "40", "ownerReferences": [{
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "name": "hello", "uid": owner, "controller": true,
        }]},
        "spec": {"ports": [{"port": 80}]},
    })
}

/// Reconciles the replicas only, as for an urgent key.
pub(super) async fn scale_only(f: &mut Fixture, script: Vec<Exchange>) -> Result<(), Error> {
    f.play(script, async |cx, key| (cx.work)(key.clone(), Priority::Urgent).await).await
}

pub(super) fn acted(f: &Fixture) -> (Option<i32>, bool, Cause) {
    let action = f.fakes.acted.lock().expect("an action");
    (action.wanted, action.patched, action.because)
}

#[tokio::test]
async fn a_target_adopted_at_zero_is_inactive_from_the_first_pass() {
    let mut f = Fixture::standalone();
    f.put_autoscaler(newborn());
    f.put_target(0);
    f.decides(Some(0), -1);
    let script = vec![
        expect(&format!("PATCH {ZS}"))
            .with(|body| {
                let expected = json!({"metadata": {
                    "resourceVersion": "10", "finalizers": ["zeroscale.dev/restore"],
                    "annotations": {
                        "zeroscale.dev/adopted-replicas": "0", "zeroscale.dev/adopted-target": "apps/v1/Deployment/hello",
                    },
                }});
                assert_eq!(*body, expected);
            })
            .answered(200, adopting_response("0")),
        leads().with(|path| assert_eq!(path["mode"], "Proxy")),
        reports().with(|body| {
            assert_condition(body, "Active", "False", "NoTraffic");
            assert_condition(body, "Ready", "Unknown", "Pending");
            assert_eq!(body["status"]["observedGeneration"], 1);
        }),
    ];
    pass(&mut f, script).await.expect("a pass");
    let collecting = f.fakes.collecting.lock().clone().expect("measured");
    assert_eq!(collecting.scrape_target, None, "plain pods have nothing to scrape");
    let deciding = f.fakes.deciding.lock().clone().expect("a decider");
    assert_eq!(deciding.1, Initial::Adopted(0));
    assert_eq!(deciding.0.labels.configuration, "hello");
    let selector = [("app".to_owned(), "hello".to_owned())].into();
    assert_eq!(*f.fakes.tracking.lock(), Some(PodSet::Selector(selector)));
    let owner = f.fakes.owner.lock().clone().expect("an owner");
    assert_eq!((owner.chain, owner.name.as_str()), (Chain::ReplicaSets, "hello"));
    assert_eq!(f.fakes.surroundings.lock().expect("observed").replicas, Some(0));
}

#[tokio::test]
async fn foreign_pods_with_the_same_labels_are_reported() {
    let mut f = sleeping();
    let others = ["Deployment canary", "Job a", "Job b", "Pod c", "Pod d"].map(str::to_owned);
    f.fakes.foreign_pods.lock().controllers = others.into();
    let overlap = reports().with(|body| {
        assert_condition(body, "PodsOwned", "False", "SelectorOverlaps");
        let message = condition(body, "PodsOwned").2;
        let pods = "also matches pods of Deployment canary, Job a, Job b and 2 more. ";
        assert!(message.starts_with(&format!("the selector of Deployment hello (app=hello) {pods}")), "{message}");
        assert!(message.contains("different labels"), "{message}");
    });
    pass(&mut f, vec![overlap]).await.expect("a pass");
    *f.fakes.foreign_pods.lock() = ForeignPods::default();
    let over = reports().with(|body| {
        let types = body["status"]["conditions"].as_array().expect("conditions").iter().map(|c| c["type"].clone());
        assert!(!types.collect::<Vec<_>>().contains(&json!("PodsOwned")));
    });
    pass(&mut f, vec![over]).await.expect("a pass");
}

#[tokio::test]
async fn a_target_adopted_while_running_keeps_its_replicas() {
    for decision in [None, Some(3)] {
        let mut f = Fixture::standalone();
        f.put_autoscaler(newborn());
        f.put_target(3);
        f.ready(3);
        f.decides(decision, -1);
        let script = vec![
            expect(&format!("PATCH {ZS}"))
                .with(|body| assert_eq!(body["metadata"]["annotations"]["zeroscale.dev/adopted-replicas"], "3"))
                .answered(200, adopting_response("3")),
            leads(),
            reports().with(|body| {
                assert_condition(body, "Active", "True", "Awake");
                assert_eq!((&body["status"]["pods"]["ready"], &body["status"]["desired"]), (&json!(3), &json!(3)));
            }),
        ];
        pass(&mut f, script).await.expect("a pass");
        assert_eq!(f.fakes.deciding.lock().as_ref().expect("a decider").1, Initial::Adopted(3));
    }
}

#[tokio::test]
async fn a_poke_leads_to_the_patch_before_anything_else() {
    let mut f = sleeping();
    f.decides(Some(2), -1);
    let script = vec![
        patched(2),
        reports().with(|body| {
            assert_condition(body, "Active", "Unknown", "Queued");
            assert_eq!(body["status"]["desired"], 2);
        }),
    ];
    pass(&mut f, script).await.expect("a pass");
    assert_eq!(*f.fakes.scaled.lock(), [(0, 2)]);
    assert_eq!(acted(&f), (Some(2), true, Cause::Rule(Reason::Desired)));
    assert_eq!(f.fakes.surroundings.lock().expect("observed").replicas, Some(2));
    // Our own write is known before the watch reports it: the next reconcile has nothing to patch.
    pass(&mut f, vec![]).await.expect("a pass");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_keeps_no_workload_awake() {
    let mut f = settled(json!({}), status("True", "", -3600, 1, 1), 1);
    f.ready(1);
    f.decides(Some(0), -1);
    let written = reports().with(|body| {
        assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], ago(0), "{body}");
    });
    pass(&mut f, vec![written]).await.expect("a pass");
    assert_eq!(acted(&f), (Some(1), false, Cause::Rule(Reason::ActiveRecently)));
    f.put_autoscaler(scaler(json!({}), status("True", "", 0, 1, 1)));
    tokio::time::advance(Duration::from_secs(61)).await;
    let asleep = reports().with(|body| assert_condition(body, "Active", "False", "NoTraffic"));
    pass(&mut f, vec![asleep]).await.expect("a pass");
    assert_eq!(acted(&f).0, Some(0));
}

/// Leads the only port of the Service to an activator that has not reported the number yet.
pub(super) async fn lead_to_activator(f: &mut Fixture) {
    f.numbered(&[("", 80)], &[]).await;
    f.activators(&[(ACTIVATOR, true)]);
    f.put_slice(json!({
        "metadata": {
            "name": "hello-zeroscale-ipv4-0", "namespace": "ns",
            "labels": {
                "kubernetes.io/service-name": "hello", "endpointslice.kubernetes.io/managed-by": "zeroscale.dev",
                "zeroscale.dev/leads-to": "activators", "zeroscale.dev/side": "Public",
            },
            "ownerReferences": [{
                "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": "hello", "uid": "zs",
                "controller": true,
            }],
        },
        "addressType": "IPv4", "ports": [{"name": "", "port": 20_000}],
        "endpoints": [{"addresses": [ACTIVATOR], "conditions": {"ready": true}}],
    }));
}

/// Goal: after an idle window the workload is inactive and the pod stays. Without a proof there is no patch, nor if
/// the activator in the slice reports another workload. When it reports this one, the pod is removed.
#[tokio::test]
async fn the_last_pod_is_removed_once_an_activator_reports_the_workload() {
    let mut f = settled(json!({}), status("True", "", 61, 1, 1), 1);
    f.ready(1);
    lead_to_activator(&mut f).await;
    f.decides(Some(0), -1);
    let script = vec![reports().with(|body| {
        assert_condition(body, "Active", "False", "NoTraffic");
        assert_eq!((&body["status"]["pods"]["ready"], &body["status"]["desired"]), (&json!(1), &json!(0)));
    })];
    pass(&mut f, script).await.expect("becomes inactive");
    assert_eq!(acted(&f), (Some(0), false, Cause::Rule(Reason::Idle)));
    pass(&mut f, vec![]).await.expect("requests a probe and keeps the pod");
    assert_eq!(acted(&f), (Some(0), false, Cause::Rule(Reason::ProbePending)));

    f.report_listening(ACTIVATOR, &[(20_000, "another")]);
    pass(&mut f, vec![]).await.expect("the number belongs to another workload");
    f.queued();
    f.report_listening(ACTIVATOR, &[(20_000, "zs")]);
    assert_eq!(f.queued(), [f.key.clone()], "queued again");
    // In the path for an hour already, so the grace period is over as well.
    pass(&mut f, vec![patched(0)]).await.expect("goes to zero");
    assert_eq!(*f.fakes.scaled.lock(), [(1, 0)]);
    assert_eq!(acted(&f), (Some(0), true, Cause::Rule(Reason::Zero)));
}

#[tokio::test]
async fn no_patch_is_sent_before_the_public_service_is_ours() {
    let mut f = sleeping();
    f.put_path(PathMode::Proxy, "", None);
    f.decides(Some(2), -1);
    pass(&mut f, vec![reports()]).await.expect("a pass");
    assert!(f.fakes.scaled.lock().is_empty());
    assert_eq!(acted(&f), (Some(2), false, Cause::Obstacle(Obstacle::ServicePending)));
}

#[tokio::test]
async fn only_the_leader_acts_and_only_while_its_lease_lasts() {
    let mut f = sleeping();
    f.decides(Some(1), -1);
    *f.fakes.lease_ends.lock() = true;
    let outcome = pass(&mut f, vec![]).await;
    assert!(outcome.is_err_and(|error| matches!(error, Error::Write(WriteError::LeaseEnds))));
    assert_eq!(acted(&f), (Some(1), false, Cause::Obstacle(Obstacle::LeaseEnding)));
    assert!(f.fakes.deciding.lock().is_some());
    *f.fakes.led_by_another.lock() = true;
    pass(&mut f, vec![]).await.expect("owned by another process");
    assert_eq!(*f.fakes.deciding.lock(), None, "the decider of a lost workload is removed");
}

#[tokio::test]
async fn a_failed_patch_is_reported_and_retried() {
    let mut f = settled(json!({}), status("True", "", 10, 1, 1), 1);
    f.ready(1);
    f.decides(Some(4), -1);
    let script = vec![expect(&format!("PATCH {SCALE}")).refused(500, "no quota")];
    let error = pass(&mut f, script).await.expect_err("a refusal").to_string();
    let expected = "error scaling target: failed to apply scale 4 to scale target hello: ";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(acted(&f), (Some(4), false, Cause::Obstacle(Obstacle::NotAccepted)));
}
