//! Backend of a workload: the data that activators need, derived from its ZeroScaler, its Service and its target.
//!
//! # Port
//!
//! The port is the one that the Service leads to. Without a Service it is the container port named `http`, `http1`,
//! `h2c` or `grpc`, or else the only TCP port. Otherwise the workload is refused. Pods with a queue-proxy, known by a
//! container port named `http-autometric`, are reached at its port as in Knative.
//!
//! A named port is passed on by name: during a rollout that moves it, each pod is reached at its own number.
//!
//! # Readiness
//!
//! The activator sends the readiness probes of all containers: `httpGet`, `tcpSocket` or `grpc`. It relies on the Ready
//! condition of Kubernetes instead if a readiness probe is of another kind (exec, another host, HTTPS). The same holds
//! for pods with a startup probe or readiness gates. If the container with the port has no readiness probe, a TCP
//! connect to that port replaces it. `wake.probe` overrides all this.

use crate::cluster::facts::Target;
use common::backend::{Backend, Probe, ProbeHeader, ProbeKind, Protocol};
use common::names;
use common_api::ZeroScaler;
use common_api::zeroscaler::ProbeChoice;
use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, HTTPHeader};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::iter;

/// Container port of a queue-proxy that reports stats.
pub(crate) const AUTOMETRIC_PORT: &str = "http-autometric";
/// Names of container ports for requests.
const PORT_NAMES: [&str; 4] = ["http", "http1", "h2c", "grpc"];

/// Port of a revision's pods for requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackendPort {
    /// Target port of the private Service.
    pub(crate) target: IntOrString,
    /// Present port number.
    pub(crate) number: i32,
}

/// Returns the protocol of the pods for requests on the shared ports. It is that of the first port that the ZeroScaler
/// names. Requests to another port use that port's protocol.
pub(crate) fn protocol(object: &ZeroScaler) -> Protocol {
    object.spec.ports.first().and_then(|port| port.protocol.http()).unwrap_or_default()
}

/// Reports whether the pods have a queue-proxy.
pub(crate) fn has_queue_proxy(target: &Target) -> bool {
    ports(target).any(|(_, port)| port.name.as_deref() == Some(AUTOMETRIC_PORT))
}

/// Finds the port of the pods for requests. `leads_to`: the port of the pods that the Services lead to, if one exists.
/// Fails with a message if the rule yields no port, or more than one.
pub(crate) fn port(target: &Target, leads_to: Option<&IntOrString>, protocol: Protocol) -> Result<BackendPort, String> {
    if has_queue_proxy(target) {
        let number = i32::from(match protocol {
            Protocol::Http1 => names::ACTIVATOR_HTTP1_PORT,
            Protocol::H2c => names::ACTIVATOR_H2C_PORT,
        });
        return Ok(BackendPort { target: IntOrString::Int(number), number });
    }
    let of = |port: &ContainerPort| {
        let (number, name) = (port.container_port, port.name.clone().filter(|name| !name.is_empty()));
        BackendPort { target: name.map_or(IntOrString::Int(number), IntOrString::String), number }
    };
    match leads_to {
        Some(IntOrString::Int(number)) => {
            return Ok(BackendPort { target: IntOrString::Int(*number), number: *number });
        }
        Some(IntOrString::String(name)) => {
            let found = ports(target).find(|(_, port)| port.name.as_deref() == Some(name));
            return found.map(|(_, port)| of(port)).ok_or_else(|| {
                format!("targetPort {name:?}: must be the name of a container port of the pod template")
            });
        }
        None => {}
    }
    let named = PORT_NAMES.iter().find_map(|name| ports(target).find(|(_, p)| p.name.as_deref() == Some(*name)));
    if let Some((_, port)) = named {
        return Ok(of(port));
    }
    let mut all = ports(target);
    match (all.next(), all.next()) {
        (None, _) => {
            Err("spec.services[].create: the pod template must declare the TCP port to which the Service leads, and \
                          declares none"
                .to_owned())
        }
        (Some((_, only)), None) => Ok(of(only)),
        _ => {
            let list: Vec<_> = ports(target).map(|(_, port)| port.container_port.to_string()).collect();
            Err(format!(
                "spec.services[].create: the pod template declares several TCP ports ({}), and none is named `http`, \
                 `http1`, `h2c` or `grpc`. Give one of them such a name, or create the Service yourself",
                list.join(", ")
            ))
        }
    }
}

/// Returns the backend that reaches `port`, as far as it follows from one version and its target.
pub(crate) fn backend(original: &ZeroScaler, target: &Target, port: &BackendPort) -> Backend {
    let (wake, timeouts) = (&original.spec.wake, &original.spec.timeouts);
    let queue_proxy = has_queue_proxy(target);
    let probes = if queue_proxy { vec![ProbeKind::QueueProxy.into()] } else { probes(target, &wake.probe(), port) };
    let mut probes = probes.into_iter();
    Backend {
        protocol: protocol(original),
        container_concurrency: u32::try_from(original.spec.concurrency).unwrap_or(0),
        queue_proxy,
        host_network: target.host_network,
        probe: probes.next().unwrap_or_default(),
        sidecar_probes: probes.collect(),
        wake_timeout_ms: millis(wake.timeout()),
        request_timeout_ms: timeouts.request.get().map_or(0, millis),
        response_start_timeout_ms: timeouts.response_start.get().map_or(0, millis),
        idle_timeout_ms: timeouts.idle.get().map_or(0, millis),
        max_held: wake.max_held(),
        ..Backend::default()
    }
}

/// Returns the port on which pods must listen to count as ready, if no container has a readiness probe for Kubernetes.
pub(crate) fn unprobed_port(target: &Target, backend: &Backend, port: &BackendPort) -> Option<u16> {
    let is_probed = target.containers.iter().any(|container| container.readiness_probe.is_some());
    let is_connected = backend.probes().eq([&Probe::from(ProbeKind::Tcp)]);
    u16::try_from(port.number).ok().filter(|_| is_connected && !is_probed)
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the probes that must pass, that of the container that takes requests first.
fn probes(target: &Target, choice: &ProbeChoice, port: &BackendPort) -> Vec<Probe> {
    match choice {
        ProbeChoice::Tcp => return vec![ProbeKind::Tcp.into()],
        ProbeChoice::Http(path) => return vec![Probe::http(path)],
        ProbeChoice::Kubernetes => return vec![Probe::default()],
        ProbeChoice::Auto => {}
    }
    let all = || target.containers.iter().chain(&target.sidecars);
    if target.has_readiness_gates || all().any(|container| container.startup_probe.is_some()) {
        return vec![Probe::default()];
    }
    let owner = ports(target).find(|(_, p)| p.container_port == port.number).map(|(container, _)| container);
    // A port that no container declares is attributed to the only container.
    let owner = owner.or(match &target.containers[..] {
        [only] => Some(only),
        _ => None,
    });
    let own = owner.and_then(|container| declared(container, port)).unwrap_or(ProbeKind::Tcp.into());
    let others = all().filter(|container| !owner.is_some_and(|owner| std::ptr::eq(owner, *container)));
    let probes: Vec<Probe> = iter::once(own).chain(others.filter_map(|other| declared(other, port))).collect();
    if probes.contains(&Probe::default()) { vec![Probe::default()] } else { probes }
}

/// Returns the readiness probe of a container, or Kubernetes' Ready condition if an activator cannot send the probe.
fn declared(container: &Container, port: &BackendPort) -> Option<Probe> {
    let declared = container.readiness_probe.as_ref()?;
    let other = |number: u16| Some(number).filter(|number| i32::from(*number) != port.number);
    let probe = if let Some(get) = &declared.http_get {
        http_probe(get, container, other)
    } else if let Some(tcp) = &declared.tcp_socket {
        let number = number_of(&tcp.port, container).filter(|_| tcp.host.as_deref().unwrap_or_default().is_empty());
        number.map(|number| Probe { port: other(number), ..ProbeKind::Tcp.into() })
    } else if let Some(grpc) = &declared.grpc {
        let service = grpc.service.clone().unwrap_or_default();
        u16::try_from(grpc.port).ok().map(|number| Probe { port: other(number), service, ..ProbeKind::Grpc.into() })
    } else {
        None
    };
    Some(probe.unwrap_or_default())
}

fn http_probe(get: &HTTPGetAction, container: &Container, other: impl Fn(u16) -> Option<u16>) -> Option<Probe> {
    let scheme = get.scheme.as_deref().unwrap_or("HTTP");
    if !scheme.eq_ignore_ascii_case("http") || get.host.as_deref().is_some_and(|host| !host.is_empty()) {
        return None;
    }
    let path = match get.path.as_deref() {
        Some(path) if path.starts_with('/') => path.to_owned(),
        path => format!("/{}", path.unwrap_or_default()),
    };
    let header = |HTTPHeader { name, value }: &HTTPHeader| ProbeHeader { name: name.clone(), value: value.clone() };
    let headers = get.http_headers.iter().flatten().map(header).collect();
    let port = other(number_of(&get.port, container)?);
    Some(Probe { port, headers, ..Probe::http(path) })
}

fn number_of(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name))?.container_port
        }
    };
    u16::try_from(number).ok().filter(|number| *number != 0)
}

fn ports(target: &Target) -> impl Iterator<Item = (&Container, &ContainerPort)> {
    let each = target.containers.iter().flat_map(|c| c.ports.iter().flatten().map(move |port| (c, port)));
    each.filter(|(_, port)| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
