//! Objects created before the planes start: the system namespace, the custom resources, and the planes' accounts,
//! Services and configuration.

use crate::up::{accounts, manifests};
use anyhow::Context;
use common::names;
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Namespace of the control plane.
pub const NAMESPACE: &str = "zeroscale-system";

/// DNS domain of the cluster. Nothing serves DNS.
pub const DOMAIN: &str = "cluster.local";

/// Services of the planes.
pub(super) const SERVICES: [&str; 2] = [names::ACTIVATOR_SERVICE, names::AUTOSCALER_SERVICE];

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

/// Creates the objects that do not exist, for planes that watch these namespaces. A given `configuration` also replaces
/// the existing one. Fails if the API server rejects an object, or does not serve a custom resource within 10 s.
pub async fn create(
    client: &Client,
    configuration: Option<Configuration>,
    namespaces: &Namespaces,
) -> anyhow::Result<()> {
    manifests::make_namespace(client, NAMESPACE).await?;
    let crds = Api::all(client.clone());
    for crd in common_api::crds() {
        create_if_missing(&crds, &crd).await.context("cannot create a CustomResourceDefinition")?;
        let name = crd.name_any();
        let served = await_condition(crds.clone(), &name, conditions::is_crd_established());
        let served = tokio::time::timeout(ESTABLISHED_TIMEOUT, served).await;
        served.with_context(|| {
            format!("the API server did not serve {name} within {} s", ESTABLISHED_TIMEOUT.as_secs())
        })??;
    }
    accounts::create(client, namespaces).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    for name in SERVICES {
        let port = |(name, port, target): &(&str, u16, u16)| json!({"name": name, "port": port, "targetPort": target});
        let ports: Vec<_> = ports(name).iter().map(port).collect();
        let service = json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"ports": ports}});
        let created = create_if_missing(&services, &serde_json::from_value(service)?).await;
        created.context("cannot create a system Service")?;
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

/// Reads the data of a config-autoscaler file. Fails if the autoscaler would reject it.
pub(super) fn configuration(path: &Path) -> anyhow::Result<Configuration> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    parse_configuration(&text).with_context(|| path.display().to_string())
}

fn parse_configuration(text: &str) -> anyhow::Result<Configuration> {
    let value: Value = serde_yaml_ng::from_str(text).context("not valid YAML")?;
    let data = match value.get("kind") {
        None => value,
        Some(kind) => {
            anyhow::ensure!(kind == "ConfigMap", "field kind: must be ConfigMap, not {kind}");
            value.get("data").cloned().unwrap_or_default()
        }
    };
    let entries = match data {
        Value::Null => return Ok(Configuration::new()),
        Value::Object(entries) => entries,
        other => anyhow::bail!("must be a map of settings, or a ConfigMap, not {other}"),
    };
    let mut map = Configuration::new();
    for (key, value) in entries {
        // YAML reads `10` as a number and `true` as a boolean; the setting is their text.
        let text = match value {
            Value::String(text) => text,
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            other => anyhow::bail!("{key}: must be a text, not {other}"),
        };
        map.insert(key, text);
    }
    common::config::AutoscalerConfig::from_map(&map)?;
    Ok(map)
}

/// Returns names, ports and target ports of one of the [`SERVICES`].
fn ports(service: &str) -> &'static [(&'static str, u16, u16)] {
    match service {
        names::ACTIVATOR_SERVICE => {
            &[("http", 80, names::ACTIVATOR_HTTP1_PORT), ("http2", 81, names::ACTIVATOR_H2C_PORT)]
        }
        _ => &[("http", names::STAT_PORT, names::STAT_PORT)],
    }
}

/// Publishes the endpoints of one of the [`SERVICES`]. The Services have no selector, because Kubernetes leaves Pods
/// without a node out of a Service. Fails if the API server rejects the slice.
pub async fn publish(client: &Client, service: &str, members: &[Member]) -> anyhow::Result<()> {
    let port = |(name, _, target): &(&str, u16, u16)| json!({"name": name, "port": target, "protocol": "TCP"});
    let endpoint = |member: &Member| {
        json!({"addresses": [member.address], "conditions": {"ready": member.ready, "serving": member.ready},
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": member.name}})
    };
    let slice: EndpointSlice = serde_json::from_value(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": slice_name(service), "namespace": NAMESPACE, "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "local.zeroscale.dev"}},
        "addressType": "IPv4",
        "ports": ports(service).iter().map(port).collect::<Vec<_>>(),
        "endpoints": members.iter().map(endpoint).collect::<Vec<_>>(),
    }))?;
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PatchParams::apply(manifests::FIELD_MANAGER).force();
    let applied = api.patch(&slice_name(service), &params, &Patch::Apply(&slice)).await;
    applied.map(drop).with_context(|| format!("cannot publish the endpoints of {service}"))
}

/// Deletes the endpoints, which are of no use after this cluster.
pub(super) async fn withdraw(client: &Client) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    for service in SERVICES {
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
    fn an_invalid_configuration_is_rejected_by_key() {
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
