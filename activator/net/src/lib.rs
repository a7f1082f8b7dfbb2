//! Network layer of the activator: sockets and HTTP. It has no notion of revisions, Kubernetes or stats.
//!
//! ```text
//! client ──> server ──> the caller's chain ──> forward ──> pool ──> http1, http2 ──> pod ──> tcp
//!              │ head checks, timeouts, drain    │ head rewriting, retries
//!              │ client: peer, disconnects       └ liveness: detects pods that are gone
//!              └ connections without HTTP ──> the caller's connector ──> relay
//! ```
//!
//! A caller starts a [`Server`] with a [`Chain`] of `tower` services and an [`ErrorResponder`]. The innermost service
//! turns each request into a [`Prepared`] and sends it to the [`Pool`] of a pod. [`Pools`] watch their connections and
//! notify a [`PodObserver`] of pods that seem to be gone. [`probe()`] sends a readiness probe. Connections that do not
//! carry HTTP are relayed as bytes to pods that the caller's [`Connector`] picks.

mod alarm;
mod body;
mod client;
mod duplex;
mod error;
mod forward;
mod hop_by_hop;
mod http1;
mod http2;
mod limits;
mod liveness;
mod memory;
mod pod;
mod pool;
mod probe;
mod relay;
mod request_line;
mod server;
mod tcp;
mod tunnel;
mod worker;

pub use alarm::Alarm;
pub use body::{BodyError, Guard, Guarded, HeadCharge, Reply, RequestBody, Upload};
pub use client::Inbound;
pub use client::connections::{ClientBounds, ClientConnections};
pub use client::disconnects::{Disconnect, HALF_CLOSE_MAX};
pub use client::peer::{Peer, PortIdentity, Trust};
pub use client::timers::SpareTimers;
pub use duplex::{DialError, Duplex, accept, dial};
pub use error::ProxyError;
pub use forward::{DetectedProtocol, Evidence, Failure, PodBody, Prepared, evidence_of_connect};
pub use hop_by_hop::TURNED_AWAY;
pub use limits::STREAM_WINDOW;
pub use liveness::PodObserver;
pub use memory::{HeldCharge, Kind, Memory, Share};
pub use pool::{Pool, Pools};
pub use probe::probe;
pub use relay::Ended;
pub use relay::end::TcpEnd;
pub use relay::mark::CONNECTED;
pub use server::{
    CarriedProtocol, Chain, Connected, ConnectionGuard, Connector, ErrorResponder, KeepAlive, PortGone, PortListeners,
    Server, TrustOf, deadline,
};
pub use worker::WorkerRuntimes;
