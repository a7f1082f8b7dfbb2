//! Reasons for error responses of the activator.
//!
//! Errors are typed at their origin and turned into HTTP in one place, [`crate::layers::error_responder`]. Each names
//! the bound or the peer that caused it.

use activator_net::ProxyError;
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Reason why a request was refused, or failed before a response head arrived.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("no workload serves the name {name:?}")]
    NoRevision { name: String },
    #[error("this activator does not serve the workload of this port")]
    NotServed,
    /// The port is shared, and NetworkPolicies restrict who may connect to the workload.
    #[error(
        "NetworkPolicies restrict who may connect to this workload, so shared ports do not serve it: call its Service, or \
         route the ingress to it"
    )]
    Guarded,
    #[error("this activator has not received the list of workloads yet")]
    NotSynced,
    #[error("pending request queue full: this activator already holds {bound} requests for the workload, the maximum")]
    QueueFull { bound: u32 },
    /// The memory for clients is used up, and the requests that give way have not ended yet.
    #[error("pending request memory full: requests and connections may use {bound} bytes")]
    MemoryFull {
        /// Maximum number of bytes for all held requests.
        bound: u64,
    },
    /// The memory for clients is used up, and the revision has the largest part of it.
    #[error("pending request memory of this workload full: its requests use {own} bytes, its share of {bound} bytes")]
    ShareFull {
        /// Maximum number of bytes for all held requests.
        bound: u64,
        /// Bytes of the revision's requests.
        own: u64,
    },
    #[error(
        "the response head needs {needed} bytes of memory, but the workload uses {own} bytes, its share of {bound} bytes"
    )]
    AnswerFull {
        needed: u64,
        /// Maximum number of bytes for all held requests and large response heads.
        bound: u64,
        /// Bytes of the revision's requests and heads.
        own: u64,
    },
    #[error("{0}")]
    Timeout(#[from] TimedOut),
    /// A timeout was reached while the revision could not be woken.
    #[error("{bound}; the workload could not be woken: {why}")]
    Unwoken {
        bound: TimedOut,
        /// Error of the API server, or the missing condition.
        why: Arc<str>,
    },
    #[error("the workload cannot serve: {reason}")]
    Failing {
        /// Cause and remedy.
        reason: String,
    },
    #[error("the workload is paused, and has no pods")]
    Paused,
    /// No pod is ready and the request does not wake the workload. Clients never see this; they get the static response
    /// instead.
    #[error("the workload is asleep")]
    Asleep,
    /// The workload did not wake in time, and its fallback did not respond.
    #[error("the workload is not ready, and its fallback Service {service} did not respond: {cause}")]
    Fallback { service: String, cause: String },
    #[error("the workload was deleted")]
    Deleted,
    /// Another activator holds the workload. With `relayed`, the response goes to the activator that relays the
    /// request, not to a client.
    #[error("another activator holds the workload, and could not be reached")]
    Elsewhere { relayed: bool },
    #[error("the client has disconnected")]
    ClientGone,
    /// Error of the network or of HTTP.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

/// Timeout that a request reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TimedOut {
    #[error("no pod was ready within the workload's wake timeout of {0:?}")]
    Wait(Duration),
    /// The whole exchange took too long, including the wait.
    #[error("request took longer than the workload's timeout of {0:?}")]
    Total(Duration),
    #[error("request took longer than the workload's request timeout of {0:?}")]
    Request(Duration),
    #[error("no response began within the workload's response start timeout of {0:?}")]
    ResponseStart(Duration),
    #[error("no data was transferred for the workload's idle timeout of {0:?}")]
    Idle(Duration),
}

impl TimedOut {
    fn reason(self) -> &'static str {
        match self {
            TimedOut::Wait(_) | TimedOut::Total(_) => "timeout",
            TimedOut::Request(_) => "request-timeout",
            TimedOut::ResponseStart(_) => "response-start-timeout",
            TimedOut::Idle(_) => "idle-timeout",
        }
    }
}

impl Refusal {
    /// Adds the reason why the revision could not be woken to a timeout. Other refusals stay unchanged.
    pub(crate) fn unwoken(self, why: &Arc<str>) -> Self {
        match self {
            Refusal::Timeout(bound) => Refusal::Unwoken { bound, why: why.clone() },
            refusal => refusal,
        }
    }

    /// Returns the reason for `x-zeroscale-reason` and metrics.
    pub(crate) fn reason(&self) -> &'static str {
        self.outcome().0
    }

    /// Returns the status for the client, unless it uses gRPC.
    pub(crate) fn status(&self) -> StatusCode {
        self.outcome().1
    }

    /// Returns the gRPC code; `None` if a gRPC client gets the status instead.
    pub(crate) fn grpc_code(&self) -> Option<&'static str> {
        self.outcome().2
    }

    fn outcome(&self) -> (&'static str, StatusCode, Option<&'static str>) {
        const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
        match self {
            Refusal::NoRevision { .. } => ("no-revision", StatusCode::NOT_FOUND, Some("12")),
            Refusal::NotServed => ("not-served", UNAVAILABLE, Some("14")),
            Refusal::Guarded => ("guarded", StatusCode::FORBIDDEN, Some("7")),
            Refusal::NotSynced => ("not-synced", UNAVAILABLE, Some("14")),
            Refusal::QueueFull { .. } => ("max-held", UNAVAILABLE, Some("8")),
            Refusal::MemoryFull { .. } => ("memory", UNAVAILABLE, Some("8")),
            Refusal::ShareFull { .. } => ("memory-share", UNAVAILABLE, Some("8")),
            Refusal::AnswerFull { .. } => ("answer-memory", StatusCode::BAD_GATEWAY, Some("8")),
            Refusal::Timeout(bound) | Refusal::Unwoken { bound, .. } => {
                (bound.reason(), StatusCode::GATEWAY_TIMEOUT, Some("4"))
            }
            Refusal::Failing { .. } => ("failing", UNAVAILABLE, Some("14")),
            Refusal::Paused => ("paused", UNAVAILABLE, Some("14")),
            Refusal::Asleep => ("asleep", UNAVAILABLE, Some("14")),
            Refusal::Fallback { .. } => ("fallback", StatusCode::BAD_GATEWAY, Some("14")),
            Refusal::Deleted => ("deleted", UNAVAILABLE, Some("14")),
            Refusal::Elsewhere { relayed: true } => ("elsewhere", StatusCode::MISDIRECTED_REQUEST, Some("14")),
            Refusal::Elsewhere { relayed: false } => ("elsewhere", UNAVAILABLE, Some("14")),
            Refusal::ClientGone => ("client-gone", StatusCode::BAD_REQUEST, None),
            Refusal::Proxy(ProxyError::Pod { .. }) => ("pod", StatusCode::BAD_GATEWAY, Some("14")),
            Refusal::Proxy(ProxyError::Malformed(_)) => ("malformed", StatusCode::BAD_REQUEST, None),
            Refusal::Proxy(ProxyError::Unsupported { status, .. }) => ("unsupported", *status, None),
            Refusal::Proxy(ProxyError::NoRoom { .. }) => ("max-connections", UNAVAILABLE, Some("8")),
        }
    }

    /// Returns the text for the client. It is public, so our own texts name no pod, address or namespace; the log has
    /// those. Errors of the API server about a wake are passed on literally and may contain them. So may the cause of
    /// failing pods, which helps a caller to inform the operator.
    pub(crate) fn text(&self) -> String {
        match self {
            Refusal::Proxy(ProxyError::Pod { cause, .. }) => format!("a pod of the workload failed: {cause}\n"),
            refusal => format!("{refusal}\n"),
        }
    }

    /// Reports whether the client's HTTP/1 connection must not be reused, because its next bytes may be misinterpreted.
    pub(crate) fn forbids_reuse(&self) -> bool {
        matches!(self, Refusal::Proxy(ProxyError::Malformed(_) | ProxyError::Unsupported { .. }))
    }
}
