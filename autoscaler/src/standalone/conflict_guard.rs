//! Standalone must not share a cluster with Knative Serving's own controller: both would reconcile the same objects.
//!
//! So before an autoscaler in standalone campaigns for anything it looks for that controller: a lease of it that is
//! held, or its Deployment with replicas, both in the namespace that Knative is installed into. While there is one, the
//! process is not ready: kubelet probes and everybody else are answered 503 with what to do, the same is logged once,
//! and the look is repeated until the controller is gone.
//!
//! # Odd cases
//!
//! - The API server does not answer: nothing is known, so the process is not ready either.
//! - No right to look (403): a warning names the right; the other evidence decides. Without any right standalone
//!   starts.
//! - Knative that is installed later is not noticed before the next start.

use crate::ingest::stat_server::StatServer;
use common::time::Timestamp;
use common_runtime::api_server;
use common_runtime::clock::Clock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;
use tokio::time::sleep;

/// Namespace that Knative Serving is installed into.
const NAMESPACE: &str = "knative-serving";
/// What the names of its controller's leases begin with.
const LEASES: &str = "controller.knative.dev.serving";
/// Name of its controller's Deployment.
const DEPLOYMENT: &str = "controller";
/// Time between two looks.
pub(crate) const RECHECK: Duration = Duration::from_secs(5);

/// Why it is known that the controller lives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Evidence(String);

/// Returns as soon as no controller of Knative Serving is found; until then `server` answers 503. Looks every
/// `recheck`.
pub(crate) async fn wait_until_alone(client: &Client, server: &StatServer, recheck: Duration) {
    let (clock, mut told) = (Clock::system(), None);
    loop {
        let mut is_reported = false;
        let reason = match look(client, clock.now()).await {
            Ok(None) => {
                if told.is_some() {
                    tracing::info!("Knative Serving's controller is not seen any more; starting");
                }
                return;
            }
            Ok(Some(evidence)) => what_to_do(&evidence),
            Err(error) => {
                is_reported = api_server::is_reported(&error);
                format!("whether Knative Serving's controller lives in this cluster is not known: {error}")
            }
        };
        if !is_reported && told.as_ref() != Some(&reason) {
            tracing::error!("{reason}");
        }
        server.refuse(&reason, sleep(recheck)).await;
        told = Some(reason);
    }
}

fn what_to_do(Evidence(found): &Evidence) -> String {
    format!(
        "Knative Serving's controller lives in this cluster ({found}), and standalone would fight it for the same objects. \
         Either run as its drop-in, with ZEROSCALE_MODE=knative in place of its own activator and autoscaler, or remove \
         Knative Serving; this process goes on by itself then"
    )
}

async fn look(client: &Client, now: Timestamp) -> kube::Result<Option<Evidence>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let leases = permitted("list leases", leases.list(&ListParams::default()).await)?;
    if let Some(lease) = leases.iter().flatten().find(|lease| is_held(lease, now)) {
        return Ok(Some(Evidence(format!("lease {NAMESPACE}/{} is held", lease.name_any()))));
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let deployment = permitted("get deployments", deployments.get_opt(DEPLOYMENT).await)?.flatten();
    let wanted = |deployment: &Deployment| deployment.spec.as_ref().is_none_or(|spec| spec.replicas != Some(0));
    let runs = deployment.as_ref().is_some_and(wanted);
    Ok(runs.then(|| Evidence(format!("Deployment {NAMESPACE}/{DEPLOYMENT} has replicas"))))
}

/// None without the right to look.
fn permitted<T>(right: &str, answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let remedy = "apply deploy/kubernetes/base/roles.yaml again";
            tracing::warn!(namespace = NAMESPACE, right, remedy, "no right to look for Knative Serving's controller");
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Whether it is one of the controller's leases, and somebody holds it: released ones have no holder, a dead process's
/// are not renewed.
fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = lease.spec.as_ref().filter(|_| lease.name_any().starts_with(LEASES)) else { return false };
    let held = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
    let renewed = spec.renew_time.as_ref().map_or(0, |time| time.0.as_second());
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0));
    held && now.as_secs() <= renewed.saturating_add(lasts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::convert::Infallible;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// What the API server says of leases, and of the Deployment.
    type Answers = Arc<Mutex<[(u16, Value); 2]>>;

    fn client(answers: Answers) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answers = answers.lock();
            let (code, body) = match request.uri().path() {
                "/apis/coordination.k8s.io/v1/namespaces/knative-serving/leases" => &answers[0],
                "/apis/apps/v1/namespaces/knative-serving/deployments/controller" => &answers[1],
                path => panic!("unexpected: {path}"),
            };
            let response = Response::builder().status(*code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response.expect("a response")) }
        });
        Client::new(service, "default")
    }

    fn failure(code: u16) -> (u16, Value) {
        let reason = if code == 404 { "NotFound" } else { "" };
        (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason}))
    }

    fn leases(name: &str, holder: &str, renewed: i64) -> (u16, Value) {
        let renewed = jiff::Timestamp::from_second(renewed).expect("a time");
        let lease = json!({
            "metadata": {"name": name, "namespace": "knative-serving"},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": format!("{renewed:.6}"),
            },
        });
        (200, json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {}, "items": [lease]}))
    }

    fn deployment(replicas: Value) -> (u16, Value) {
        let spec = json!({"replicas": replicas, "selector": {}, "template": {}});
        (200, json!({"metadata": {"name": "controller", "namespace": "knative-serving"}, "spec": spec}))
    }

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
    const NAME: &str = "controller.knative.dev.serving.pkg.reconciler.revision.reconciler.00-of-01";

    #[tokio::test]
    async fn a_controller_is_known_by_a_held_lease_or_by_its_deployment() {
        let now = NOW.as_secs();
        let rows = [
            (leases(NAME, "controller-0_1", now - 10), failure(404), Some("lease")),
            (leases(NAME, "controller-0_1", now - 61), failure(404), None), // A dead process's.
            (leases(NAME, "", now), failure(404), None),                    // Released.
            (leases("autoscaler-bucket-00-of-01", "autoscaler-0_1", now), failure(404), None), // Not the controller's.
            (leases(NAME, "", now), deployment(json!(1)), Some("Deployment")),
            (leases(NAME, "", now), deployment(Value::Null), Some("Deployment")), // One, by default.
            (leases(NAME, "", now), deployment(json!(0)), None),
            (failure(403), deployment(json!(1)), Some("Deployment")),
            (failure(403), failure(403), None),
        ];
        for (leases, deployment, expected) in rows {
            let client = client(Arc::new(Mutex::new([leases.clone(), deployment.clone()])));
            let found = look(&client, NOW).await.expect("answered");
            let kind = found.as_ref().map(|evidence| evidence.0.split(' ').next().unwrap_or_default());
            assert_eq!(kind, expected, "{leases:?} {deployment:?}");
        }
        assert!(look(&client(Arc::new(Mutex::new([failure(500), failure(404)]))), NOW).await.is_err());
    }

    async fn probe(server: &StatServer) -> String {
        let mut stream = TcpStream::connect(server.local_addr().expect("bound")).await.expect("connected");
        let head = b"GET / HTTP/1.1\r\nHost: probe\r\nUser-Agent: kube-probe/1.36\r\nConnection: close\r\n\r\n";
        stream.write_all(head).await.expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    /// Goal: while the controller lives, or nobody knows, probes say 503 and what to do; when it is gone, it goes on.
    #[tokio::test]
    async fn beside_a_controller_it_is_not_ready_and_says_what_to_do() {
        let server = StatServer::bind(([127, 0, 0, 1], 0).into()).expect("bound");
        let answers = Arc::new(Mutex::new([leases(NAME, "", 0), deployment(json!(1))]));
        let client = client(answers.clone());
        let waiting = wait_until_alone(&client, &server, Duration::from_millis(20));
        let asking = async {
            let refused = probe(&server).await;
            assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
            assert!(refused.contains("ZEROSCALE_MODE=knative"), "{refused}");
            answers.lock()[1] = failure(500);
            while !probe(&server).await.contains("is not known") {}
            answers.lock()[1] = failure(404);
        };
        let both = async { tokio::join!(waiting, asking) };
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("goes on when it is gone");
    }
}
