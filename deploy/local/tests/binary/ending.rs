//! However it ends, nothing of it stays.

use crate::process::{Local, Seen, children, eventually};
use crate::up::{deployment, write};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that an end in order may take: pods get their grace, and here need none of it.
const END: Duration = Duration::from_secs(15);

/// A cluster with two pods that run, and its kubeconfig.
async fn busy(folder: &tempfile::TempDir) -> (Local, Vec<Seen>, PathBuf) {
    let manifest = write(folder, "pods.yaml", &deployment("pods", 2));
    let mut local = Local::up([manifest]);
    let kubeconfig = local.ready().await.kubeconfig;
    let mut pods = Vec::new();
    eventually("two processes of pods", async || {
        pods = children(local.pid());
        pods.len() == 2
    })
    .await;
    (local, pods, kubeconfig)
}

async fn ends_in_order(signal: Signal) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut local, pods, kubeconfig) = busy(&folder).await;
    local.signal(signal);
    let status = local.ended(END).await;
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(!pods.iter().any(|pod| pod.is_alive()), "pods end before it does");
    assert!(!kubeconfig.exists(), "its folder goes with it");
}

#[tokio::test]
async fn sigint_ends_it_and_every_pod() {
    ends_in_order(Signal::INT).await;
}

#[tokio::test]
async fn sigterm_ends_it_and_every_pod() {
    ends_in_order(Signal::TERM).await;
}

#[tokio::test]
async fn pods_end_also_when_it_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut local, pods, kubeconfig) = busy(&folder).await;
    local.signal(Signal::KILL);
    assert_eq!(local.ended(END).await.code(), None);
    eventually("the end of its pods", async || !pods.iter().any(|pod| pod.is_alive())).await;
    let left = kubeconfig.parent().expect("a folder of its own");
    std::fs::remove_dir_all(left).expect("what a killed process leaves: its folder of logs");
}
