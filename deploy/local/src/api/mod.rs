//! An embedded Kubernetes API server: the parts that `kube` and `kubectl` need, in memory, on loopback.
//!
//! A request is admitted ([`identity`]: loopback names, tokens), is routed to a resource, and must be allowed by a
//! role (`rbac`). Then a verb handles it: `list`, `watch`, `write`, `patch` or `delete`, the same for all resources. A
//! resource is defined by one table (`builtin`) or by a CustomResourceDefinition (`crd`). [`store`] holds all state;
//! the `collector` collects garbage after deletions. Controllers for workloads and endpoints are ordinary clients
//! outside of this module. Imports go in one direction: server → handler → call → verbs → core → store → resource →
//! fields.
//!
//! Rule: the observable behavior is that of Kubernetes 1.36, checked by recorded scenarios.
//!
//! Exceptions: addresses in 127.0.0.0/8 are accepted in Endpoints and EndpointSlices, since local pods have such
//! addresses. After a restart, which loses all state, the server rejects watches from unknown versions with 410.
//!
//! The port serves plain HTTP and TLS (`server`), since some clients send tokens only over TLS.
//!
//! Limits: not supported are users other than the administrator and ServiceAccounts (no account is created for a
//! namespace), admission plugins, persistence, conversion between versions of a custom resource, CEL (but the rules of
//! ZeroScalers apply: `crd`), impersonation, lists in pages, aggregated discovery, `events.k8s.io`, the subresource
//! `finalize` of Namespaces, and protobuf, except in bodies of common kinds ([`protobuf`]). So these kubectl commands
//! fail with an error: `exec`, `cp`, `attach`, `debug`, `port-forward`, `certificate`, `drain`, `--as`, `autoscale`,
//! and `create` without `-f` for rarer kinds; use `apply` for those.

mod access;
mod apply;
mod builtin;
mod call;
mod collector;
mod columns;
mod core;
mod crd;
mod delete;
mod discovery;
mod fields;
mod handler;
mod identity;
mod list;
mod media;
mod meta;
mod metrics;
mod openapi;
mod patch;
mod pod_actions;
mod prepare;
mod protobuf;
mod query;
mod rbac;
mod resource;
pub(crate) mod schema;
mod server;
pub(crate) mod status;
mod store;
mod strategic;
mod types;
mod watch;
mod write;

pub use self::core::ApiOptions;
pub use access::{Access, Audit};
pub(crate) use meta::clear_server_owned;
pub use server::ApiServer;

/// Returns a warning for clients that create an object of this kind, if nothing acts on the kind.
pub(crate) fn create_warning(api_version: &str, kind: &str) -> Option<String> {
    let registry = builtin::registry();
    let resource = registry.all().find(|resource| resource.kind == kind && resource.api_version() == api_version)?;
    resource.rules.warning.clone()
}

#[cfg(test)]
mod tests;
