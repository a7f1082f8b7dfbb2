//! What happens to a request while its workload wakes.

use super::DurationText;
use super::answers::{Answers, Page, Placeholder, StaticAnswer};
use super::fallback::{Fallback, FallbackStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const TIMEOUT: &str = "300s";
const MAX_HELD: i32 = 10_000;
const PROBE_AUTO: &str = "auto";
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

/// Bounds of the wait for a pod, answers during that time, and the proof that a pod is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Wake {
    /// Longest wait of a request, or a connection, for a pod; then it is answered with 504. An exchange with a pod may take
    /// longer: `timeouts` bounds that.
    pub timeout: DurationText,
    /// Most requests, or connections, that one activator holds for this workload. What comes beyond is answered with 503
    /// and Retry-After.
    pub max_held: i32,
    /// Proof for an activator that a pod is ready: auto (the readiness probes of all its containers pass, and a TCP
    /// connect stands for that of the container that takes requests if it has none; with exec, HTTPS or startup probes or
    /// readiness gates Kubernetes' word is awaited; of a pod that Kubernetes calls ready its word counts, too, once the pod
    /// has answered for a second that it is not: it may be of a former template, with another probe), tcp (a connection is
    /// accepted), http:/path (GET is answered with a status from 200 to 399), or kubernetes (Kubernetes' word alone).
    pub probe: String,
    /// What browsers are shown at once while the workload wakes: a page that replaces itself by the workload's answer.
    /// Without it they wait as everybody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// What is answered at once, with a status of your choice, instead of holding a request while the workload wakes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<Placeholder>,
    /// What is answered without waking: health checks, robots.txt.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<StaticAnswer>,
    /// Another Service, which answers when the workload does not wake in time, or cannot. Without it a request waits until
    /// its timeout. Not for tcp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
}

impl Default for Wake {
    fn default() -> Self {
        Self {
            timeout: DurationText::new(TIMEOUT),
            max_held: MAX_HELD,
            probe: PROBE_AUTO.to_owned(),
            page: None,
            placeholder: None,
            fixed: Vec::new(),
            fallback: None,
        }
    }
}

impl Wake {
    /// Longest wait for a pod.
    pub fn timeout(&self) -> Duration {
        self.timeout.get().filter(|timeout| !timeout.is_zero()).unwrap_or(TIMEOUT_DEFAULT)
    }

    /// Most requests that one activator holds; at least 1.
    pub fn max_held(&self) -> u32 {
        u32::try_from(self.max_held.max(1)).unwrap_or(1)
    }

    /// Returns what is answered without a pod, `fallback` being the one that the owner has found; none: nothing is.
    pub fn answers(&self, fallback: Option<FallbackStatus>) -> Option<Answers> {
        let (page, placeholder) = (self.page.clone(), self.placeholder.clone());
        let answers = Answers { page, placeholder, fixed: self.fixed.clone(), fallback };
        Some(answers).filter(|answers| *answers != Answers::default())
    }

    /// How a pod is proven ready.
    pub fn probe(&self) -> ProbeChoice {
        match self.probe.as_str() {
            "tcp" => ProbeChoice::Tcp,
            "kubernetes" => ProbeChoice::Kubernetes,
            text => text.strip_prefix("http:").map_or(ProbeChoice::Auto, |path| ProbeChoice::Http(path.to_owned())),
        }
    }
}

/// How a pod is proven ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProbeChoice {
    /// By its container's own readiness probe.
    Auto,
    /// A TCP connection is accepted.
    Tcp,
    /// An HTTP GET of this path and query is answered with a status from 200 to 399.
    Http(String),
    /// Kubernetes' own readiness is believed.
    Kubernetes,
}
