//! Shutdown by signals leaves no process and no folder behind.

use crate::process::{Local, children, eventually};
use crate::up::{deployment, write};
use rustix::process::Signal;
use std::time::Duration;

/// Maximum duration of an orderly end: pods have a grace period, but do not need it here.
const END: Duration = Duration::from_secs(15);

async fn ends_in_order(signal: Signal) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut local = Local::up([write(&folder, "pods.yaml", &deployment("pods", 2))]);
    let kubeconfig = local.ready().await.kubeconfig;
    let mut pods = Vec::new();
    eventually("two processes of pods", async || {
        pods = children(local.pid());
        pods.len() == 2
    })
    .await;
    local.signal(signal);
    let status = local.ended(END).await;
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(!pods.iter().any(|pod| pod.is_alive()), "pods end before `local`");
    assert!(!kubeconfig.exists(), "the folder is removed");
}

#[tokio::test]
async fn each_signal_ends_local_and_its_pods() {
    tokio::join!(ends_in_order(Signal::INT), ends_in_order(Signal::TERM), ends_in_order(Signal::HUP));
}

/// Goal: a forced end leaves nothing behind either. Method: a pod whose shell ignores SIGTERM, with a child process
/// that the kernel does not kill with `local`.
#[tokio::test]
async fn a_second_signal_kills_all_processes_of_pods() {
    let folder = tempfile::tempdir().expect("a folder");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: stubborn}\nspec:\n  containers:\n  - name: main\n    image: none\n    \
               command: [/bin/sh, -c, \"trap '' TERM; sleep 1000 & while :; do sleep 1; done\"]\n";
    let manifest = write(&folder, "pod.yaml", pod);
    let mut local = Local::up([manifest]);
    let kubeconfig = local.ready().await.kubeconfig;
    let mut all = Vec::new();
    eventually("a shell and its children", async || {
        all = children(local.pid());
        all.extend(all.clone().into_iter().flat_map(|shell| children(shell.pid)));
        all.len() >= 3
    })
    .await;
    local.signal(Signal::INT);
    while !local.line().await.ends_with("  shutting down") {}
    local.signal(Signal::INT);
    assert_eq!(local.ended(END).await.code(), Some(1));
    eventually("the end of all", async || !all.iter().any(|process| process.is_alive())).await;
    assert!(!kubeconfig.parent().expect("a folder of its own").exists());
}
