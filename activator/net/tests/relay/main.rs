//! Connections that are passed on as bytes, over real sockets.

mod both_ways;
mod held;
mod rig;
