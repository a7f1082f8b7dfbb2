//! The three metrics APIs, over REST.
//!
//! | Request | `GET` |
//! |---|---|
//! | usage of pods | `/apis/metrics.k8s.io/v1beta1/namespaces/NS/pods` |
//! | metric of pods | `/apis/custom.metrics.k8s.io/VERSION/namespaces/NS/pods/*/METRIC` |
//! | metric of an object | `/apis/custom.metrics.k8s.io/VERSION/namespaces/NS/RESOURCE.GROUP/NAME/METRIC` |
//! | metric of the namespace | `/apis/custom.metrics.k8s.io/VERSION/namespaces/NS/metrics/METRIC` |
//! | external metric | `/apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC` |
//!
//! Empty selectors are omitted. VERSION is the preferred version of the group if it is supported here (v1beta2,
//! v1beta1), or else the first supported one that the group lists. It is cached for one sync period.

use super::mapping::Mapper;
use super::rest::{Rest, qualified, segment};
use super::shapes::{ExternalValue, List, MetricValue, PodMetrics};
use hpa_core::request::{Reading, Request};
use hpa_core::spec::group;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Client;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const RESOURCE: &str = "metrics.k8s.io";
const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";
/// Supported versions of the custom metrics API.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Client of a cluster's metrics APIs.
pub struct RestMetrics {
    rest: Rest,
    mapper: Arc<Mapper>,
    /// Time for which the version of the custom metrics API is cached.
    cached_for: Duration,
    /// Version of the custom metrics API, and the time until which it is cached.
    custom_version: Mutex<Option<(&'static str, Instant)>>,
}

impl RestMetrics {
    /// Builds a client. `sync_period` is the time for which the version of the custom metrics API is cached.
    pub fn new(client: Client, mapper: Arc<Mapper>, sync_period: Duration) -> Self {
        Self { rest: Rest(client), mapper, cached_for: sync_period, custom_version: Mutex::default() }
    }

    async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        resource: &str,
    ) -> Result<Vec<T>, String> {
        Ok(self.rest.get::<List<T>>(path, parameters, resource).await?.items)
    }

    /// Returns the values of a custom metric of the object that `resource` and `name` identify.
    async fn custom(
        &self,
        namespace: &str,
        (resource, name): (&str, &str),
        metric: Option<&str>,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<MetricValue>, String> {
        let version = self.custom_version().await?;
        let object = format!("{}/{}/{}", segment(namespace), segment(resource), segment(name));
        let mut path = format!("/apis/{CUSTOM}/{version}/namespaces/{object}");
        if let Some(metric) = metric {
            path = format!("{path}/{}", segment(metric));
        }
        self.list(&path, parameters, &format!("{resource}.{CUSTOM} {name}")).await
    }

    async fn custom_version(&self) -> Result<&'static str, String> {
        let cached = self.custom_version.lock().filter(|(_, until)| Instant::now() < *until);
        if let Some((version, _)) = cached {
            return Ok(version);
        }
        let unregistered = || format!("no custom metrics API ({CUSTOM}) registered");
        let group = self.rest.get::<APIGroup>(&format!("/apis/{CUSTOM}"), &[], "").await;
        let group = group.map_err(|failure| if failure.is_absent() { unregistered() } else { failure.message })?;
        let listed = group.preferred_version.iter().chain(&group.versions);
        let supported = |version: &str| CUSTOM_VERSIONS.into_iter().find(|supported| *supported == version);
        let version = listed.filter_map(|v| supported(&v.version)).next().ok_or_else(unregistered)?;
        *self.custom_version.lock() = Some((version, Instant::now() + self.cached_for));
        Ok(version)
    }

    /// Sends one request about `namespace`. A failure becomes a reading with upstream's text.
    pub(super) async fn read(&self, namespace: &str, request: &Request) -> Reading {
        self.try_read(namespace, request).await.unwrap_or_else(Reading::Failed)
    }

    async fn try_read(&self, namespace: &str, request: &Request) -> Result<Reading, String> {
        Ok(match request {
            Request::Usage { selector } => {
                let path = format!("/apis/{RESOURCE}/v1beta1/namespaces/{}/pods", segment(namespace));
                let parameters = [("labelSelector", selector.as_str())];
                let items = self.list::<PodMetrics>(&path, &parameters, &format!("pods.{RESOURCE}")).await?;
                Reading::Usage(items.into_iter().map(Into::into).collect())
            }
            Request::Pods { metric, selector, metric_selector } => {
                let parameters = [("labelSelector", selector.as_str()), ("metricLabelSelector", metric_selector)];
                let items = self.custom(namespace, ("pods", "*"), Some(metric), &parameters).await?;
                Reading::Pods(items.into_iter().map(Into::into).collect())
            }
            Request::Object { object, metric, metric_selector } => {
                let parameters = [("metricLabelSelector", metric_selector.as_str())];
                let values = match object {
                    None => self.custom(namespace, ("metrics", metric), None, &parameters).await?,
                    Some(object) => {
                        // An invalid version counts as the core group, as upstream.
                        let group = group(object).unwrap_or_default();
                        let mappings = self.mapper.mappings(group, &object.kind).await.map_err(|error| {
                            format!("unable to map kind {} to resource: {error}", qualified(&object.kind, group))
                        })?;
                        let resource = mappings.first().map(super::mapping::Mapping::qualified).unwrap_or_default();
                        self.custom(namespace, (&resource, &object.name), Some(metric), &parameters).await?
                    }
                };
                Reading::Object(values.into_iter().map(|value| value.value.0).collect())
            }
            Request::External { metric, metric_selector } => {
                let path = format!("/apis/{EXTERNAL}/v1beta1/namespaces/{}/{}", segment(namespace), segment(metric));
                let parameters = [("labelSelector", metric_selector.as_str())];
                let values = self.list::<ExternalValue>(&path, &parameters, &format!("{metric}.{EXTERNAL}")).await?;
                Reading::External(values.into_iter().map(|value| value.value.0).collect())
            }
        })
    }
}
