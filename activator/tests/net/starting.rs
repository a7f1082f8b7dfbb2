//! Requests to an activator that has just started, at an address that an activator had a moment ago.

use crate::rig::{Pod, Rig, read_to_end, read_until, write};
use activator::discovery::Event;
use common_runtime::resolve::Dns;
use std::sync::Arc;

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n";

async fn start() -> Rig {
    Rig::start_knowing_nothing(|_| {}, activator::Configs::default(), Arc::new(Dns)).await
}

/// Goal: a request before the revisions are known is served once they are. Method: a kubelet probe before it on the
/// same connection gets a response, so the request has been read.
#[tokio::test]
async fn a_request_before_the_first_lists_waits_for_them() {
    let rig = start().await;
    let mut client = rig.raw().await;
    let probe = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1.34\r\n\r\n";
    write(&mut client, &format!("{probe}{REQUEST}")).await;
    read_until(&mut client, "list of revisions yet\n").await;
    let pod = Pod::saying("served").await;
    rig.revision(|_| {}).await;
    rig.pods(&[pod.address]).await;
    rig.tell(Event::Synced).await;
    let answer = read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("served"), "{answer}");
}

/// Goal: if lists do not come, a request gets an error in time.
#[tokio::test]
async fn a_request_is_refused_where_lists_do_not_come() {
    let rig = start().await;
    let mut client = rig.raw().await;
    write(&mut client, REQUEST).await;
    let answer = read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("x-zeroscale-reason: not-synced"), "{answer}");
}
