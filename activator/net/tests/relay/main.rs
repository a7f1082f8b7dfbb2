//! Connections to ports of workloads, over real sockets: relayed as bytes, and while ports are bound and closed.

mod both_ways;
mod held;
mod ports;
mod rig;
