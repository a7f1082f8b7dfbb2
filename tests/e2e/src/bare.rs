//! A bare API server for tests that play all other components, and the few objects with which such tests begin.

use anyhow::{Context, bail};
use common::stat::{Stat, WireStatMessage, WireStatMessages};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config};
use local::api::{ApiOptions, ApiServer};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The system namespace.
pub const SYSTEM: &str = "knative-serving";

/// Longest wait for a custom resource to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Starts a server whose Services get addresses from `range`, with the system namespace. Returns it with an
/// administrator's client.
///
/// # Errors
/// Fails if the range is invalid or the server does not start.
pub async fn start(range: &str) -> anyhow::Result<(ApiServer, Client)> {
    let server = ApiServer::start(ApiOptions::new(range.parse()?)).await?;
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    create(&client, None, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})).await?;
    Ok((server, client))
}

/// Creates the definitions of Zeroscale's custom resources.
///
/// # Errors
/// Fails if the API server rejects one.
pub async fn define_resources(client: &Client) -> anyhow::Result<()> {
    define(client, &common_api::crds::crds()).await
}

/// Creates the definitions that a Knative installation provides.
///
/// # Errors
/// Fails if the API server rejects one.
pub async fn define_shared_resources(client: &Client) -> anyhow::Result<()> {
    define(client, &common_api::crds::shared()).await
}

/// Creates the parts of a Knative installation that activators read: the definition of Revisions, and their ConfigMaps.
///
/// # Errors
/// Fails if the API server rejects one.
pub async fn install_activators_part_of_knative(client: &Client) -> anyhow::Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "revisions.serving.knative.dev"},
        "spec": {"group": "serving.knative.dev", "scope": "Namespaced",
            "names": {"kind": "Revision", "plural": "revisions", "singular": "revision", "listKind": "RevisionList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    create(client, None, definition).await?;
    for name in ["config-network", "config-observability", "config-logging"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {}});
        create(client, Some(SYSTEM), map).await?;
    }
    Ok(())
}

async fn define(client: &Client, crds: &[CustomResourceDefinition]) -> anyhow::Result<()> {
    for crd in crds {
        let mut object = serde_json::to_value(crd)?;
        object["apiVersion"] = json!("apiextensions.k8s.io/v1");
        object["kind"] = json!("CustomResourceDefinition");
        create(client, None, object).await?;
    }
    Ok(())
}

/// Creates an object of any kind and returns it; `namespace` is `None` for a cluster-scoped object.
///
/// # Errors
/// Fails if the API server rejects it, or does not serve its kind in time.
pub async fn create(client: &Client, namespace: Option<&str>, object: Value) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("an object says what it is")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let created = async {
        // A custom resource is served a moment after its definition was created.
        loop {
            match api.create(&PostParams::default(), &object).await {
                Ok(created) => return Ok(created),
                Err(kube::Error::Api(status)) if status.code == 404 => sleep(Duration::from_millis(20)).await,
                Err(error) => bail!("{}: {error}", types.kind),
            }
        }
    };
    timeout(SERVED_WITHIN, created).await.with_context(|| format!("{} was never served", types.kind))?
}

/// Encodes a frame of the stat stream with one entry; without a stat it attests that its sender is connected.
pub fn frame(namespace: &str, name: &str, stat: Option<Stat>) -> bytes::Bytes {
    let message = WireStatMessage { namespace: namespace.into(), name: name.into(), stat, ..Default::default() };
    common::wire::encode(&WireStatMessages { messages: vec![message] }).into()
}

/// Returns the Deployment `hello`, whose pods no node runs.
pub fn deployment(replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "hello"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "hello"}},
            "template": {
                "metadata": {"labels": {"app": "hello"}},
                "spec": {"containers": [{"name": "c", "image": "hello", "ports": [{"containerPort": 8080}]}]},
            },
        },
    })
}

/// Returns the ZeroScaler `hello` for it with the given `scale`; it creates its Service.
pub fn scaler(scale: Value) -> Value {
    json!({
        "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
        "metadata": {"name": "hello"},
        "spec": {"target": {"kind": "Deployment", "name": "hello"}, "services": [{"name": "hello", "create": true}], "scale": scale},
    })
}
