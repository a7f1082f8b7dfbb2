//! Objects created before the planes start: the system namespace, the custom resources, and the planes' accounts,
//! Services and configuration.

use crate::up::{accounts, manifests};
use anyhow::Context;
use common::names;
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Namespace of the control plane.
pub const NAMESPACE: &str = "zeroscale-system";

/// DNS domain of the cluster. Nothing serves DNS.
pub const DOMAIN: &str = "cluster.local";

/// ConfigMap with the autoscaler's settings.
const CONFIG_AUTOSCALER: &str = "config-autoscaler";

/// Maximum wait until a custom resource is served.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(10);

/// A plane behind one of the system's Services.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Name of its pod.
    pub name: String,
    /// Address of its pod.
    pub address: IpAddr,
    /// True if its readiness probe passes.
    pub ready: bool,
}

/// Data of a config-autoscaler ConfigMap.
pub type Configuration = BTreeMap<String, String>;

/// Creates the objects that do not exist. A given `configuration` also replaces the existing one.
///
/// # Errors
/// Fails if the API server rejects an object, or does not serve a custom resource within 10 s.
pub async fn create(client: &Client, configuration: Option<Configuration>) -> anyhow::Result<()> {
    create_within(client, configuration, &Namespaces::default()).await
}

/// Creates the same objects for planes that watch only some namespaces.
pub(super) async fn create_within(
    client: &Client,
    configuration: Option<Configuration>,
    namespaces: &Namespaces,
) -> anyhow::Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    create_if_missing(&Api::all(client.clone()), &namespace).await.context("cannot create the system namespace")?;
    let crds = Api::all(client.clone());
    for crd in common_api::crds() {
        create_if_missing(&crds, &crd).await.context("cannot create a CustomResourceDefinition")?;
        established(&crds, &crd.name_any()).await?;
    }
    accounts::create(client, namespaces).await?;
    let services = Api::namespaced(client.clone(), NAMESPACE);
    for service in [
        service(
            names::ACTIVATOR_SERVICE,
            &[("http", 80, names::ACTIVATOR_HTTP1_PORT), ("http2", 81, names::ACTIVATOR_H2C_PORT)],
        )?,
        service(names::AUTOSCALER_SERVICE, &[("http", names::STAT_PORT, names::STAT_PORT)])?,
    ] {
        create_if_missing(&services, &service).await.context("cannot create a system Service")?;
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let data = json!(configuration.clone().unwrap_or_default());
    let mut map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": CONFIG_AUTOSCALER, "namespace": NAMESPACE}, "data": data}))?;
    create_if_missing(&maps, &map).await.context(CONFIG_AUTOSCALER)?;
    if configuration.is_some() {
        map.metadata.resource_version = maps.get(CONFIG_AUTOSCALER).await?.metadata.resource_version;
        maps.replace(CONFIG_AUTOSCALER, &PostParams::default(), &map).await.context(CONFIG_AUTOSCALER)?;
    }
    Ok(())
}

/// Creates an object unless its name exists, which is common on an external API server.
pub(super) async fn create_if_missing<K>(api: &Api<K>, object: &K) -> kube::Result<()>
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
        .with_context(|| format!("the API server did not serve {name} within {} s", ESTABLISHED_TIMEOUT.as_secs()))??;
    Ok(())
}

/// Reads the data of a config-autoscaler file. Fails if the autoscaler would reject it.
pub(super) fn configuration(path: &Path) -> anyhow::Result<Configuration> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    parse_configuration(&text).with_context(|| path.display().to_string())
}

fn parse_configuration(text: &str) -> anyhow::Result<Configuration> {
    let value: serde_json::Value = serde_yaml_ng::from_str(text).context("not valid YAML")?;
    let data = match value.get("kind") {
        None => value,
        Some(kind) => {
            anyhow::ensure!(kind == "ConfigMap", "field kind: must be ConfigMap, not {kind}");
            value.get("data").cloned().unwrap_or_default()
        }
    };
    let entries = match data {
        serde_json::Value::Null => return Ok(Configuration::new()),
        serde_json::Value::Object(entries) => entries,
        other => anyhow::bail!("must be a map of settings, or a ConfigMap, not {other}"),
    };
    let mut map = Configuration::new();
    for (key, value) in entries {
        // YAML reads `10` as a number and `true` as a boolean; the setting is their text.
        let text = match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Bool(_) | serde_json::Value::Number(_) => value.to_string(),
            other => anyhow::bail!("{key}: must be a text, not {other}"),
        };
        map.insert(key, text);
    }
    common::config::AutoscalerConfig::from_map(&map)?;
    Ok(map)
}

fn service(name: &str, ports: &[(&str, u16, u16)]) -> anyhow::Result<Service> {
    let ports: Vec<_> =
        ports.iter().map(|(name, port, target)| json!({"name": name, "port": port, "targetPort": target})).collect();
    Ok(serde_json::from_value(json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"ports": ports}}))?)
}

/// Publishes the endpoints of one of the system's Services: [`names::ACTIVATOR_SERVICE`] or
/// [`names::AUTOSCALER_SERVICE`].
///
/// # Errors
/// Fails if the API server rejects the slice.
pub async fn publish(client: &Client, service: &str, members: &[Member]) -> anyhow::Result<()> {
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
    let name = slice_name(service);
    let slice: EndpointSlice = serde_json::from_value(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "local.zeroscale.dev"}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    }))?;
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    let applied = api.patch(&name, &PatchParams::apply(manifests::FIELD_MANAGER).force(), &Patch::Apply(&slice)).await;
    applied.map(drop).with_context(|| format!("cannot publish the endpoints of {service}"))
}

/// Deletes the endpoints, which are of no use after this cluster.
pub(super) async fn withdraw(client: &Client) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    for service in [names::ACTIVATOR_SERVICE, names::AUTOSCALER_SERVICE] {
        if let Err(error) = slices.delete(&slice_name(service), &DeleteParams::default()).await {
            tracing::debug!(service, %error, "the endpoints could not be deleted");
        }
    }
}

fn slice_name(service: &str) -> String {
    format!("{service}-local")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_a_map_or_a_config_map() {
        let expected = Configuration::from([("stable-window".into(), "10s".into()), ("min-scale".into(), "2".into())]);
        for text in [
            "stable-window: 10s\nmin-scale: 2\n",
            "apiVersion: v1\nkind: ConfigMap\ndata: {stable-window: 10s, min-scale: '2'}\n",
        ] {
            assert_eq!(parse_configuration(text).expect(text), expected);
        }
        for text in ["", "kind: ConfigMap\n"] {
            assert_eq!(parse_configuration(text).expect(text), Configuration::new());
        }
    }

    #[test]
    fn a_bad_configuration_is_refused_by_key() {
        let rows = [
            ("stable-window: 1s", "stable-window"),
            ("min-scale: [1]", "min-scale: must be a text"),
            ("kind: Secret", "field kind: must be ConfigMap"),
            ("[1]", "must be a map of settings"),
            ("a: [", "not valid YAML"),
        ];
        for (text, expected) in rows {
            let error = format!("{:#}", parse_configuration(text).expect_err(text));
            assert!(error.contains(expected), "{error}");
        }
    }
}
