//! An embedded Kubernetes API server: everything that `kube` and `kubectl` need of one, in memory, on loopback.
//!
//! A request passes [`guard`] (loopback names, tokens in `identity`), is routed to a resource, must be
//! allowed by a role (`rbac`), and is answered by verbs that are the same for all resources: `list`, `watch`, `write`,
//! `patch`, `delete`. What a resource is comes from one table (`builtin`) or from a CustomResourceDefinition (`crd`).
//! All state is in [`store`]; the `collector` does what follows from deletions. Controllers for workloads and endpoints
//! are clients like any other and live elsewhere. Imports run one way: server → handler → call → verbs → core → store
//! → resource → fields.
//!
//! Rule: what a client can observe is what Kubernetes 1.36 does, by recorded scenarios.
//!
//! Odd cases: addresses in 127.0.0.0/8 are accepted in Endpoints and EndpointSlices, since local pods live there. A
//! server that has lost its memory answers watches from unknown versions with 410.
//!
//! The port speaks plain HTTP and TLS (`tls`), for clients that send a token over nothing else.
//!
//! Not here: users other than the administrator and ServiceAccounts (none is made for a namespace), admission plugins,
//! persistence, conversion between versions of a custom resource, CEL (the rules of ZeroScalers are held all the same:
//! `custom`), impersonation; protobuf, but in bodies of the kinds that people and helm make every day ([`protobuf`]). So of
//! what kubectl knows these fail, and say so: `exec`, `cp`, `attach`, `debug`, `port-forward`, `certificate`, `drain`, `--as`,
//! `autoscale`, and `create` without `-f` of the rarer kinds, for which there is `apply`.

mod access;
mod address;
mod apply;
mod audit;
mod builtin;
mod call;
pub(crate) mod causes;
mod collector;
mod columns;
mod core;
mod crd;
mod custom;
mod delete;
mod discovery;
mod fields;
mod guard;
mod handler;
mod identity;
mod list;
mod media;
mod meta;
mod metrics;
mod openapi;
mod patch;
mod pod_actions;
mod pod_log;
mod prepare;
mod protobuf;
mod query;
mod rbac;
mod resource;
mod review;
mod route;
pub(crate) mod schema;
mod selector;
mod server;
mod status;
mod store;
mod strategic;
mod table;
mod target;
mod tls;
mod types;
mod watch;
mod write;

pub use access::Access;
pub use audit::Audit;
pub use pod_log::{PodLogQuery, PodLogs};
pub use server::{ApiOptions, ApiServer};

/// What the maker of an object of this kind should know of it, if anything: that nothing acts on it.
pub(crate) fn create_warning(api_version: &str, kind: &str) -> Option<String> {
    let registry = builtin::registry();
    let resource = registry.all().find(|resource| resource.kind == kind && resource.api_version() == api_version)?;
    resource.rules.warning.clone()
}

#[cfg(test)]
mod tests;
