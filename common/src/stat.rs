//! The stat stream's messages (proto3, package `metrics`), as Knative Serving defines them in `stat.proto`.
//!
//! One WebSocket binary frame holds one [`WireStatMessages`]; a scrape answers with one bare [`Stat`].

use prost::Message;

/// One measurement from one source.
#[derive(Clone, PartialEq, Message)]
pub struct Stat {
    /// The pod that measured.
    #[prost(string, tag = "1")]
    pub pod_name: String,
    /// Time-weighted mean of requests in flight, queued ones included.
    #[prost(double, tag = "2")]
    pub average_concurrent_requests: f64,
    /// The part of it that came through an activator.
    #[prost(double, tag = "3")]
    pub average_proxied_concurrent_requests: f64,
    /// Requests that arrived, per second.
    #[prost(double, tag = "4")]
    pub request_count: f64,
    /// The part of it that came through an activator.
    #[prost(double, tag = "5")]
    pub proxied_request_count: f64,
    /// Age of the measuring process in seconds.
    #[prost(double, tag = "6")]
    pub process_uptime: f64,
    /// Unix seconds; 0: the first receiver stamps its own clock.
    #[prost(int64, tag = "7")]
    pub timestamp: i64,
}

/// A stat and the revision it is about. Without a stat it is an attestation: `name` is the activator's pod name,
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
    /// What else was seen of the revision. Ours alone: activators in standalone send it, and whoever does not know it
    /// skips it.
    #[prost(message, optional, boxed, tag = "100")]
    pub seen: Option<Box<Seen>>,
    /// The span of the request that wakes, as W3C's `traceparent`; empty: it is not traced. Ours alone: activators in
    /// standalone send it, and whoever does not know it skips it.
    #[prost(string, tag = "101")]
    pub trace: String,
}

/// What an activator saw of a revision since its last report, for whoever shows it. No decision depends on it.
#[derive(Clone, PartialEq, Message)]
pub struct Seen {
    /// Requests that were held at some moment.
    #[prost(uint32, tag = "1")]
    pub held: u32,
    /// Wakes that ended, with an answer or without; at most [`WAKES_MAX`].
    #[prost(message, repeated, tag = "2")]
    pub wakes: Vec<SeenWake>,
    /// Ports of the Service to which connections came that ended without a byte while the workload slept, where nothing says
    /// what is spoken.
    #[prost(uint32, repeated, tag = "10")]
    pub silent: Vec<u32>,
    /// Ports of the Service on which pods were found to speak first.
    #[prost(uint32, repeated, tag = "11")]
    pub pod_speaks_first: Vec<u32>,
}

/// One wake, as the activator saw it that answered first. Its parts add up to its length.
#[derive(Clone, PartialEq, Message)]
pub struct SeenWake {
    /// How long before the report it ended, in milliseconds.
    #[prost(uint32, tag = "1")]
    pub ended_ms_ago: u32,
    /// Microseconds from the request's head until the autoscaler was told.
    #[prost(uint64, tag = "2")]
    pub signal_us: u64,
    /// Microseconds from then until the address of a pod was known.
    #[prost(uint64, tag = "3")]
    pub start_us: u64,
    /// Microseconds from then until a probe of it passed.
    #[prost(uint64, tag = "4")]
    pub probe_us: u64,
    /// Microseconds from then until its answer began.
    #[prost(uint64, tag = "5")]
    pub forward_us: u64,
    /// Why nothing was answered; empty: a pod answered.
    #[prost(string, tag = "6")]
    pub failed: String,
}

/// Wakes in one report at most.
pub const WAKES_MAX: usize = 4;

/// What one frame carries.
#[derive(Clone, PartialEq, Message)]
pub struct WireStatMessages {
    /// One entry for each revision.
    #[prost(message, repeated, tag = "1")]
    pub messages: Vec<WireStatMessage>,
}
