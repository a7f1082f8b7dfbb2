//! Two activators with the same pods.

use crate::rig::{self, Pod, Rig};
use activator::discovery::Event;
use activator_core::breaker::Capacity;
use http::{Response, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const OWN: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

async fn ask(rig: &Arc<Rig>, requests: usize, answers: &mut JoinSet<StatusCode>) {
    for _ in 0..requests {
        let rig = rig.clone();
        answers.spawn(async move { rig.get("app.ns", "/").await.status });
    }
}

async fn all_good(answers: JoinSet<StatusCode>) {
    assert!(rig::patient(answers.join_all()).await.into_iter().all(|status| status == StatusCode::OK));
}

/// Goal: two activators divide three pods with a limit of one, two to the first and one to the second, so that no pod
/// ever runs two requests. When the first has gone, the second has them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_activators_divide_three_pods() {
    let (gate, worst) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut pods = Vec::new();
    for _ in 0..3 {
        let (gate, worst, running) = (gate.clone(), worst.clone(), Arc::new(AtomicUsize::new(0)));
        let work = move |_| {
            let (gate, worst, running) = (gate.clone(), worst.clone(), running.clone());
            async move {
                worst.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await.expect("open").forget();
                running.fetch_sub(1, Ordering::SeqCst);
                Response::new(rig::full("done"))
            }
        };
        pods.push(Pod::start(work).await);
    }
    let mut rigs = Vec::new();
    for own in OWN {
        let rig = Rig::start_with(|options| options.pod_ip = own.parse().expect("an address")).await;
        rig.revision(|backend| backend.container_concurrency = 1).await;
        rig.pods(&pods.iter().map(|pod| pod.address).collect::<Vec<_>>()).await;
        rig.until(|load| load.capacity == Capacity::Limited(3)).await; // An activator that knows fewer would divide them differently.
        rigs.push(Arc::new(rig));
    }
    for (rig, share) in rigs.iter().zip([2, 1]) {
        let addresses = OWN.map(str::to_owned).to_vec();
        rig.tell(Event::Activators { key: rig::key("app"), addresses }).await;
        rig.until(|load| load.capacity == Capacity::Limited(share)).await;
    }
    let mut answers = JoinSet::new();
    for rig in &rigs {
        ask(rig, 3, &mut answers).await;
    }
    rigs[0].until(|load| (load.in_flight, load.queued) == (2, 1)).await;
    rigs[1].until(|load| (load.in_flight, load.queued) == (1, 2)).await;
    rig::until(|| pods.iter().all(|pod| pod.requests() == 1)).await;
    gate.add_permits(6);
    all_good(answers).await;
    assert_eq!(worst.load(Ordering::SeqCst), 1, "most that ran on one pod");

    rigs[1].tell(Event::Activators { key: rig::key("app"), addresses: vec![OWN[1].to_owned()] }).await;
    let mut answers = JoinSet::new();
    ask(&rigs[1], 4, &mut answers).await;
    rigs[1].until(|load| (load.in_flight, load.queued) == (3, 1)).await;
    gate.add_permits(4);
    all_good(answers).await;
    assert_eq!(worst.load(Ordering::SeqCst), 1, "most that ran on one pod");
}
