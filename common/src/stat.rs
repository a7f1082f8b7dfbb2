//! Messages of the stat stream (proto3, package `metrics`), as Knative Serving defines them in `stat.proto`.
//!
//! One binary WebSocket frame holds one [`WireStatMessages`]. The response to a scrape is one bare [`Stat`].

use prost::Message;

/// One measurement from one source.
#[derive(Clone, PartialEq, Message)]
pub struct Stat {
    /// Name of the measured pod.
    #[prost(string, tag = "1")]
    pub pod_name: String,
    /// Time-weighted mean of requests in flight, including queued requests.
    #[prost(double, tag = "2")]
    pub average_concurrent_requests: f64,
    /// Part of `average_concurrent_requests` that passed through an activator.
    #[prost(double, tag = "3")]
    pub average_proxied_concurrent_requests: f64,
    /// Arrived requests per second.
    #[prost(double, tag = "4")]
    pub request_count: f64,
    /// Part of `request_count` that passed through an activator.
    #[prost(double, tag = "5")]
    pub proxied_request_count: f64,
    /// Age of the measuring process in seconds.
    #[prost(double, tag = "6")]
    pub process_uptime: f64,
    /// Unix seconds; if 0, the first receiver sets the time of its own clock.
    #[prost(int64, tag = "7")]
    pub timestamp: i64,
}

/// A stat and its revision. A message without a stat is an attestation: `name` is then the activator's pod name and
/// `namespace` the system namespace.
#[derive(Clone, PartialEq, Message)]
pub struct WireStatMessage {
    /// The revision's namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// The revision's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The measurement; absent in an attestation.
    #[prost(message, optional, tag = "3")]
    pub stat: Option<Stat>,
    /// Further observations of the revision. A Zeroscale extension: activators in standalone send it, and other
    /// receivers skip the unknown field.
    #[prost(message, optional, boxed, tag = "100")]
    pub observations: Option<Box<Observations>>,
    /// Span of the request that triggered a wake, as a W3C `traceparent`; empty if that request is not traced. A
    /// Zeroscale extension: activators in standalone send it, and other receivers skip the unknown field.
    #[prost(string, tag = "101")]
    pub trace: String,
}

/// Observations that an activator made of a revision since its last report. They are for display only: no scaling
/// decision depends on them.
#[derive(Clone, PartialEq, Message)]
pub struct Observations {
    /// Number of requests that were held at any time since the last report.
    #[prost(uint32, tag = "1")]
    pub held: u32,
    /// Wakes that ended, successfully or not; at most [`WAKES_MAX`].
    #[prost(message, repeated, tag = "2")]
    pub wakes: Vec<ObservedWake>,
    /// Service ports of unknown protocol on which a connection ended without sending a byte while the workload was at
    /// zero.
    #[prost(uint32, repeated, tag = "10")]
    pub silent: Vec<u32>,
    /// Service ports on which pods were observed to speak first.
    #[prost(uint32, repeated, tag = "11")]
    pub pod_speaks_first: Vec<u32>,
}

/// One scale from zero, as observed by the activator that responded first. Its phases add up to its duration.
#[derive(Clone, PartialEq, Message)]
pub struct ObservedWake {
    /// Milliseconds between the end of the wake and the report.
    #[prost(uint32, tag = "1")]
    pub ended_ms_ago: u32,
    /// Microseconds from the request's head until the autoscaler was notified.
    #[prost(uint64, tag = "2")]
    pub signal_us: u64,
    /// Microseconds from the notification until the address of a pod was known.
    #[prost(uint64, tag = "3")]
    pub start_us: u64,
    /// Microseconds from the known address until a readiness probe of the pod passed.
    #[prost(uint64, tag = "4")]
    pub probe_us: u64,
    /// Microseconds from the passed probe until the response began.
    #[prost(uint64, tag = "5")]
    pub forward_us: u64,
    /// Reason for a failed wake; empty if a pod responded.
    #[prost(string, tag = "6")]
    pub failed: String,
}

/// Maximum number of wakes in one report.
pub const WAKES_MAX: usize = 4;

/// Content of one frame.
#[derive(Clone, PartialEq, Message)]
pub struct WireStatMessages {
    /// Entries, one per revision.
    #[prost(message, repeated, tag = "1")]
    pub messages: Vec<WireStatMessage>,
}
