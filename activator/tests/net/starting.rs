//! Requests to an activator that has just started and has not received the first lists.

use crate::rig::{Pod, Rig, read_to_end, read_until};
use activator::discovery::Event;
use common_runtime::resolve::Dns;
use std::sync::Arc;

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: app.ns\r\nconnection: close\r\n\r\n";

async fn start() -> Rig {
    Rig::start_unsynced(|_| {}, activator::Configs::default(), Arc::new(Dns)).await
}

/// Method: when a probe before the request on the same connection has a response, the request has been read, too.
#[tokio::test]
async fn a_request_before_the_first_lists_waits_for_them() {
    let rig = start().await;
    let probe = "GET / HTTP/1.1\r\nhost: x\r\nuser-agent: kube-probe/1.34\r\n\r\n";
    let mut client = rig.send_raw(&format!("{probe}{REQUEST}")).await;
    read_until(&mut client, "list of revisions yet\n").await;
    rig.revision(|_| {}).await;
    let _pod = rig.only_pod(Pod::saying("served").await).await;
    rig.emit(Event::Synced).await;
    let answer = read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("served"), "{answer}");
}

#[tokio::test]
async fn a_request_is_refused_if_the_lists_do_not_come() {
    let rig = start().await;
    let answer = read_to_end(&mut rig.send_raw(REQUEST).await).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("x-zeroscale-reason: not-synced"), "{answer}");
}
