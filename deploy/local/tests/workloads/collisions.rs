//! Port collisions with programs that listen on more than the assigned address.

use super::cluster::{Cluster, container, pod, terminated, waiting};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use std::sync::atomic::{AtomicU16, Ordering};

async fn expect_collision(cluster: &Cluster, loser: &str, words: &[&str]) {
    let reported = |pods: &[Pod]| {
        // The reason is of the waiting container, or of its last run if a busy node did not write that in time.
        let of_loser = pods.iter().filter(|p| p.name_any() == loser);
        of_loser
            .flat_map(|pod| waiting(pod).into_iter().chain(terminated(pod)))
            .any(|(reason, message)| reason == "PortCollision" && words.iter().all(|word| message.contains(word)))
    };
    cluster.until(&format!("{loser} reports a PortCollision with {words:?}"), reported).await;
    cluster.until_event("PortCollision", |event| event.involved_object.name.as_deref() == Some(loser)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collision_names_the_program_that_listens_on_every_address() {
    let cluster = Cluster::start().await;
    // A separate port, since tests run in parallel and this one is taken on all addresses.
    let port = own_port();
    let ports = json!({"ports": [{"containerPort": port}]});
    cluster.create::<Pod>(pod("greedy", container("everywhere", ports.clone()))).await;
    cluster.until_event("ListensOnEveryAddress", |_| true).await;
    cluster.create::<Pod>(pod("victim", container("hello", ports))).await;
    expect_collision(&cluster, "victim", &["default/greedy", "every address", "$HOST:$PORT"]).await;
    cluster.stop().await;
}

/// Returns a port that no other test uses, below those that the kernel allocates. A search for a free port would bind
/// it, and a process that another test is just starting may keep it open for a moment.
fn own_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 5_000).expect("small");
    20_000 + 2 * process + NEXT.fetch_add(1, Ordering::Relaxed)
}
