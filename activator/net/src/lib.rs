//! The activator's network: sockets and HTTP, and nothing else. It knows no revision, no Kubernetes and no stat.
//!
//! ```text
//! client ──> server ──> the chain of the caller ──> forward ──> pool ──> http1, http2 ──> pod ──> tcp
//!              │ head checks, timeouts, drain          │ heads, what may be sent again
//!              │ client: who asks, whether it left     └ liveness: whether pods are there
//!              └ what is not HTTP ──> the connector of the caller ──> relay
//! ```
//!
//! A caller starts a [`Server`] with a [`Chain`] of `tower` services and an [`ErrorResponder`]; the innermost service
//! makes a [`Prepared`] of each request and sends it to the [`Pool`] of a pod. [`Pools`] look after their connections
//! and tell a [`PodObserver`] of pods that seem to be gone; [`probe()`] asks whether one is ready. Connections that carry
//! no HTTP are passed on as bytes, to pods that a [`Connector`] of the caller finds.

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
mod scoped;
mod server;
mod tcp;
mod tunnel;
mod worker;

pub use alarm::Alarm;
pub use body::{BodyError, Guard, Guarded, HeadCharge, Reply, RequestBody, Upload};
pub use client::Inbound;
pub use client::disconnects::{Disconnect, Disconnects, HALF_CLOSE_MAX};
pub use client::peer::{Peer, PortIdentity, Trust};
pub use client::timers::SpareTimers;
pub use duplex::{DialError, Duplex, accept, dial};
pub use error::ProxyError;
pub use forward::{Evidence, Failure, Learned, PodBody, Prepared, TURNED_AWAY, evidence_of_connect};
pub use limits::STREAM_WINDOW;
pub use liveness::PodObserver;
pub use memory::{Held, Kind, Memory, Share};
pub use pool::{Pool, Pools};
pub use probe::probe;
pub use relay::Ended;
pub use relay::end::TcpEnd;
pub use relay::mark::CONNECTED;
pub use server::{
    Carries, Chain, ClientBounds, ClientConnections, Connected, Connector, ErrorResponder, KeepAlive, Place, PortGone,
    PortListeners, Server, TrustOf, overdue,
};
pub use worker::WorkerRuntimes;
