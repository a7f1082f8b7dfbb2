//! Chain of layers that every request passes, outermost first:
//!
//! | layer | task | may respond |
//! |---|---|---|
//! | [`probe`] | probes of the activator itself, by kubelets, ingresses and autoscalers | yes |
//! | [`lookup`] | finds the revision | 404, 503 |
//! | [`relay`] | relays a request to the activator that holds the workload | 421, 502, 503 |
//! | [`request_log`] | writes a line at the end of the request, if enabled | |
//! | [`answers`] | responses without a pod: page, placeholders, static responses | yes |
//! | [`report`] | counts the request for the autoscaler, until the end of its body | |
//! | [`timeouts`] | the revision's three timeouts; in knative mode they include the held time | 504 |
//! | [`hold`] | waits for a pod, within bounds; sends; retries unsent requests elsewhere; sends those that wait too long to another Service ([`fallback`]) | 503, 502 |
//!
//! Connections that are not HTTP bypass the layers: [`connect`] does the same for them.
//!
//! Each layer is a `tower` service that is always ready: waiting happens inside its future, so that the timeouts cover
//! it. Errors are [`Refusal`](crate::refusal::Refusal)s; [`error_responder`] turns them into HTTP, in one place.

use crate::answers::page::Page;
use crate::discovery::front_end::FrontEnd;
use crate::holders::Holders;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::registry::readiness::Readiness;
use crate::registry::stats::StatSink;
use activator_net::{Memory, Pools};
use common_runtime::admission::Gate;
use common_runtime::telemetry::traces::Tracing;
use std::sync::Arc;
use tokio::sync::watch;

pub(crate) mod answers;
pub(crate) mod call;
mod charge;
mod compact;
pub(crate) mod connect;
pub(crate) mod error_responder;
pub(crate) mod fallback;
pub(crate) mod hold;
pub(crate) mod lookup;
pub(crate) mod probe;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod request_log;
mod send;
pub(crate) mod timeouts;
pub(crate) mod trace;

/// Parts of the activator that the layers use. The alignment keeps the reference count apart from the data that every
/// request reads.
#[repr(align(128))]
pub(crate) struct LayerParts {
    pub(crate) registry: Arc<Registry>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) front_end: Arc<dyn FrontEnd>,
    pub(crate) pools: Arc<Pools>,
    /// Memory of the process for held requests, among others.
    pub(crate) memory: Memory,
    pub(crate) sink: Arc<StatSink>,
    pub(crate) metrics: Metrics,
    pub(crate) tracing: Option<Tracing>,
    /// Limits that are shared with other activators, which may relay requests; `None` if none are shared.
    pub(crate) holders: Option<Arc<Holders>>,
    /// Check of a plane's token; `None` if no tokens are required.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) page: watch::Receiver<Arc<Page>>,
}
