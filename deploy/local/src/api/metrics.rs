//! `metrics.k8s.io/v1beta1`: current usage of pods, for `kubectl top pods` and autoscalers.
//!
//! The group exists once the server has a [`UsageTable`]; without one it is missing, as on a cluster without a metrics
//! server. Nothing is stored: the metrics of a pod are computed from its object and the latest usage, so selectors
//! refer to the pod's labels. A pod with an unmeasured container has no metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::golang::GoDuration;
use http::Response;
use serde_json::{Value, json};

use super::call::Call;
use super::columns::Column;
use super::core::Api;
use super::fields::items;
use super::media::Body;
use super::meta;
use super::resource::{Model, Resource, Rules};
use super::selector::Selector;
use super::status::{ApiError, Result};
use super::store::Object;
use crate::usage::{ContainerUsage, Usage, UsageTable};

const GROUP: &str = "metrics.k8s.io";

/// Returns the resource of pod metrics.
fn resource() -> Resource {
    Resource {
        group: GROUP.into(),
        version: "v1beta1".into(),
        kind: "PodMetrics".into(),
        list_kind: "PodMetricsList".into(),
        plural: "pods".into(),
        namespaced: true,
        table: format!("{GROUP}/pods").into(),
        model: Model::Measured,
        rules: Rules { columns: Column::name().into_iter().collect(), ..Rules::default() },
        ..Resource::default()
    }
}

fn amounts(usage: &Usage) -> Value {
    json!({"cpu": format!("{}n", usage.cpu_nanos), "memory": format!("{}Ki", usage.memory / 1024)})
}

/// Builds the metrics of a pod from its object and the usage of its containers.
fn object(pod: &Value, usage: &Usage, containers: Vec<Value>) -> Value {
    let mut metadata = json!({"name": pod["metadata"]["name"], "creationTimestamp": meta::now()});
    for field in ["namespace", "labels"] {
        if let Some(value) = pod["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    // A rate computed from ticks is not more precise than milliseconds.
    let window = Duration::from_millis(u64::try_from(usage.window.as_millis()).unwrap_or(u64::MAX));
    json!({
        "metadata": metadata, "timestamp": meta::time(usage.at),
        "window": GoDuration::from(window).to_string(), "containers": containers,
    })
}

fn of_pods(pods: &[Arc<Object>], usages: &[ContainerUsage]) -> Vec<Arc<Object>> {
    let mut by_pod: HashMap<&str, Vec<_>> = HashMap::new();
    for container in usages {
        by_pod.entry(container.pod.as_str()).or_default().push(container);
    }
    let one = |pod: &Arc<Object>| {
        let key = format!("{}/{}", pod.text("/metadata/namespace"), pod.text("/metadata/name"));
        let measured = by_pod.get(key.as_str())?;
        let wanted = items(&pod.value, "/spec/containers").len();
        let first = measured.first().filter(|_| measured.len() == wanted)?;
        let containers: Vec<Value> =
            measured.iter().map(|c| json!({"name": c.container, "usage": amounts(&c.usage)})).collect();
        Some(Object::new(object(&pod.value, &first.usage, containers), 0))
    };
    pods.iter().filter_map(one).collect()
}

impl Api {
    /// Serves the metrics API from `table` from now on.
    pub(crate) fn serve_metrics(&self, table: UsageTable) {
        *self.usage.write() = Some(table);
        self.add_resources([resource()]);
    }

    async fn measured(&self, namespace: &str, selector: &Selector) -> Result<Vec<Arc<Object>>> {
        let table = self.usage.read().clone().unwrap_or_default();
        let usages = table.latest().await;
        let source = self.registry.load().get("", "v1", "pods").ok_or_else(ApiError::unknown_resource)?;
        let (mut objects, _) = self.store.list(&source.table, &source.prefix(namespace));
        objects.retain(|object| selector.matches(&object.value));
        Ok(of_pods(&objects, &usages))
    }
}

impl Call {
    /// Handles a read of a resource that is measured and not stored.
    pub(super) async fn metrics(&self, selector: &Selector) -> Result<Response<Body>> {
        let (api, info) = (&self.api, &self.info);
        let objects = api.measured(&info.namespace, selector).await?;
        match (&info.name, objects.first()) {
            (None, _) => Ok(self.all(&objects, None)),
            (Some(_), Some(object)) => Ok(self.one(200, object)),
            (Some(name), None) => Err(ApiError::not_found(&info.resource, name)),
        }
    }
}
