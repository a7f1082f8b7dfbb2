//! Services of workloads: which of them are served, with which ports and protocols, and which respond in place of
//! others.

pub(crate) mod choice;
pub(crate) mod fallbacks;
pub(crate) mod protocols;
pub(crate) mod service_ports;
