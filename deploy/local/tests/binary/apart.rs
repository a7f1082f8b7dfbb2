//! API server and node as separate processes, and an API server that is not always available.

use crate::process::{Local, children, eventually};
use crate::up::{client, deployment, get, sleeper, write};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Goal: pods run on a node in a separate process, nothing remains of a killed node, and another node with its name
/// takes over its pods and counts a restart. Method: SIGKILL, which a node cannot handle.
#[tokio::test]
async fn a_deployment_runs_on_a_node_in_a_separate_process_and_on_its_successor() {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    // Low octets are free: clusters that choose their own begin above.
    let octet = 2 + std::process::id() % 30;
    let (pods, services) = (format!("127.{octet}.0.0/17"), format!("127.{octet}.128.0/17"));
    let file = kubeconfig.to_str().expect("UTF-8");
    let mut api = Local::start(["api", "--kubeconfig", file, "--service-cidr", &services]);
    assert_eq!(api.ready().await.kubeconfig, kubeconfig);
    let client = client(&kubeconfig).await;

    let work = folder.path().join("node").display().to_string();
    let place = ["node", "--kubeconfig", file, "--name", "apart", "--work-dir", &work, "--default-scheduler"];
    let start = || Local::start(place.iter().chain(&["--pod-cidr", &pods, "--service-cidr", &services]));
    let mut node = start();
    let object = serde_yaml_ng::from_str(&deployment("hello", 2)).expect("a Deployment");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &object).await.expect("created");
    eventually("two ready replicas", async || {
        let status = deployments.get("hello").await.expect("there").status.unwrap_or_default();
        status.ready_replicas == Some(2)
    })
    .await;
    let running = children(node.pid());
    assert_eq!(running.len(), 2);
    node.signal(Signal::KILL);
    node.ended(Duration::from_secs(15)).await;
    eventually("the end of its pods", async || !running.iter().any(|pod| pod.is_alive())).await;
    node = start();
    let all = Api::<Pod>::namespaced(client.clone(), "default");
    let is_restarted = |container: &ContainerStatus| container.ready && container.restart_count == 1;
    eventually("a restart of each pod", async || {
        let pods = all.list(&Default::default()).await.expect("pods");
        let statuses = pods.items.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        statuses.flatten().filter(|container| is_restarted(container)).count() == 2
    })
    .await;
    for pod in all.list(&Default::default()).await.expect("pods") {
        let address = pod.status.and_then(|status| status.pod_ip).expect("an address");
        assert!(address.starts_with(&format!("127.{octet}.")), "{address}");
        let answer = get(format!("{address}:8080").parse().expect("an address"), "hello").await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    let running = children(node.pid());
    assert_eq!(running.len(), 2);
    node.signal(Signal::TERM);
    assert_eq!(node.ended(Duration::from_secs(15)).await.code(), Some(0));
    assert!(!running.iter().any(|pod| pod.is_alive()), "pods end before their node does");
    let nodes = Api::<Node>::all(client).list(&Default::default()).await.expect("nodes");
    assert!(nodes.items.is_empty(), "a node removes its Node object at its end");
    api.signal(Signal::TERM);
    assert_eq!(api.ended(Duration::from_secs(15)).await.code(), Some(0));
}

/// Starts a proxy to `server` that closes connections until the flag is set. Returns its address and the flag.
async fn start_proxy(server: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, is_open) = (listener.local_addr().expect("bound"), Arc::<AtomicBool>::default());
    let opened = is_open.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            if opened.load(Ordering::Relaxed) {
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        }
    });
    (address, is_open)
}

/// Goal: `local up` waits for an API server that fails calls at the start. Method: `local up --external` through a
/// proxy that closes connections until the log has reported the failure.
#[tokio::test]
async fn up_waits_for_an_external_server_that_fails_at_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kubeconfig");
    let octet = 32 + std::process::id() % 30;
    let (pods, services) = (format!("127.{octet}.0.0/17"), format!("127.{octet}.128.0/17"));
    let mut api =
        Local::start(["api", "--kubeconfig", file.to_str().expect("UTF-8"), "--service-cidr", services.as_str()]);
    let (proxy, is_open) = start_proxy(api.ready().await.api).await;
    let mut kubeconfig = Kubeconfig::read_from(&file).expect("a kubeconfig");
    let cluster = kubeconfig.clusters[0].cluster.as_mut().expect("a cluster");
    cluster.server = Some(format!("https://{proxy}"));
    let through = write(&folder, "through", &serde_json::to_string(&kubeconfig).expect("JSON"));
    // No scheduler runs on that server, only the node.
    let sleeper = sleeper("hello").replace("    spec:\n", "    spec:\n      schedulerName: zeroscale-local\n");
    let manifest = write(&folder, "hello.yaml", &sleeper);
    let ranges = ["--pod-cidr".as_ref(), pods.as_ref(), "--service-cidr".as_ref(), services.as_ref()];
    let args = [manifest.as_os_str(), "--external".as_ref(), through.as_os_str()];
    let mut local = Local::up_with_warnings(args.into_iter().chain(ranges));
    local.warned("keeps failing").await;
    is_open.store(true, Ordering::Relaxed);
    let line = local.line().await;
    let ready = line.strip_prefix("ready ingress=http://").and_then(|rest| rest.split(' ').next());
    let ingress = ready.and_then(|ingress| ingress.parse().ok()).expect(&line);
    let answer = get(ingress, "hello.default").await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
