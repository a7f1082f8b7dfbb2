//! A bare API server for tests that simulate all other components, and the objects with which such tests begin.

use anyhow::{Context, bail};
use common::backend::Backend;
use common::names;
use common::stat::{Stat, WireStatMessage, WireStatMessages};
use common_api::ZeroScaler;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config, ResourceExt};
use local::api::{ApiOptions, ApiServer};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The system namespace.
pub const SYSTEM: &str = "knative-serving";

/// Longest wait for a custom resource to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Starts a server whose Services get addresses from `range`, with the system namespace. Returns it with an
/// administrator's client.
pub async fn start(range: &str) -> anyhow::Result<(ApiServer, Client)> {
    let server = ApiServer::start(ApiOptions::new(range.parse()?)).await?;
    let client = client(&server).await?;
    create_namespace(&client, SYSTEM).await?;
    Ok((server, client))
}

/// Returns an administrator's client of `server`.
pub async fn client(server: &ApiServer) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig())?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

/// Creates a namespace.
pub async fn create_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    create(client, None, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await.map(drop)
}

/// Creates the definitions of Zeroscale's custom resources.
pub async fn define_resources(client: &Client) -> anyhow::Result<()> {
    define(client, &common_api::crds::crds()).await
}

/// Creates the definitions that a Knative installation provides.
pub async fn define_shared_resources(client: &Client) -> anyhow::Result<()> {
    define(client, &common_api::crds::shared()).await
}

/// Creates the parts of a Knative installation that activators read: the definition of Revisions, and their ConfigMaps.
pub async fn install_knative_for_activators(client: &Client) -> anyhow::Result<()> {
    create(client, None, definition("serving.knative.dev", "v1", "Revision", json!({"status": {}}))).await?;
    for name in ["config-network", "config-observability", "config-logging"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {}});
        create(client, Some(SYSTEM), map).await?;
    }
    Ok(())
}

/// Returns the definition of a namespaced kind with any fields.
pub fn definition(group: &str, version: &str, kind: &str, subresources: Value) -> Value {
    let singular = kind.to_lowercase();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {
                "kind": kind, "plural": format!("{singular}s"), "singular": singular, "listKind": format!("{kind}List"),
            },
            "versions": [{"name": version, "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": schema}}]},
    })
}

/// Creates, in the namespace `ns`, a Revision that takes one request at a time, with a timeout in seconds, and its
/// private Service, as Knative's controllers write them.
pub async fn create_revision(client: &Client, name: &str, timeout: u32, target_port: u16) -> anyhow::Result<()> {
    let revision = json!({
        "apiVersion": "serving.knative.dev/v1", "kind": "Revision",
        "metadata": {"name": name, "labels": knative_labels(name, "")},
        "spec": {"containerConcurrency": 1, "timeoutSeconds": timeout,
            "containers": [{"image": name, "ports": [{"containerPort": 8080}]}]},
    });
    create(client, Some("ns"), revision).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": names::private_service(name), "labels": knative_labels(name, names::SERVICE_TYPE_PRIVATE)},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": target_port}], "selector": {"app": name}},
    });
    create(client, Some("ns"), service).await.map(drop)
}

/// Returns the labels of a Revision's objects; `service_type` is that of a Service or its Endpoints.
pub fn knative_labels(revision: &str, service_type: &str) -> Value {
    json!({
        names::SERVICE_TYPE: service_type, "networking.internal.knative.dev/serverlessservice": revision,
        names::REVISION: revision, names::REVISION_UID: "1234", names::CONFIGURATION: "app", names::SERVICE: "app",
    })
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
pub async fn create(client: &Client, namespace: Option<&str>, object: Value) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
    let api = api_of(client, namespace, &object)?;
    let created = async {
        // A custom resource is served a moment after its definition was created.
        loop {
            match api.create(&PostParams::default(), &object).await {
                Ok(created) => return Ok(created),
                Err(kube::Error::Api(status)) if status.code == 404 => sleep(Duration::from_millis(20)).await,
                Err(error) => bail!("{kind}: {error}"),
            }
        }
    };
    timeout(SERVED_WITHIN, created).await.with_context(|| format!("{kind} was never served"))?
}

/// Returns the API of an object's kind; `namespace` is `None` for a cluster-scoped object.
pub fn api_of(client: &Client, namespace: Option<&str>, object: &DynamicObject) -> anyhow::Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("apiVersion and kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// Creates or replaces an object of any kind in a namespace.
pub async fn apply(client: &Client, namespace: &str, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let params = PatchParams::apply("test").force();
    api_of(client, Some(namespace), &object)?.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?;
    Ok(())
}

/// Creates, in the namespace `ns`, a ZeroScaler with the status that an autoscaler writes for this backend.
pub async fn create_backend(client: &Client, name: &str, backend: Backend, wake: Value) -> anyhow::Result<()> {
    create(client, Some("ns"), zeroscaler(name, json!({"target": {"name": name}, "wake": wake}))).await?;
    let ports = json!([{"name": backend.protocol.port_name(), "port": 80, "protocol": backend.protocol}]);
    let status = json!({"status": {"service": name, "backend": backend, "ports": ports}});
    let scalers: Api<ZeroScaler> = Api::namespaced(client.clone(), "ns");
    scalers.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// Sets the pods of such a ZeroScaler, which share a port of this name.
pub async fn set_pods(client: &Client, name: &str, port_name: &str, pods: &[SocketAddr]) -> anyhow::Result<()> {
    let scaler = Api::<ZeroScaler>::namespaced(client.clone(), "ns").get(name).await?;
    apply(client, "ns", pod_slice(name, scaler.metadata.uid, port_name, pods)).await
}

/// Returns the slice of the pods of a ZeroScaler with this uid, which share a port of this name.
pub fn pod_slice(name: &str, uid: Option<String>, port_name: &str, pods: &[SocketAddr]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": names::private_service(name),
            "labels": {names::SIDE: names::SERVICE_TYPE_PRIVATE, names::WORKLOAD: name},
            "ownerReferences": [{
                "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "name": name,
                "uid": uid, "controller": true,
            }],
        },
        "ports": [{"name": port_name, "port": pods.first().map_or(80, SocketAddr::port)}],
        "endpoints": pods.iter().map(|pod| json!({"addresses": [pod.ip()]})).collect::<Vec<_>>(),
    })
}

/// Encodes a frame of the stat stream with one entry; without a stat it attests that its sender is connected.
pub fn frame(namespace: &str, name: &str, stat: Option<Stat>) -> bytes::Bytes {
    let message = WireStatMessage { namespace: namespace.into(), name: name.into(), stat, ..Default::default() };
    common::wire::encode(&WireStatMessages { messages: vec![message] }).into()
}

/// Returns a ZeroScaler with this spec.
pub fn zeroscaler(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler", "metadata": {"name": name}, "spec": spec})
}
