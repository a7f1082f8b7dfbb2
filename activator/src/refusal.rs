//! Why a request got an answer of our own instead of a pod's.
//!
//! Errors are typed where they arise and turned into HTTP in one place, [`crate::layers::error_responder`]. Each
//! says which bound or which peer was to blame.

use activator_net::ProxyError;
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why a request was refused, or failed before a response's head arrived.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    /// The request names no revision that is known here.
    #[error("no revision answers to {name:?}")]
    NoRevision {
        /// The name or host asked for.
        name: String,
    },
    /// The port is a workload's own, which is not known here, or no more.
    #[error("the workload of this port is not served here")]
    NotServed,
    /// Nothing is known yet: the first list of objects has not arrived.
    #[error("this activator has not learnt the workloads yet")]
    NotSynced,
    /// The revision's queue is full.
    #[error("pending request queue full: {bound} requests are held for this workload already")]
    QueueFull {
        /// Most requests held for the revision.
        bound: u32,
    },
    /// The process may not spend more memory on clients, and those who give way have not gone yet.
    #[error("pending request memory full: requests and connections may use {bound} bytes")]
    MemoryFull {
        /// Most bytes for all held requests.
        bound: u64,
    },
    /// All of that is used, and the revision has most of it.
    #[error("pending request memory of this workload full: its requests hold {own} bytes, their share of {bound}")]
    ShareFull {
        /// Most bytes for all held requests.
        bound: u64,
        /// What the revision's hold.
        own: u64,
    },
    /// The revision's share of memory has no room for an answer's head.
    #[error(
        "the answer's head needs {needed} bytes of memory, and this workload holds {own} bytes, its share of {bound}"
    )]
    AnswerFull {
        /// What the head needs.
        needed: u64,
        /// Most bytes for all held requests and large heads of answers.
        bound: u64,
        /// What the revision's hold.
        own: u64,
    },
    /// A time bound was reached before the response began.
    #[error("{0}")]
    Timeout(#[from] TimedOut),
    /// The same, of a request that waited for a revision which cannot be woken.
    #[error("{bound}; the workload could not be woken: {why}")]
    Unwoken {
        /// The bound.
        bound: TimedOut,
        /// What the API server says to it, or what it lacks.
        why: Arc<str>,
    },
    /// The revision's pods do not serve.
    #[error("the workload cannot serve: {reason}")]
    Failing {
        /// Why, and what helps.
        reason: String,
    },
    /// An operator keeps the workload without pods.
    #[error("the workload is paused, and has no pods")]
    Paused,
    /// No pod is ready, and it wakes nobody. No client sees this: it gets its static answer instead.
    #[error("the workload is asleep")]
    Asleep,
    /// Its workload did not wake in time, and who was to answer instead did not.
    #[error("the workload is not awake, and its fallback {service} did not answer: {cause}")]
    Fallback {
        /// Name of its Service.
        service: String,
        /// Why not.
        cause: String,
    },
    /// The revision was deleted while the request was held.
    #[error("the workload was deleted")]
    Deleted,
    /// Another activator holds the workload. `relayed`: whoever relays the request is told, and no client.
    #[error("another activator holds the workload, and could not be reached")]
    Elsewhere {
        /// An activator sent it.
        relayed: bool,
    },
    /// Nobody waits for the answer any more.
    #[error("the client has gone")]
    ClientGone,
    /// The network or HTTP is to blame.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

/// A time bound that a request ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TimedOut {
    /// No pod was ready in time.
    #[error("no pod was ready within the workload's wake timeout of {0:?}")]
    Wait(Duration),
    /// The whole exchange took too long, holding included.
    #[error("request took longer than the workload's timeout of {0:?}")]
    Total(Duration),
    /// The exchange with a pod took too long.
    #[error("request took longer than the workload's request timeout of {0:?}")]
    Request(Duration),
    /// No response began.
    #[error("no response began within the workload's response start timeout of {0:?}")]
    ResponseStart(Duration),
    /// Nothing moved.
    #[error("nothing moved for the workload's idle timeout of {0:?}")]
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
    /// The same for a request of a revision that nobody can wake, for this reason: a bound of time was not all there
    /// was to it.
    pub(crate) fn unwoken(self, why: &Arc<str>) -> Self {
        match self {
            Refusal::Timeout(bound) => Refusal::Unwoken { bound, why: why.clone() },
            refusal => refusal,
        }
    }

    /// A word for `x-zeroscale-reason` and for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Refusal::NoRevision { .. } => "no-revision",
            Refusal::NotServed => "not-served",
            Refusal::NotSynced => "not-synced",
            Refusal::QueueFull { .. } => "max-held",
            Refusal::MemoryFull { .. } => "memory",
            Refusal::ShareFull { .. } => "memory-share",
            Refusal::AnswerFull { .. } => "answer-memory",
            Refusal::Timeout(bound) | Refusal::Unwoken { bound, .. } => bound.reason(),
            Refusal::Failing { .. } => "failing",
            Refusal::Paused => "paused",
            Refusal::Asleep => "asleep",
            Refusal::Fallback { .. } => "fallback",
            Refusal::Deleted => "deleted",
            Refusal::Elsewhere { .. } => "elsewhere",
            Refusal::ClientGone => "client-gone",
            Refusal::Proxy(ProxyError::Pod { .. }) => "pod",
            Refusal::Proxy(ProxyError::Malformed(_)) => "malformed",
            Refusal::Proxy(ProxyError::Unsupported { .. }) => "unsupported",
            Refusal::Proxy(ProxyError::NoRoom { .. }) => "max-connections",
        }
    }

    /// What a client reads. Anybody may read it, so what we say names no pod, no address and no namespace: those are in the
    /// log. What the API server says to a wake is told in its own words, which may; and so is why pods do not serve, by
    /// which whoever calls can tell whoever operates.
    pub(crate) fn text(&self) -> String {
        match self {
            Refusal::Proxy(ProxyError::Pod { cause, .. }) => format!("a pod of the workload: {cause}\n"),
            refusal => format!("{refusal}\n"),
        }
    }

    /// Whether the client's connection should not be used again: what it sends next may not be what it seems.
    pub(crate) fn is_distrust(&self) -> bool {
        matches!(self, Refusal::Proxy(ProxyError::Malformed(_) | ProxyError::Unsupported { .. }))
    }

    /// The status that the client sees, unless it speaks gRPC.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Refusal::NoRevision { .. } => StatusCode::NOT_FOUND,
            Refusal::Proxy(ProxyError::Malformed(_)) | Refusal::ClientGone => StatusCode::BAD_REQUEST,
            Refusal::Proxy(ProxyError::Unsupported { status, .. }) => *status,
            Refusal::Timeout(_) | Refusal::Unwoken { .. } => StatusCode::GATEWAY_TIMEOUT,
            Refusal::Proxy(ProxyError::Pod { .. }) | Refusal::AnswerFull { .. } | Refusal::Fallback { .. } => {
                StatusCode::BAD_GATEWAY
            }
            Refusal::Elsewhere { relayed: true } => StatusCode::MISDIRECTED_REQUEST,
            Refusal::NotServed
            | Refusal::Elsewhere { relayed: false }
            | Refusal::NotSynced
            | Refusal::QueueFull { .. }
            | Refusal::MemoryFull { .. }
            | Refusal::ShareFull { .. }
            | Refusal::Failing { .. }
            | Refusal::Paused
            | Refusal::Asleep
            | Refusal::Deleted
            | Refusal::Proxy(ProxyError::NoRoom { .. }) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
