//! Objects created before the planes start: the system namespace, the custom resources, and the planes' accounts,
//! Services and configuration.

use crate::up::{accounts, manifests};
use anyhow::Context;
use common::names;
use common_runtime::namespaces::Namespaces;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

/// Data of a config-autoscaler ConfigMap.
pub type Configuration = BTreeMap<String, String>;

/// Creates the objects that do not exist, for planes that watch these namespaces. A given `configuration` also replaces
/// the existing one.
///
/// # Errors
/// Fails if the API server rejects an object, or does not serve a custom resource within 10 s.
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
    let activator = [("http", 80, names::ACTIVATOR_HTTP1_PORT), ("http2", 81, names::ACTIVATOR_H2C_PORT)];
    let autoscaler = [("http", names::STAT_PORT, names::STAT_PORT)];
    for service in [
        service(names::ACTIVATOR_SERVICE, "activator", &activator),
        service(names::AUTOSCALER_SERVICE, "autoscaler", &autoscaler),
    ] {
        manifests::apply(client, manifests::parse("system Services", &service.to_string())?).await?;
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

/// Returns the Service of the planes with this account. Its endpoints follow from the status of their Pods, which have
/// no node and have an address only while they are ready ([`super::pod_status`]).
fn service(name: &str, account: &str, ports: &[(&str, u16, u16)]) -> Value {
    let port = |(name, port, target): &(&str, u16, u16)| json!({"name": name, "port": port, "targetPort": target});
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"app": account}, "publishNotReadyAddresses": true,
            "ports": ports.iter().map(port).collect::<Vec<_>>(),
        },
    })
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
