//! Why a metric has no answer. The texts are Kubernetes': users meet them in conditions and events.

use thiserror::Error;

/// The three metrics APIs.
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
    /// As texts call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Custom => "custom",
            Self::External => "external",
        }
    }
}

/// Why a metrics API gave nothing to work with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// The request failed.
    #[error("unable to fetch metrics from {} metrics API: {why}", api.as_str())]
    Failed {
        /// Which was asked.
        api: Api,
        /// What it said.
        why: String,
    },
    /// There is nothing in the answer.
    #[error("no metrics returned from {} metrics API", .0.as_str())]
    Empty(Api),
}

/// Why replicas could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CalculationError {
    /// Of a resource metric.
    #[error("unable to get metrics for resource {resource}: {why}")]
    NoResourceMetrics {
        /// The resource.
        resource: String,
        /// Why.
        why: FetchError,
    },
    /// Of a metric of pods.
    #[error("unable to get metric {metric}: {why}")]
    NoPodsMetric {
        /// The metric.
        metric: String,
        /// Why.
        why: FetchError,
    },
    /// Of a metric of an object. Upstream prints object and error in this order.
    #[error("unable to get metric {metric}: {object}/{why}")]
    NoObjectMetric {
        /// The metric.
        metric: String,
        /// `KIND on NAMESPACE NAME`.
        object: String,
        /// Why.
        why: FetchError,
    },
    /// Of an external metric.
    #[error("unable to get external metric {metric}: {why}")]
    NoExternalMetric {
        /// `NAMESPACE/METRIC/SELECTOR`.
        metric: String,
        /// Why.
        why: FetchError,
    },
    /// The pods could not be listed.
    #[error("unable to get pods while calculating replica count: {0}")]
    PodsUnknown(String),
    /// There are no pods.
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    /// There are no pods, where ready ones are counted.
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
        /// The resource.
        resource: String,
        /// The container.
        container: String,
        /// Its pod.
        pod: String,
    },
    /// Neither the pod nor one of its containers has a request.
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    NoPodRequest {
        /// The resource.
        resource: String,
        /// The pod.
        pod: String,
    },
    /// A pod has no such container.
    #[error("container {container} not found in Pod {pod}")]
    NoContainer {
        /// The container.
        container: String,
        /// The pod.
        pod: String,
    },
    /// The metric's selector is malformed.
    #[error("{0}")]
    Selector(String),
}
