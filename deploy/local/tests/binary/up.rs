//! `local up`, used as in the README.

use crate::process::{BINARY, DESCRIPTORS, Local, PATIENCE, children, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Returns a client with the kubeconfig, which uses TLS.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a configuration");
    assert_eq!(config.cluster_url.scheme_str(), Some("https"), "kubectl sends its token over TLS only");
    Client::try_from(config).expect("a client")
}

/// Returns a Deployment of the sample program.
pub(crate) fn deployment(name: &str, replicas: i32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         terminationGracePeriodSeconds: 5\n      containers:\n      - name: main\n        image: local/hello\n        \
         command: ['{BINARY}', hello]\n        ports: [{{name: http1, containerPort: 8080}}]\n        \
         readinessProbe: {{tcpSocket: {{port: http1}}, periodSeconds: 1}}\n"
    )
}

/// Returns the Service of that Deployment.
pub(crate) fn service(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  selector: {{app: {name}}}\n  \
         ports: [{{port: 80, targetPort: http1}}]\n"
    )
}

/// Returns the ZeroScaler of the workload with this name.
pub(crate) fn scaler(name: &str) -> String {
    format!(
        "---\napiVersion: zeroscale.dev/v1alpha1\nkind: ZeroScaler\nmetadata: {{name: {name}}}\nspec:\n  \
         target: {{kind: Deployment, name: {name}}}\n"
    )
}

/// Returns a Deployment with no replicas, its Service and its ZeroScaler.
pub(crate) fn sleeper(name: &str) -> String {
    deployment(name, 0) + &service(name) + &scaler(name)
}

/// Writes a file into `folder`.
pub(crate) fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// Sends a GET on its own connection. Returns head and body unchanged.
pub(crate) async fn get(address: SocketAddr, host: &str) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await??;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Sends requests until the host is routed to its adopted Service, which takes a moment after `ready`. Then the
/// response must be 200.
async fn expect_response(ingress: SocketAddr, host: &str) {
    let mut answer = String::new();
    eventually("a Service behind the host", async || {
        answer = get(ingress, host).await.expect("an answer");
        !answer.starts_with("HTTP/1.1 404") && !answer.contains("no ready endpoints")
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn the_printed_addresses_respond() {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let manifest = write(&folder, "hello.yaml", &sleeper("hello"));
    let mut local = Local::up([manifest.as_os_str(), "--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
    let ready = local.ready().await;
    assert_eq!(ready.kubeconfig, kubeconfig);
    assert_ne!(ready.api.port(), 0);
    let ingress = ready.ingress.expect("an ingress");
    let dashboard = ready.dashboard.expect("a dashboard");
    let page = get(dashboard, &dashboard.to_string()).await.expect("an answer");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("<!doctype html>"), "{page}");
    let hint = local.line().await;
    let url = format!("hello.default.localhost:{}", ingress.port());
    assert_eq!(hint, format!("  try:  http://{url}/"));

    let deployments: Api<Deployment> = Api::namespaced(client(&kubeconfig).await, "default");
    assert_eq!(deployments.get("hello").await.expect("applied").spec.expect("a spec").replicas, Some(0));
    expect_response(ingress, &url).await;
    expect_response(ingress, "hello.default").await;
    local.line_with(&["cold start  default/hello"]).await;
}

/// Goal: a Deployment and its Service sleep and wake without a ZeroScaler in the manifest, whether exported from an
/// absent namespace or labelled. The settings are used: with the default ones they would not sleep in time.
#[tokio::test]
async fn a_deployment_and_its_service_sleep_and_wake_without_a_zero_scaler_manifest() {
    let labelled = "metadata: {name: labelled, labels: {zeroscale.dev/enabled: 'true'}}\n";
    let exported = "metadata: {name: plain, namespace: shop, uid: u, resourceVersion: '7'}";
    let exported = (deployment("plain", 1) + &service("plain")).replace("metadata: {name: plain}", exported);
    let labelled = deployment("labelled", 1).replacen("metadata: {name: labelled}\n", labelled, 1);
    let labelled = labelled + &service("labelled");
    for (name, namespace, manifest) in [("plain", "shop", exported), ("labelled", "default", labelled)] {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = write(&folder, "deployment.yaml", &manifest);
        let settings = "stable-window: 6s\nscale-to-zero-grace-period: 6s\n";
        let settings = write(&folder, "settings.yaml", settings);
        let mut local = Local::up([manifest.as_os_str(), "--config-autoscaler".as_ref(), settings.as_os_str()]);
        let ready = local.ready().await;
        let ingress = ready.ingress.expect("an ingress");
        let url = format!("{name}.{namespace}.localhost:{}", ingress.port());
        assert_eq!(local.line().await, format!("  try:  http://{url}/"));
        let deployments: Api<Deployment> = Api::namespaced(client(&ready.kubeconfig).await, namespace);
        eventually("sleep", async || {
            let deployment = deployments.get(name).await.expect("applied");
            deployment.spec.and_then(|spec| spec.replicas) == Some(0)
        })
        .await;
        expect_response(ingress, &url).await;
    }
}

/// Reports whether a pod runs and is ready, as `kubectl get pods` shows it.
fn is_ready(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let containers = status.container_statuses.iter().flatten();
    let is_true = |kind: &str| status.conditions.iter().flatten().any(|c| c.type_ == kind && c.status == "True");
    status.phase.as_deref() == Some("Running")
        && is_true("Ready")
        && is_true("ContainersReady")
        && containers.map(|container| container.ready).eq([true])
}

/// Goal: both planes have Pods, which are ready once the cluster is. If the Pod of a plane is deleted, which revokes
/// the plane's rights, the plane is replaced, as in a cluster. Both planes work again.
#[tokio::test]
async fn a_plane_has_a_ready_pod_and_is_replaced_if_the_pod_is_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = write(&folder, "hello.yaml", &sleeper("hello"));
    let mut local = Local::up([manifest]);
    let ready = local.ready().await;
    let client = client(&ready.kubeconfig).await;
    let all = Api::<Pod>::all(client.clone()).list(&Default::default()).await.expect("pods");
    let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["activator-0", "autoscaler-0"]);
    assert!(all.iter().all(is_ready), "{all:#?}");
    let pods: Api<Pod> = Api::namespaced(client, local::up::system::NAMESPACE);
    for name in ["autoscaler-0", "activator-0"] {
        let former = pods.get(name).await.expect("a Pod").uid();
        pods.delete(name, &DeleteParams::default()).await.expect("deleted");
        eventually("another Pod, which is ready", async || {
            let pod = pods.get_opt(name).await.expect("an answer");
            pod.is_some_and(|pod| pod.uid() != former && is_ready(&pod))
        })
        .await;
    }
    let ingress = ready.ingress.expect("an ingress");
    eventually("a response of the sleeping workload", async || {
        let answer = get(ingress, "hello.default").await.expect("an answer");
        answer.starts_with("HTTP/1.1 200")
    })
    .await;
}

/// Goal: the process raises its limit of descriptors to the maximum, since one request needs several. Its pods have the
/// original limit.
#[tokio::test]
async fn up_raises_its_own_descriptor_limit_but_not_that_of_its_pods() {
    let folder = tempfile::tempdir().expect("a folder");
    // The sample program would raise its own limit.
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: main\n    image: none\n    \
               command: [/bin/sh, -c, exec sleep 600]\n";
    let mut local = Local::up([write(&folder, "pod.yaml", pod)]);
    let running: Api<Pod> = Api::namespaced(client(&local.ready().await.kubeconfig).await, "default");
    eventually("a pod that runs", async || running.get("a").await.is_ok_and(|pod| is_ready(&pod))).await;
    let limits = |pid: i32| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit").to_owned();
        let numbers: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (numbers[0], numbers[1])
    };
    let (soft, hard) = limits(local.pid());
    assert!(soft == hard && soft > DESCRIPTORS, "{soft} of {hard}");
    let pods = children(local.pid());
    assert_eq!(pods.iter().map(|pod| limits(pod.pid)).collect::<Vec<_>>(), [(DESCRIPTORS, hard)]);
}
