//! Terminal output of `local up` about workloads that are not served.

use crate::process::Local;
use crate::up::{client, deployment, scaler, service, sleeper, write};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::PostParams;

/// Goal: the cluster is `ready` once its workloads are served, and not before. Each fault prints a line with its
/// reason, and another one when it ends.
#[tokio::test]
async fn a_workload_without_a_target_is_reported_until_it_has_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let manifest = write(&folder, "web.yaml", &(service("web") + &scaler("web") + "---\n" + &sleeper("hello")));
    let mut local = Local::up([manifest.as_os_str(), "--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
    let first = local.line().await;
    assert!(first.starts_with("not ready ingress=http://"), "{first}");
    local.line_with(&["try:", "hello.default.localhost"]).await;
    local.line_with(&["not served:", "default/web", "TargetNotFound"]).await;
    local.line_with(&["fault ", "default/web", "TargetNotFound"]).await;
    let deployments: Api<Deployment> = Api::namespaced(client(&kubeconfig).await, "default");
    let web = serde_yaml_ng::from_str(&deployment("web", 0)).expect("a Deployment");
    deployments.create(&PostParams::default(), &web).await.expect("created");
    local.line_with(&["recovered ", "default/web"]).await;
    assert!(local.line().await.starts_with("ready ingress=http://"));
}

/// Goal: the terminal names pods that the node cannot run, with the remedy.
#[tokio::test]
async fn a_pod_that_the_node_rejects_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let commandless = deployment("bare", 1).replace("        command:", "        args:");
    let manifest = write(&folder, "bare.yaml", &(commandless + &service("bare")));
    let mut local = Local::up([manifest]);
    local.line_with(&["fault ", "default/bare-", "needs a command"]).await;
}

/// Goal: a container has the variables of the Services in its namespace, as in Kubernetes.
#[tokio::test]
async fn a_container_has_the_variables_of_services_in_its_namespace() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = "env: [{name: HELLO_TEXT, value: 'at $(BACK_END_SERVICE_HOST):$(BACK_END_SERVICE_PORT)'}]";
    let front = deployment("front", 0).replace("        ports:", &format!("        {env}\n        ports:"));
    let manifest = write(&folder, "front.yaml", &(front + &service("front") + &service("back-end")));
    let mut local = Local::up([manifest]);
    let ready = local.ready().await;
    let services: Api<Service> = Api::namespaced(client(&ready.kubeconfig).await, "default");
    let address =
        services.get("back-end").await.expect("made").spec.and_then(|spec| spec.cluster_ip).expect("an address");
    let answer = crate::up::get(ready.ingress.expect("an ingress"), "front.default").await.expect("an answer");
    assert!(answer.contains(&format!("at {address}:")), "{answer}");
}
