//! `local up` with an API server that is not always available.

use crate::process::Local;
use crate::up::{get, sleeper, write};
use kube::config::Kubeconfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::{TcpListener, TcpStream};

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
