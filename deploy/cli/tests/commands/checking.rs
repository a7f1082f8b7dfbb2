//! Tests of `check` against an installation for some namespaces: its requests to the API server and its remedies.

use super::{Server, failure, run, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const REVIEWS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Starts an API server with planes in namespace `zs` that watch `shop` and `stage` and have all rights or none.
fn server(allowed: bool) -> Server {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": {},
        "status": {"allowed": allowed}});
    Server::start(move |request, _| match request {
        "GET /version" => (200, json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})),
        REVIEWS => (201, review.clone()),
        "GET /apis/apps/v1/namespaces/zs/deployments/autoscaler" => (200, deployment("autoscaler", "0.2.0")),
        "GET /apis/apps/v1/namespaces/zs/deployments/activator" => (200, deployment("activator", "0.1.0")),
        _ if request.starts_with("GET /apis/apps/v1/namespaces/zeroscale-system/deployments/") => {
            failure(404, "NotFound", "not found", json!({"name": "a", "kind": "deployments"}))
        }
        _ => failure(403, "Forbidden", "no", json!({})),
    })
}

fn deployment(name: &str, version: &str) -> Value {
    let container = json!({"name": name, "image": format!("registry.example.com/{name}:{version}"),
        "env": [{"name": "ZEROSCALE_NAMESPACES", "value": "shop,stage"}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "zs"},
        "spec": {"replicas": 1, "selector": {}, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": 1, "updatedReplicas": 1}})
}

/// Goal: a correct installation for some namespaces passes, and only rights in these and the planes' own namespace are
/// checked.
#[test]
fn a_correct_install_for_some_namespaces_has_all_rights() {
    let api = server(true);
    let output = text(&run(api.address, &["check", "--system-namespace", "zs"]).stdout);
    assert!(output.contains("ok       rights      the planes have all"), "{output}");
    let reviews = api.requests().into_iter().filter(|(line, _)| line == REVIEWS);
    let reviews = reviews.map(|(_, body)| serde_json::from_str::<Value>(&body).expect("JSON"));
    let within: BTreeSet<_> =
        reviews.map(|review| review["spec"]["resourceAttributes"]["namespace"].as_str().map(str::to_owned)).collect();
    assert_eq!(within, ["shop", "stage", "zs"].map(|name| Some(name.to_owned())).into());
}

/// Goal: a missing right of the user is reported with the commands that need it. Method: each right in turn is missing.
#[test]
fn a_missing_right_of_the_user_is_reported() {
    for (lacking, expected) in [
        ("get", "you may not get zeroscalers in namespace shop, as these commands require: status NAME, wake, sleep"),
        ("list", "you may not list zeroscalers in namespace shop, as these commands require: status, top"),
        ("patch", "you may not patch zeroscalers in namespace shop, as these commands require: wake"),
    ] {
        let api = Server::start(move |request, body| match request {
            "GET /version" => (200, json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})),
            "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                let mut review: Value = serde_json::from_str(body).expect("JSON");
                let may = review["spec"]["resourceAttributes"]["verb"] != lacking;
                review["status"] = json!({"allowed": may});
                (201, review)
            }
            _ => failure(403, "Forbidden", "no", json!({})),
        });
        let output = text(&run(api.address, &["check", "--system-namespace", "zs"]).stdout);
        assert!(output.contains(expected), "{output}");
    }
}

/// Goal: remedies repair the existing installation in the way it was made, and do not suggest a second one or other
/// images.
#[test]
fn remedies_fit_the_existing_install() {
    let checked = run(server(false).address, &["check", "--system-namespace", "zs"]);
    let output = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{output}");
    for wrong in ["the planes lack", "the planes have different versions"] {
        let remedy = output.lines().skip_while(|line| !line.contains(wrong)).nth(1).unwrap_or_default();
        assert!(remedy.contains("fix: ") && remedy.contains("helm upgrade"), "{wrong}: {output}");
    }
    let output = text(&run(server(false).address, &["check"]).stdout);
    assert!(output.contains("there is no Deployment autoscaler in namespace zeroscale-system"), "{output}");
    assert!(output.contains("fix: select its namespace with --system-namespace, or install it"), "{output}");
    assert!(!output.contains("WRONG    rights"), "rights of missing planes are unknown: {output}");
}

/// Goal: leases of other programs in the planes' namespace, such as Knative's controllers, do not affect the check of
/// the planes' clocks.
#[test]
fn leases_of_other_programs_are_ignored() {
    const OTHER: &str = "controller.knative.dev.serving.pkg.reconciler.route.reconciler.00-of-01";
    let lease = |name: &str, renewed: &str| json!({"metadata": {"name": name, "namespace": "zs"}, "spec": {"holderIdentity": "a", "renewTime": renewed}});
    let now = "2024-01-01T00:00:00.000000Z"; // The server's time.
    let leases = [
        lease("autoscaler-bucket-00-of-04", now),
        lease("hpaautoscaler.zeroscale.dev.horizontalpodautoscaler.00-of-01", now),
        lease("hpaautoscaler.knative.dev.serving.pkg.reconciler.autoscaling.hpa.reconciler.00-of-01", now),
        lease(OTHER, "2023-12-31T00:00:00.000000Z"),
    ];
    let list = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {}, "items": leases});
    let api = Server::start(move |request, _| match request {
        "GET /version" => (200, json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"})),
        "GET /apis/coordination.k8s.io/v1/namespaces/zs/leases" => (200, list.clone()),
        _ => failure(403, "Forbidden", "no", json!({})),
    });
    let output = text(&run(api.address, &["check", "--system-namespace", "zs"]).stdout);
    assert!(output.contains("the clocks of planes agree with the API server's (3)"), "{output}");
    assert!(!output.contains(OTHER), "{output}");
}
