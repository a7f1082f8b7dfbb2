//! Handling of requests while their workload wakes.

use super::DurationText;
use super::answers::{Answers, Page, Placeholder, StaticResponse};
use super::fallback::{Fallback, FallbackStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

/// Limits of the wait for a pod, responses during that time, and readiness of pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Wake {
    /// Longest wait of a request or connection for a pod; the response is then 504. An exchange with a pod may take
    /// longer; see `timeouts`.
    pub timeout: DurationText,
    /// Maximum number of requests or connections that one activator holds for this workload. Further ones get 503 with
    /// Retry-After.
    pub max_held: i32,
    /// Readiness probe that an activator sends to a pod: auto, tcp (the pod accepts a connection), http:/path (the
    /// response to a GET has a status from 200 to 399), or kubernetes (Kubernetes' readiness only). auto requires the
    /// readiness probes of all containers to pass; if the container that takes requests has none, a TCP connection
    /// replaces it. With exec, HTTPS or startup probes or readiness gates, auto waits for Kubernetes' readiness. A pod
    /// that Kubernetes reports as ready but that has failed auto's probes for a second counts as ready, because it may
    /// come from a former template with another probe.
    pub probe: String,
    /// Page that browsers get at once while the workload starts; it replaces itself by the workload's response.
    /// Default: browsers wait like other clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// Response that is sent at once, with a status of your choice, instead of holding a request while the workload
    /// starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<Placeholder>,
    /// Responses that do not wake the workload, such as health checks or robots.txt.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<StaticResponse>,
    /// Another Service, which responds if the workload does not wake in time or cannot wake. Default: a request waits
    /// until its timeout. Not for tcp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
}

impl Default for Wake {
    fn default() -> Self {
        Self {
            timeout: DurationText::new("300s"),
            max_held: 10_000,
            probe: "auto".to_owned(),
            page: None,
            placeholder: None,
            fixed: Vec::new(),
            fallback: None,
        }
    }
}

impl Wake {
    /// Returns the longest wait for a pod.
    pub fn timeout(&self) -> Duration {
        self.timeout.get().filter(|timeout| !timeout.is_zero()).unwrap_or(TIMEOUT_DEFAULT)
    }

    /// Returns the maximum number of requests that one activator holds; at least 1.
    pub fn max_held(&self) -> u32 {
        u32::try_from(self.max_held.max(1)).unwrap_or(1)
    }

    /// Returns the responses that need no pod, including the resolved `fallback`, or `None` if there are none.
    pub fn answers(&self, fallback: Option<FallbackStatus>) -> Option<Answers> {
        let (page, placeholder) = (self.page.clone(), self.placeholder.clone());
        let answers = Answers { page, placeholder, fixed: self.fixed.clone(), fallback };
        Some(answers).filter(|answers| *answers != Answers::default())
    }

    /// Returns the choice of the readiness probe.
    pub fn probe(&self) -> ProbeChoice {
        match self.probe.as_str() {
            "tcp" => ProbeChoice::Tcp,
            "kubernetes" => ProbeChoice::Kubernetes,
            text => text.strip_prefix("http:").map_or(ProbeChoice::Auto, |path| ProbeChoice::Http(path.to_owned())),
        }
    }
}

/// Choice of the readiness probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProbeChoice {
    /// The containers' own readiness probes.
    Auto,
    /// The pod accepts a TCP connection.
    Tcp,
    /// The response to an HTTP GET of this path and query has a status from 200 to 399.
    Http(String),
    /// Kubernetes' own readiness.
    Kubernetes,
}
