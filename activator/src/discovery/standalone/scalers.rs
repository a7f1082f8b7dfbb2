//! Translation of ZeroScalers to revisions.
//!
//! Nearly everything comes from the status. The owner derives it from spec, Service and pod template, and leaves it
//! unchanged while a later spec is invalid. Responses without a pod come from the spec in force. A user who may write
//! either of them affects only the object's own namespace: a workload and the names of a Service there. Port numbers
//! and hosts are not read here but from the ledgers of the system namespace, where no tenant writes.

use crate::discovery::{Port, Spec};
use activator_core::backends::Proof;
use common::backend::Backend;
use common::host;
use common::pod_names::PodNames;
use common::ports::PortId;
use common_api::ZeroScaler;
use common_api::zeroscaler::conditions::{GUARDED, find};
use common_api::zeroscaler::{PortStatus, ProbeChoice, Target};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// Returns the revision of an object; `None` while the owner has not written how to reach it. Also `None` if the name
/// or the Service is not a single DNS label, because it could then refer to another workload.
pub(super) fn spec(object: &ZeroScaler) -> Option<Spec> {
    let (name, status) = (object.name_any(), object.status.as_ref()?);
    let service = status.service.as_deref().unwrap_or_else(|| object.spec.service_name());
    if !host::is_label(&name) || !host::is_label(service) {
        return None;
    }
    let backend = status.backend.clone()?;
    let backend = Backend { service: service.into(), wake_timeout_ms: backend.wake_timeout_ms.max(1), ..backend };
    let ports = status.ports.iter().map(port).collect();
    // The spec in force may be older, while the newest is rejected or not yet examined.
    let in_force = status.in_force.as_ref().filter(|version| version.generation != object.metadata.generation);
    let in_force = in_force.and_then(|version| version.version_of(object));
    let in_force = &in_force.as_ref().unwrap_or(object).spec;
    let wake = &in_force.wake;
    let answers = wake.answers(status.fallback.clone()).map(Arc::new);
    let mut spec = Spec::standalone(&object.namespace()?, &name, backend);
    // The automatic probe is the readiness probe of the pod template. Pods of a former template may fail it, so
    // Kubernetes' readiness counts as well. A probe that the ZeroScaler names must always pass.
    let is_of_template = wake.probe() == ProbeChoice::Auto;
    if spec.rules.proof == Proof::Probe && !spec.backend.queue_proxy && is_of_template {
        spec.rules.proof = Proof::ProbeThenReady;
    }
    let is_being_released = object.metadata.deletion_timestamp.is_some();
    let pod_names = pod_names(&in_force.target, &spec);
    let named = status.services.iter().filter(|named| named.on_shared_ports && named.name != service);
    let further_services = named.map(|named| named.name.as_str().into()).collect();
    // The condition's status does not matter: policies that cannot be followed admit no client.
    let guarded = find(&status.conditions, GUARDED).is_some();
    Some(Spec {
        uid: object.uid()?.into(),
        further_services,
        ports,
        answers,
        pod_names,
        is_being_released,
        guarded,
        ..spec
    })
}

fn pod_names(target: &Target, spec: &Spec) -> PodNames {
    let Target { api_version, kind, name } = target;
    let shared = (*spec.configuration == **name).then(|| spec.configuration.clone());
    PodNames::for_workload(api_version, kind, shared.unwrap_or_else(|| name.as_str().into()))
}

/// Returns the name of the first port in slices; `None` if the port has no name.
pub(super) fn first_port(spec: &Spec) -> Option<&str> {
    spec.ports.first().map(|port| port.id.name.as_str()).filter(|name| !name.is_empty())
}

fn port(status: &PortStatus) -> Port {
    let PortStatus { name, port, protocol, wake_after_ms, pod_port, spoken, .. } = status;
    // In the status, an unnamed port has its number as its name.
    let name = if *name == port.to_string() { String::new() } else { name.clone() };
    let wake_after = wake_after_ms.map(Duration::from_millis);
    Port { id: PortId { name, port: *port }, protocol: *protocol, wake_after, pod_port: *pod_port, spoken: *spoken }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn scaler(spec: Value, status: Value) -> ZeroScaler {
        let metadata = json!({"namespace": "ns", "name": "app", "uid": "u", "generation": 2});
        from_value(json!({
            "apiVersion": "zeroscale.dev/v1alpha1", "kind": "ZeroScaler",
            "metadata": metadata, "spec": spec, "status": status,
        }))
        .expect("a ZeroScaler")
    }

    /// Goal: Kubernetes readiness counts only if the activator runs Kubernetes' own probe, which is the default.
    #[test]
    fn a_probe_named_by_the_spec_in_force_must_pass() {
        let get = json!({"probe": {"type": "Http", "path": "/ready"}});
        let queue = json!({"probe": {"type": "QueueProxy"}, "queueProxy": true});
        let kubernetes = json!({"probe": {"type": "Kubernetes"}});
        let tcp = json!({"probe": {"type": "Tcp", "port": 9090}});
        let plain = json!({"target": {"name": "app"}});
        let spec = |probe: &str| json!({"target": {"name": "app"}, "wake": {"probe": probe}});
        let (auto, named) = (spec("auto"), spec("http:/ready"));
        // (backend, spec, spec in force, proof)
        let rows = [
            (&get, &auto, None, Proof::ProbeThenReady),
            (&get, &named, None, Proof::Probe),
            (&get, &named, Some(&auto), Proof::ProbeThenReady),
            (&get, &auto, Some(&named), Proof::Probe),
            (&queue, &auto, None, Proof::Probe),
            (&kubernetes, &auto, None, Proof::Ready),
            (&tcp, &plain, Some(&plain), Proof::ProbeThenReady),
        ];
        for (backend, written, in_force, expected) in rows {
            let mut status = json!({"service": "app", "backend": {"timeoutMs": 300_000, "maxHeld": 10_000}});
            for (name, value) in backend.as_object().expect("an object") {
                status["backend"][name] = value.clone();
            }
            status["inForce"] = json!(in_force.map(|spec| json!({"generation": 1, "spec": spec})));
            let proof = super::spec(&scaler(written.clone(), status)).map(|spec| spec.rules.proof);
            assert_eq!(proof, Some(expected), "{backend} {written} {in_force:?}");
        }
    }

    /// Goal: responses come from the version in force, which may be the newest or the one before, and the fallback from
    /// the status. If none is configured, nothing is stored.
    #[test]
    fn responses_are_those_of_the_version_in_force() {
        let page = |html: &str| json!({"target": {"name": "app"}, "wake": {"page": {"html": html}}});
        let fallback = json!({"service": "sorry", "port": 80, "afterMs": 1});
        let plain = json!({"target": {"name": "app"}});
        let former = json!({"generation": 1, "spec": page("former")});
        let newest = json!({"generation": 2, "spec": page("newest")});
        // (spec, version in force, fallback, HTML and Service)
        let rows = [
            (page("newest"), Value::Null, Value::Null, Some((Some("newest"), None))),
            (page("newest"), newest, Value::Null, Some((Some("newest"), None))),
            (page("newest"), former.clone(), fallback.clone(), Some((Some("former"), Some("sorry")))),
            (plain.clone(), former, Value::Null, Some((Some("former"), None))),
            (plain.clone(), Value::Null, fallback, Some((None, Some("sorry")))),
            (plain, Value::Null, Value::Null, None),
        ];
        for (written, in_force, fallback, expected) in rows {
            let backend = json!({"probe": {"type": "Tcp"}, "timeoutMs": 300_000, "maxHeld": 10_000});
            let status = json!({"backend": backend, "inForce": in_force, "fallback": fallback});
            let answers = spec(&scaler(written.clone(), status)).expect("a revision").answers;
            let found = answers.as_ref().map(|answers| {
                let html = answers.page.as_ref().and_then(|page| page.html.as_deref());
                (html, answers.fallback.as_ref().map(|fallback| fallback.service.as_str()))
            });
            assert_eq!(found, expected, "{written} {in_force} {fallback}");
        }
    }
}
