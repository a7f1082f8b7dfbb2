//! What a cluster has before the planes start: the system namespace, the custom resources, the planes' Services and
//! their configuration.

use crate::up::manifests;
use anyhow::Context;
use common::names;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Namespace of the control plane.
pub const NAMESPACE: &str = "zeroscale-system";
/// The cluster's DNS domain, though nothing serves DNS.
pub const DOMAIN: &str = "cluster.local";

/// Longest wait for a custom resource to be served.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(10);

/// One plane behind one of the system's Services.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) ready: bool,
}

/// Creates all of it.
pub(super) async fn create(client: &Client, config_autoscaler: Option<&Path>) -> anyhow::Result<()> {
    let namespace: Namespace = from(json!({"metadata": {"name": NAMESPACE}}))?;
    unless_there(&Api::all(client.clone()), &namespace).await.context("system namespace")?;
    let crds = Api::all(client.clone());
    for crd in common_api::crds() {
        unless_there(&crds, &crd).await.context("custom resource definition")?;
        established(&crds, &crd.name_any()).await?;
    }
    let services = Api::namespaced(client.clone(), NAMESPACE);
    for service in [
        service(
            names::ACTIVATOR_SERVICE,
            &[("http", 80, names::ACTIVATOR_HTTP1_PORT), ("http2", 81, names::ACTIVATOR_H2C_PORT)],
        )?,
        service(names::AUTOSCALER_SERVICE, &[("http", names::STAT_PORT, names::STAT_PORT)])?,
    ] {
        unless_there(&services, &service).await.context("system Service")?;
    }
    let data = match config_autoscaler {
        None => BTreeMap::new(),
        Some(path) => configuration(path)?,
    };
    let map: ConfigMap =
        from(json!({"metadata": {"name": "config-autoscaler", "namespace": NAMESPACE}, "data": data}))?;
    unless_there(&Api::namespaced(client.clone(), NAMESPACE), &map).await.context("config-autoscaler")
}

/// Creates an object unless one of that name exists, as it does on an API server that is not ours.
async fn unless_there<K>(api: &Api<K>, object: &K) -> kube::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Waits until the API server serves a custom resource.
async fn established(crds: &Api<CustomResourceDefinition>, name: &str) -> anyhow::Result<()> {
    let served = await_condition(crds.clone(), name, conditions::is_crd_established());
    tokio::time::timeout(ESTABLISHED_TIMEOUT, served)
        .await
        .with_context(|| format!("{name} was not established within {} s", ESTABLISHED_TIMEOUT.as_secs()))??;
    Ok(())
}

/// The data of a config-autoscaler file, refused here if the autoscaler would refuse it.
fn configuration(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let value: serde_json::Value =
        serde_yaml_ng::from_str(&text).with_context(|| format!("{}: no YAML", path.display()))?;
    let data = if value.get("kind").is_some() { value.get("data").cloned().unwrap_or_default() } else { value };
    let mut map = BTreeMap::new();
    for (key, value) in data.as_object().into_iter().flatten() {
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        map.insert(key.clone(), text);
    }
    common::config::AutoscalerConfig::from_map(&map).with_context(|| path.display().to_string())?;
    Ok(map)
}

fn service(name: &str, ports: &[(&str, u16, u16)]) -> anyhow::Result<Service> {
    let ports: Vec<_> =
        ports.iter().map(|(name, port, target)| json!({"name": name, "port": port, "targetPort": target})).collect();
    from(json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"ports": ports}}))
}

/// Publishes who is behind one of the system's Services.
pub(super) async fn publish(client: &Client, service: &str, members: &[Member]) -> anyhow::Result<()> {
    let ports = if service == names::ACTIVATOR_SERVICE {
        json!([{"name": "http", "port": names::ACTIVATOR_HTTP1_PORT, "protocol": "TCP"},
               {"name": "http2", "port": names::ACTIVATOR_H2C_PORT, "protocol": "TCP"}])
    } else {
        json!([{"name": "http", "port": names::STAT_PORT, "protocol": "TCP"}])
    };
    let endpoints: Vec<_> = members
        .iter()
        .map(|member| {
            json!({"addresses": [member.address], "conditions": {"ready": member.ready, "serving": member.ready},
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": member.name}})
        })
        .collect();
    let name = format!("{service}-local");
    let slice: EndpointSlice = from(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "local.zeroscale.dev"}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    }))?;
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&slice)).await;
    if matches!(&patched, Err(kube::Error::Api(status)) if status.code == 404) {
        api.create(&PostParams::default(), &slice).await.with_context(|| format!("endpoints of {service}"))?;
        return Ok(());
    }
    patched.with_context(|| format!("endpoints of {service}"))?;
    Ok(())
}

fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> anyhow::Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// Applies manifests given as text, as tests do.
///
/// # Errors
/// As [`manifests::parse`] and [`manifests::apply`].
pub async fn apply_text(client: &Client, text: &str) -> anyhow::Result<()> {
    manifests::apply(client, manifests::parse("text", text)?).await
}
