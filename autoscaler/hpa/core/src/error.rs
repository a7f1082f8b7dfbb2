//! Reasons why a metric yields no result. The texts are those of Kubernetes, which appear in conditions and events.

use thiserror::Error;

/// Metrics API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `metrics.k8s.io`.
    Resource,
    /// `custom.metrics.k8s.io`.
    Custom,
    /// `external.metrics.k8s.io`.
    External,
}

impl Api {
    /// Returns the name used in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Custom => "custom",
            Self::External => "external",
        }
    }
}

/// Error of a metrics API.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// The request failed.
    #[error("unable to fetch metrics from {} metrics API: {why}", api.as_str())]
    Failed {
        /// API that failed.
        api: Api,
        /// Error text.
        why: String,
    },
    /// The response is empty.
    #[error("no metrics returned from {} metrics API", .0.as_str())]
    Empty(Api),
}

/// Reason why replicas could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CalculationError {
    /// A resource metric is not available.
    #[error("unable to get metrics for resource {resource}: {why}")]
    NoResourceMetrics {
        /// Name of the resource.
        resource: String,
        /// Cause.
        why: FetchError,
    },
    /// A metric of pods is not available.
    #[error("unable to get metric {metric}: {why}")]
    NoPodsMetric {
        /// Name of the metric.
        metric: String,
        /// Cause.
        why: FetchError,
    },
    /// A metric of an object is not available. Upstream prints object and error in this order.
    #[error("unable to get metric {metric}: {object}/{why}")]
    NoObjectMetric {
        /// Name of the metric.
        metric: String,
        /// `KIND on NAMESPACE NAME`.
        object: String,
        /// Cause.
        why: FetchError,
    },
    /// An external metric is not available.
    #[error("unable to get external metric {metric}: {why}")]
    NoExternalMetric {
        /// `NAMESPACE/METRIC/SELECTOR`.
        metric: String,
        /// Cause.
        why: FetchError,
    },
    /// The pods could not be listed.
    #[error("unable to get pods while calculating replica count: {0}")]
    PodsUnknown(String),
    /// There are no pods.
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    /// There are no pods among which to count the ready ones.
    #[error("unable to calculate ready pods: no pods returned by selector while calculating replica count")]
    NoPodsToCount,
    /// No pod that counts has a value.
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NoUsableMetrics,
    /// No pod with a value has a request.
    #[error("no metrics returned matched known pods")]
    NoKnownPods,
    /// A container that counts has no request.
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    NoRequest {
        /// Name of the resource.
        resource: String,
        /// Name of the container.
        container: String,
        /// Name of the pod.
        pod: String,
    },
    /// Neither the pod nor one of its containers has a request.
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    NoPodRequest {
        /// Name of the resource.
        resource: String,
        /// Name of the pod.
        pod: String,
    },
    /// A pod has no such container.
    #[error("container {container} not found in Pod {pod}")]
    NoContainer {
        /// Name of the container.
        container: String,
        /// Name of the pod.
        pod: String,
    },
    /// The metric's selector is malformed.
    #[error("{0}")]
    Selector(String),
}
