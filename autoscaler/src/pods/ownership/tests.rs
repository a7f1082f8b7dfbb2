//! Tests of controllers of pods, and of the pods' owners.

use super::*;
use serde_json::{Value, from_value, json};

/// Returns a controller `KIND NAME` with the uid `NAME`, of a pod with this template hash of a Deployment.
pub(in crate::pods) fn named_controller(kind: &str, name: &str, hash: Option<&str>) -> Controller {
    hashed(kind, name, "pod-template-hash", hash)
}

fn hashed(kind: &str, name: &str, label: &str, hash: Option<&str>) -> Controller {
    let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let labels: Value = hash.map_or(Value::Null, |hash| json!({"app": "web", label: hash}));
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true});
    let guest = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"});
    let meta = from_value(json!({"labels": labels, "ownerReferences": [guest, owner]})).expect("metadata");
    Controller::from_metadata(&meta).expect("a controller")
}

fn owner(chain: Chain) -> PodOwner {
    PodOwner { chain, name: "web".into(), uid: "u".into() }
}

fn describe_relation(controllers: &Controllers, chain: Chain, controller: Option<&Arc<Controller>>) -> &'static str {
    match controllers.relation(&owner(chain), controller) {
        PodRelation::Own => "own",
        PodRelation::Foreign => "foreign",
        PodRelation::Unknown(_) => "unknown",
    }
}

/// Goal: the rule of the module's table. Method: each kind of controller with each kind of target; if the API server
/// must be queried, with each possible result.
#[test]
fn a_pod_is_own_if_its_controllers_lead_to_the_workload() {
    let itself = |kind| Some(Controller { uid: "u".into(), ..named_controller(kind, "web", None) });
    let made_by = |kind, name| Some(KnownOwner::Controller(named_controller(kind, name, None).into()));
    let adopted = || Some(named_controller("ReplicaSet", "former-5d8f", Some("5d8f")));
    let rollout = |name| Some(hashed("ReplicaSet", name, "rollouts-pod-template-hash", Some("5d8f")));
    let hand_made = || Some(named_controller("ReplicaSet", "web-5d8f", None));
    // (controller, its owner, relation to a StatefulSet, to a Deployment, to another kind)
    let rows = [
        (None, None, "foreign", "foreign", "own"),
        (itself("StatefulSet"), None, "own", "own", "own"),
        (Some(named_controller("StatefulSet", "db", None)), Some(KnownOwner::None), "foreign", "foreign", "foreign"),
        (Some(named_controller("Job", "batch", None)), None, "foreign", "foreign", "own"),
        (Some(named_controller("ReplicaSet", "web-5d8f", Some("5d8f"))), None, "foreign", "own", "unknown"),
        (rollout("web-5d8f"), None, "foreign", "unknown", "own"),
        (rollout("web-b-5d8f"), None, "foreign", "unknown", "unknown"),
        (Some(named_controller("ReplicaSet", "web-b-5d8f", Some("5d8f"))), None, "foreign", "unknown", "unknown"),
        (Some(named_controller("ReplicaSet", "web-5d8f", Some("77cb"))), None, "foreign", "unknown", "unknown"),
        (adopted(), made_by("Deployment", "u"), "foreign", "own", "own"),
        (adopted(), made_by("Deployment", "canary"), "foreign", "foreign", "unknown"),
        (adopted(), made_by("Job", "custom"), "foreign", "foreign", "own"),
        (hand_made(), Some(KnownOwner::None), "foreign", "foreign", "own"),
        (hand_made(), Some(KnownOwner::Unreadable), "foreign", "own", "own"),
    ];
    for (n, (controller, leads, direct, replica_sets, unknown)) in rows.into_iter().enumerate() {
        let mut controllers = Controllers::default();
        let controller = controller.map(Arc::new);
        if let Some((controller, leads)) = controller.as_ref().zip(leads) {
            assert!(controllers.begin_query(controller) && !controllers.begin_query(controller), "queried once");
            assert!(controllers.record_owner(&controller.uid, leads), "changed");
        }
        let chains = [Chain::Direct, Chain::ReplicaSets, Chain::Unknown];
        let found = chains.map(|chain| describe_relation(&controllers, chain, controller.as_ref()));
        assert_eq!(found, [direct, replica_sets, unknown], "row {n}: {controller:?}");
    }
}

/// Goal: a custom kind's controller is followed through the Deployment that it creates.
#[test]
fn a_chain_of_several_controllers_is_followed() {
    let mut controllers = Controllers::default();
    let set = Arc::new(named_controller("ReplicaSet", "made-5d8f", Some("5d8f")));
    assert!(controllers.begin_query(&set));
    controllers.record_owner(&set.uid, KnownOwner::Controller(named_controller("Deployment", "made", None).into()));
    let PodRelation::Unknown(next) = controllers.relation(&owner(Chain::Unknown), Some(&set)) else {
        panic!("the owner of the Deployment has not been queried")
    };
    assert!(controllers.begin_query(&next), "{next:?}");
    let custom = Controller { uid: "u".into(), ..named_controller("Job", "web", None) };
    for (leads, expected) in [(KnownOwner::Controller(custom.into()), "own"), (KnownOwner::None, "foreign")] {
        controllers.record_owner(&next.uid, leads);
        assert_eq!(describe_relation(&controllers, Chain::Unknown, Some(&set)), expected);
    }
}

/// Goal: foreign controllers have user-facing names, and a forgotten controller can be queried again.
#[test]
fn controllers_are_named_and_forgotten() {
    let mut controllers = Controllers::default();
    let set = Arc::new(named_controller("ReplicaSet", "canary-5d8f", Some("5d8f")));
    assert_eq!(controllers.describe(&set), "Deployment canary", "its name reveals its maker");
    assert!(controllers.begin_query(&set) && !controllers.begin_query(&set));
    controllers.record_owner(&set.uid, KnownOwner::None);
    assert_eq!(controllers.describe(&set), "ReplicaSet canary-5d8f");
    controllers.record_owner(&set.uid, KnownOwner::Controller(named_controller("Deployment", "blue", None).into()));
    assert_eq!(controllers.describe(&set), "Deployment blue");
    assert!(controllers.lead_to("blue") && !controllers.lead_to("canary-5d8f"));
    controllers.forget(&set.uid);
    assert!(!controllers.lead_to("blue") && controllers.begin_query(&set));
}
