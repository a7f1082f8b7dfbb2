//! Vocabulary of both planes: the names, keys and formats that an activator and an autoscaler must agree on.
//!
//! Everything here is pure: no I/O, no clock, no randomness of its own, no Kubernetes client. Names and bytes follow
//! Knative wherever Knative defines them. Names that only Zeroscale uses have the prefix `zeroscale.dev/`.

pub mod annotations;
pub mod backend;
pub mod bound_ports;
pub mod config;
pub mod election;
pub mod field;
pub mod golang;
pub mod headers;
pub mod host;
pub mod hosts;
pub mod key;
pub mod labels;
pub mod names;
pub mod ownership;
pub mod pod_names;
pub mod ports;
pub mod scaling;
pub mod stat;
pub mod text;
pub mod time;
pub mod wire;
pub mod write_rate;

pub use key::RevisionKey;
