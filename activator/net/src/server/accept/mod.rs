//! Accepts connections: on shared ports, and on ports of workloads.

pub(crate) mod acceptor;
pub(crate) mod port_protocols;
pub(crate) mod ports;
