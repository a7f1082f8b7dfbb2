//! `metrics.k8s.io/v1beta1`: current usage of pods, for `kubectl top pods` and autoscalers.
//!
//! The group exists once the server has a [`UsageTable`]; without one it is missing, as on a cluster without a metrics
//! server. Nothing is stored: the metrics of a pod are computed from its object and the latest usage, so selectors
//! refer to the pod's labels. A pod with an unmeasured container has no metrics.

use std::sync::Arc;
use std::time::Duration;

use common::golang::GoDuration;
use http::Response;
use serde_json::json;

use super::call::Call;
use super::columns::Column;
use super::core::Api;
use super::fields::{items, text};
use super::media::Body;
use super::meta;
use super::query::Selector;
use super::resource::{Model, Resource, Rules};
use super::status::{ApiError, Result};
use super::store::{Object, PODS};
use crate::usage::{ContainerUsage, Usage, UsageTable};

const GROUP: &str = "metrics.k8s.io";

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

/// Returns the metrics of a pod, unless one of its containers was not measured.
fn measured(pod: &Object, usages: &[ContainerUsage]) -> Option<Arc<Object>> {
    let source = &pod.value["metadata"];
    let key = format!("{}/{}", text(source, "/namespace"), text(source, "/name"));
    let usages: Vec<_> = usages.iter().filter(|container| container.pod == key).collect();
    let Usage { at, window, .. } =
        usages.first().filter(|_| usages.len() == items(&pod.value, "/spec/containers").len())?.usage;
    let mut metadata =
        json!({"name": source["name"], "namespace": source["namespace"], "creationTimestamp": meta::now()});
    if let Some(labels) = source.get("labels") {
        metadata["labels"] = labels.clone();
    }
    // A rate computed from ticks is not more precise than milliseconds.
    let window = Duration::from_millis(u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
    let containers = usages.iter().map(|container| {
        let (cpu, memory) = (container.usage.cpu_nanos, container.usage.memory / 1024);
        json!({"name": container.container, "usage": {"cpu": format!("{cpu}n"), "memory": format!("{memory}Ki")}})
    });
    let value = json!({
        "metadata": metadata, "timestamp": meta::time(at), "window": GoDuration::from(window).to_string(),
        "containers": containers.collect::<Vec<_>>(),
    });
    Some(Object::new(value, 0))
}

impl Api {
    /// Serves the metrics API from `table` from now on.
    pub(crate) fn serve_metrics(&self, table: UsageTable) {
        *self.usage.write() = Some(table);
        self.add_resource(resource());
    }
}

impl Call {
    /// Handles a read of a resource that is measured and not stored.
    pub(super) async fn metrics(&self, selector: &Selector) -> Result<Response<Body>> {
        let (api, info) = (&self.api, &self.info);
        let table = api.usage.read().clone().unwrap_or_default();
        let usages = table.latest().await;
        let (mut pods, _) = api.store.list(PODS, &info.resource.prefix(&info.namespace));
        pods.retain(|pod| selector.matches(&pod.value));
        let objects: Vec<_> = pods.iter().filter_map(|pod| measured(pod, &usages)).collect();
        match (&info.name, objects.first()) {
            (None, _) => Ok(self.list_response(&objects, None)),
            (Some(_), Some(object)) => Ok(self.object_response(200, object)),
            (Some(name), None) => Err(ApiError::not_found(&info.resource, name)),
        }
    }
}
