//! Prepares a run of a container: program, environment and probes.
//!
//! Each run is prepared anew, so that a missing ConfigMap or program is found once it exists.

use super::environment::{Sources, command_line, environment, port_of, sources_needed};
use super::probe::check::Handler;
use super::probe::{Purpose, Spec};
use super::process::Launch;
use super::program;
use super::state::Node;
use super::status::PodPlacement;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) struct Prepared {
    pub(super) launch: Launch,
    pub(super) assigned: SocketAddr,
    pub(super) probes: Vec<(Spec, Handler)>,
}

/// Error of a container that cannot start: reason and message of its status.
pub(super) struct StartError {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Prepares one run of `container`.
pub(super) async fn prepare(
    node: &Node,
    pod: &Pod,
    container: &Container,
    placement: &PodPlacement,
) -> Result<Prepared, StartError> {
    let config = |message: String| StartError { reason: "CreateContainerConfigError", message };
    let sources = sources(&node.client, pod, container).await.map_err(config)?;
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links) != Some(false);
    let links = node.options.services.variables(&pod.namespace().unwrap_or_default(), links);
    let env =
        environment(pod, container, placement, &sources, &links, |name| std::env::var(name).ok()).map_err(config)?;
    let mut words = command_line(container, &env).map_err(config)?.into_iter();
    let name = words.next().unwrap_or_default();
    let dir = container.working_dir.clone().filter(|d| !d.is_empty()).map(PathBuf::from);
    let path = env.get("PATH").cloned().unwrap_or_default();
    let find = |name: &str| program::find(name, dir.as_deref(), node.exe_dir.as_deref(), &path);
    let program = find(&name).map_err(|message| StartError { reason: "CreateContainerError", message })?;
    let launch = Launch { program, args: words.collect(), env, dir: dir.clone() };
    let probes = probes(container, placement, &launch, find).map_err(config)?;
    let assigned = SocketAddr::new(placement.pod_ip, port_of(pod, &container.name));
    Ok(Prepared { launch, assigned, probes })
}

/// Reads the ConfigMaps and Secrets that the environment needs. Missing ones are left out.
async fn sources(client: &Client, pod: &Pod, container: &Container) -> Result<Sources, String> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut sources = Sources::default();
    for (kind, name) in sources_needed(container) {
        let data = match kind {
            "configmap" => {
                let map = Api::<ConfigMap>::namespaced(client.clone(), &namespace).get_opt(&name).await;
                map.map(|map| map.map(|map| map.data.unwrap_or_default()))
            }
            _ => {
                let secret = Api::<Secret>::namespaced(client.clone(), &namespace).get_opt(&name).await;
                secret.map(|secret| secret.map(data_of))
            }
        };
        if let Some(data) = data.map_err(|error| format!("{kind} {name:?}: {error}"))? {
            sources.insert((kind, name), data);
        }
    }
    Ok(sources)
}

/// Returns the data of a Secret as text.
fn data_of(secret: Secret) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(&value.0))).collect()
}

fn probes(
    container: &Container,
    placement: &PodPlacement,
    launch: &Launch,
    find: impl Fn(&str) -> Result<PathBuf, String>,
) -> Result<Vec<(Spec, Handler)>, String> {
    let ports = container.ports.as_deref().unwrap_or_default();
    let declared = [
        (Purpose::Startup, &container.startup_probe),
        (Purpose::Readiness, &container.readiness_probe),
        (Purpose::Liveness, &container.liveness_probe),
    ];
    declared
        .into_iter()
        .filter_map(|(purpose, probe)| Some((purpose, probe.as_ref()?)))
        .map(|(purpose, probe)| {
            let handler = Handler::new(probe, placement.pod_ip, ports, launch, &find)
                .map_err(|error| format!("container {:?}: {error}", container.name))?;
            Ok((Spec::new(purpose, probe), handler))
        })
        .collect()
}
