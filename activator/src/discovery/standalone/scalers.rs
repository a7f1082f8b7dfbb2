//! ZeroScalers, as revisions.
//!
//! Everything is in the status: what the owner made of spec, Service and pod template, and left as it was while a later
//! spec is wrong. Whoever may write it speaks for the object's own namespace alone: for a workload and the names of a
//! Service there. Which numbers and which hosts lead to it is not read here but in the ledgers of the system namespace,
//! where no tenant writes.

use crate::discovery::{Port, Spec};
use common::host;
use common::ports::PortId;
use common_api::ZeroScaler;
use common_api::zeroscaler::PortStatus;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// The revision of an object; none while its owner has not said how to reach it. A name or a Service that is no single
/// word could be another's, and is none either.
pub(super) fn spec(object: &ZeroScaler) -> Option<Spec> {
    let (name, status) = (object.name_any(), object.status.as_ref()?);
    let service = status.service.as_deref().unwrap_or_else(|| object.spec.service_name());
    if !host::is_label(&name) || !host::is_label(service) {
        return None;
    }
    let backend = status.backend.as_ref()?.to_backend(service);
    let ports = status.ports.iter().map(port).collect();
    let answers = status.answers.clone().map(Arc::new);
    Some(Spec { uid: object.uid()?.into(), ports, answers, ..Spec::standalone(&object.namespace()?, &name, backend) })
}

/// The name that the first port has in slices; none: it has none.
pub(super) fn first_port(spec: &Spec) -> Option<&str> {
    spec.ports.first().map(|port| port.id.name.as_str()).filter(|name| !name.is_empty())
}

fn port(status: &PortStatus) -> Port {
    let PortStatus { name, port, protocol, wake_after_ms, pod_port, .. } = status;
    // What has no name has its number there.
    let name = if *name == port.to_string() { String::new() } else { name.clone() };
    let wake_after = wake_after_ms.map(Duration::from_millis);
    Port { id: PortId { name, port: *port }, protocol: *protocol, wake_after, pod_port: *pod_port }
}
