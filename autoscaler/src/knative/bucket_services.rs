//! Addresses of bucket owners, for a mesh: a Service without a selector and an EndpointSlice, both named like the
//! bucket.
//!
//! Replicas, upstream's and ours, use them if they cannot dial a holder's address, as in a mesh. In a Knative install
//! the new holder of a bucket therefore writes its address there, and the next holder overwrites it. In standalone
//! replicas find each other by the leases alone, and need no such objects.
//!
//! # Edge cases
//!
//! A failed write is retried every second while the bucket is ours; upstream's process ends after 3 s. Objects of
//! buckets that no longer exist (the number was changed) stay, as upstream's do.

use common::names::STAT_PORT;
use common_controller::Leadership;
use common_controller::shares::Shares;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time between attempts.
const RETRY: Duration = Duration::from_secs(1);
/// Longest duration of an attempt.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Name of the only port.
const PORT_NAME: &str = "http";

/// Announces every bucket that this process acquires, until `shutdown`.
pub async fn run(client: Client, namespace: String, me: IpAddr, shares: Shares, shutdown: CancellationToken) {
    let mut changes = shares.changes();
    let mut announced = BTreeSet::new();
    loop {
        let ours = shares.ours();
        announced.retain(|name: &String| ours.contains(&name.as_str()));
        for name in &ours {
            if !announced.contains(*name) {
                // The guard makes the next holder announce itself only after this write has ended.
                let Some(guard) = shares.begin_bucket_write(name) else { continue };
                let until = guard.deadline().unwrap_or_else(|| Instant::now() + ANNOUNCE_TIMEOUT);
                match timeout_at(until.min(Instant::now() + ANNOUNCE_TIMEOUT), announce(&client, &namespace, name, me))
                    .await
                {
                    Ok(answer) => {
                        guard.answered();
                        match answer {
                            Ok(()) => drop(announced.insert((*name).to_owned())),
                            Err(error) => {
                                tracing::warn!(bucket = name, %error, "bucket could not be announced, trying again");
                            }
                        }
                    }
                    Err(_) => tracing::warn!(bucket = name, "bucket could not be announced in time, trying again"),
                }
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
    let port = i32::from(STAT_PORT);
    let port = ServicePort {
        name: Some(PORT_NAME.to_owned()),
        port,
        target_port: Some(IntOrString::Int(port)),
        ..ServicePort::default()
    };
    Service {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec { ports: Some(vec![port]), ..ServiceSpec::default() }),
        ..Service::default()
    }
}

fn slice(name: &str, me: IpAddr) -> EndpointSlice {
    let conditions = EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) };
    let endpoint = Endpoint { addresses: vec![me.to_string()], conditions: Some(conditions), ..Endpoint::default() };
    let port = EndpointPort {
        name: Some(PORT_NAME.to_owned()),
        port: Some(i32::from(STAT_PORT)),
        protocol: Some("TCP".to_owned()),
        ..EndpointPort::default()
    };
    let labels = [("kubernetes.io/service-name".to_owned(), name.to_owned())];
    EndpointSlice {
        address_type: if me.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned(),
        endpoints: Some(vec![endpoint]),
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() },
        ports: Some(vec![port]),
    }
}
