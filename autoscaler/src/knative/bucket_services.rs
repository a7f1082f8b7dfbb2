//! Publishes the addresses of bucket holders: a Service without a selector and an EndpointSlice, both named like the
//! bucket.
//!
//! Replicas, upstream's and ours, use them if they cannot dial a holder's address, as in a mesh. In a Knative install
//! each new holder of a bucket therefore writes its address there. In standalone replicas find each other by the leases
//! alone, and need no such objects.
//!
//! # Edge cases
//!
//! A failed write is retried every second while the bucket is ours; upstream's process ends after 3 s. Objects of
//! buckets that no longer exist (the number was changed) stay, as upstream's do.

use common::names::STAT_PORT;
use common_controller::Leadership;
use common_controller::shares::Shares;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{from_value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

const RETRY: Duration = Duration::from_secs(1);
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Announces every bucket that this process acquires, until `shutdown`.
pub async fn run(client: Client, namespace: String, me: IpAddr, shares: Shares, shutdown: CancellationToken) {
    let mut changes = shares.changes();
    let mut announced = BTreeSet::new();
    loop {
        let ours = shares.ours();
        announced.retain(|name: &String| ours.contains(&name.as_str()));
        for name in &ours {
            if announced.contains(*name) {
                continue;
            }
            // Because of the guard, the next holder writes only after this write has ended.
            let Some(guard) = shares.begin_bucket_write(name) else { continue };
            let latest = Instant::now() + ANNOUNCE_TIMEOUT;
            let until = guard.deadline().map_or(latest, |deadline| deadline.min(latest));
            let answer = timeout_at(until, announce(&client, &namespace, name, me)).await;
            if answer.is_ok() {
                guard.answered();
            }
            let answer = answer.map_err(|_| "the API server did not respond in time".to_owned());
            match answer.and_then(|written| written.map_err(|error| error.to_string())) {
                Ok(()) => drop(announced.insert((*name).to_owned())),
                Err(error) => tracing::warn!(
                    bucket = name,
                    error,
                    "the Service and EndpointSlice of a lease could not be written; trying again"
                ),
            }
        }
        let complete = announced.len() == ours.len();
        tokio::select! {
            () = shutdown.cancelled() => return,
            Ok(()) = changes.changed() => {}
            () = sleep(RETRY), if !complete => {}
        }
    }
}

async fn announce(client: &Client, namespace: &str, name: &str, me: IpAddr) -> kube::Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    exists(services.create(&PostParams::default(), &service(name)).await)?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let wanted = slice(name, me);
    if exists(slices.create(&PostParams::default(), &wanted).await)? {
        let mut present = slices.get(name).await?;
        if present.endpoints != wanted.endpoints {
            present.endpoints = wanted.endpoints;
            slices.replace(name, &PostParams::default(), &present).await?;
        }
    }
    Ok(())
}

/// Returns whether the object existed already.
fn exists<T>(created: kube::Result<T>) -> kube::Result<bool> {
    match created {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(true),
        Err(error) => Err(error),
    }
}

fn service(name: &str) -> Service {
    let port = json!({"name": "http", "port": STAT_PORT, "targetPort": STAT_PORT});
    from_value(json!({"metadata": {"name": name}, "spec": {"ports": [port]}})).expect("a Service")
}

fn slice(name: &str, me: IpAddr) -> EndpointSlice {
    let slice = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": if me.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [me], "conditions": {"ready": true, "serving": true, "terminating": false}}],
        "ports": [{"name": "http", "port": STAT_PORT, "protocol": "TCP"}],
    });
    from_value(slice).expect("an EndpointSlice")
}
