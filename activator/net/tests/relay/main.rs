//! Connections that are relayed as bytes, over real sockets.

mod both_ways;
mod held;
mod rig;
