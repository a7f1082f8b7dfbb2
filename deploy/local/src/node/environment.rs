//! Environment, command and arguments of a container, as defined by the Kubernetes API and Knative's runtime contract.
//!
//! Sources in order; later ones override earlier ones:
//!
//! 1. the variables of Services ([`super::proxy::ServiceTable`]);
//! 2. `PATH`, `HOME`, `USER`, `LANG`, `TZ` and `TMPDIR` of the node's process; no other variable is inherited;
//! 3. `PORT` (the container's port), `HOST` and `POD_IP` (the pod's address), `HOSTNAME` (the pod's name), and
//!    `K_REVISION`, `K_CONFIGURATION`, `K_SERVICE` from the pod's labels, empty where there is no label;
//! 4. `envFrom`, then `env`: values in which `$(NAME)` refers to an earlier variable of `envFrom` or `env`, or of a
//!    Service (`$$(NAME)` is a literal, an unknown name stays unchanged), `fieldRef`, `configMapKeyRef`,
//!    `secretKeyRef`.
//!
//! `command` and `args` are expanded in the same way, with the whole environment.
//!
//! # Limits
//!
//! `resourceFieldRef` and `fileKeyRef` are rejected with an error.

use super::status::PodPlacement;
use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvFromSource, EnvVar, EnvVarSource, Pod};
use kube::ResourceExt;
use regex::{Captures, Regex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Variables that a container inherits from the node's process.
const INHERITED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
/// Port of a container that declares none, unless another container of the pod has it.
const PORT_DEFAULT: u16 = 8080;

/// Environment variables by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// A ConfigMap or Secret: its kind for messages, and its name.
pub(crate) type SourceKey = (&'static str, String);

/// Data of ConfigMaps and Secrets.
pub(crate) type Sources = BTreeMap<SourceKey, BTreeMap<String, String>>;

/// Returns the object from which `envFrom` takes all variables, and whether it is optional.
fn object_of(from: &EnvFromSource) -> Option<(SourceKey, Option<bool>)> {
    let map = from.config_map_ref.as_ref().map(|map| (("configmap", map.name.clone()), map.optional));
    map.or_else(|| from.secret_ref.as_ref().map(|secret| (("secret", secret.name.clone()), secret.optional)))
}

/// Returns the object from which `valueFrom` takes a variable, the key there, and whether it is optional.
fn key_of(from: &EnvVarSource) -> Option<(SourceKey, &str, Option<bool>)> {
    let map = from.config_map_key_ref.as_ref();
    let map = map.map(|map| (("configmap", map.name.clone()), map.key.as_str(), map.optional));
    let secret = from.secret_key_ref.as_ref();
    map.or_else(|| secret.map(|secret| (("secret", secret.name.clone()), secret.key.as_str(), secret.optional)))
}

/// Returns the ConfigMaps and Secrets that `container` needs.
pub(crate) fn sources_needed(container: &Container) -> BTreeSet<SourceKey> {
    let objects = container.env_from.iter().flatten().filter_map(object_of).map(|(source, _)| source);
    let variables = container.env.iter().flatten().filter_map(|variable| key_of(variable.value_from.as_ref()?));
    objects.chain(variables.map(|(source, ..)| source)).collect()
}

/// Returns the value of `PORT` for `container` of `pod`: its first declared TCP port, else 8080, else the next port
/// that no other container of the pod has.
pub(crate) fn port_of(pod: &Pod, container: &str) -> u16 {
    let containers = pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default();
    let ports = |container: &Container| -> Vec<(u16, bool)> {
        let is_tcp = |port: &ContainerPort| port.protocol.as_deref().unwrap_or("TCP") == "TCP";
        let number = |port: &ContainerPort| Some((u16::try_from(port.container_port).ok()?, is_tcp(port)));
        container.ports.iter().flatten().filter_map(number).collect()
    };
    let mut taken: Vec<u16> = containers.iter().flat_map(ports).map(|(port, _)| port).collect();
    for candidate in containers {
        let declared = ports(candidate).into_iter().find(|(_, is_tcp)| *is_tcp).map(|(port, _)| port);
        let port = declared.unwrap_or_else(|| {
            let free = (PORT_DEFAULT..=u16::MAX).find(|port| !taken.contains(port)).unwrap_or(PORT_DEFAULT);
            taken.push(free);
            free
        });
        if candidate.name == container {
            return port;
        }
    }
    PORT_DEFAULT
}

/// Returns the environment of `container`. `services` has the variables of Services. Fails if a source is missing and
/// not optional, or is not supported. The error is a message for the container's status.
pub(crate) fn environment(
    pod: &Pod,
    container: &Container,
    placement: &PodPlacement,
    sources: &Sources,
    services: &Variables,
    inherited: impl Fn(&str) -> Option<String>,
) -> Result<Variables, String> {
    let mut given = services.clone();
    given.extend(INHERITED.into_iter().filter_map(|name| Some((name.to_owned(), inherited(name)?))));
    let label = |name: &str| pod.labels().get(name).cloned().unwrap_or_default();
    let known = [
        ("PORT", port_of(pod, &container.name).to_string()),
        ("HOST", placement.pod_ip.to_string()),
        ("POD_IP", placement.pod_ip.to_string()),
        ("HOSTNAME", pod.name_any()),
        ("K_REVISION", label(common::names::REVISION)),
        ("K_CONFIGURATION", label(common::names::CONFIGURATION)),
        ("K_SERVICE", label(common::names::SERVICE)),
    ];
    given.extend(known.map(|(name, value)| (name.to_owned(), value)));
    let mut own = Variables::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let Some((source, optional)) = object_of(from) else { continue };
        match sources.get(&source) {
            Some(data) => own.extend(data.iter().map(|(key, value)| (format!("{prefix}{key}"), value.clone()))),
            None if optional == Some(true) => {}
            None => {
                let (kind, name) = source;
                return Err(format!("{kind} \"{name}\" not found, {}", needed_by(&format!("{prefix}*"), container)));
            }
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(pod, container, placement, sources, variable, [&own, services])? {
            own.insert(variable.name.clone(), value);
        }
    }
    given.extend(own);
    Ok(given)
}

/// Replaces each `$(NAME)` in `text` with the value from `lookup`. An unknown name stays, and `$$` is a literal dollar
/// sign.
pub(crate) fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a String>) -> String {
    static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\$|\$\(([^)]*)\)").ok());
    let Some(reference) = &*REFERENCE else { return text.to_owned() };
    let value = |found: &Captures<'_>| match found.get(1) {
        None => "$".to_owned(),
        Some(name) => lookup(name.as_str()).map_or_else(|| found[0].to_owned(), String::clone),
    };
    reference.replace_all(text, value).into_owned()
}

/// Returns the command line of `container`: `command` and `args`, expanded. Fails if there is no command.
pub(crate) fn command_line(container: &Container, env: &Variables) -> Result<Vec<String>, String> {
    let command = container.command.as_deref().filter(|c| !c.is_empty());
    let command = command.ok_or_else(|| {
        let rule = "this node runs pods as processes, so a container needs a command; its image is not used";
        format!("container {:?} has no command: {rule}", container.name)
    })?;
    let words = command.iter().chain(container.args.iter().flatten());
    Ok(words.map(|word| expand(word, |name| env.get(name))).collect())
}

/// Returns the value of a variable, or `None` if its optional source is missing.
fn value_of(
    pod: &Pod,
    container: &Container,
    placement: &PodPlacement,
    sources: &Sources,
    variable: &EnvVar,
    before: [&Variables; 2],
) -> Result<Option<String>, String> {
    let Some(source) = &variable.value_from else {
        let value = variable.value.as_deref().unwrap_or_default();
        return Ok(Some(expand(value, |name| before.iter().find_map(|known| known.get(name)))));
    };
    let needed_by = needed_by(&variable.name, container);
    if let Some(field) = &source.field_ref {
        let value = field_of(pod, placement, &field.field_path);
        return value
            .map(Some)
            .ok_or_else(|| format!("this node does not support fieldRef {:?}, {needed_by}", field.field_path));
    }
    let (source, key, optional) = key_of(source)
        .ok_or_else(|| format!("this node does not support resourceFieldRef and fileKeyRef, {needed_by}"))?;
    let (kind, name) = &source;
    match sources.get(&source).map(|data| data.get(key)) {
        Some(Some(value)) => Ok(Some(value.clone())),
        _ if optional == Some(true) => Ok(None),
        Some(None) => Err(format!("{kind} \"{name}\" has no key {key:?}, {needed_by}")),
        None => Err(format!("{kind} \"{name}\" not found, {needed_by}")),
    }
}

/// Formats the end of a message about a missing source.
fn needed_by(variable: &str, container: &Container) -> String {
    format!("needed by environment variable {variable:?} of container {:?}", container.name)
}

/// Returns the field of the pod that `fieldRef` names.
fn field_of(pod: &Pod, placement: &PodPlacement, path: &str) -> Option<String> {
    let subscript = |map: &BTreeMap<String, String>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    Some(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "spec.nodeName" => placement.node_name.clone(),
        "spec.serviceAccountName" => pod.spec.as_ref()?.service_account_name.clone().unwrap_or_default(),
        "status.podIP" | "status.podIPs" => placement.pod_ip.to_string(),
        "status.hostIP" | "status.hostIPs" => placement.host_ip.to_string(),
        _ => {
            return subscript(pod.labels(), "metadata.labels")
                .or_else(|| subscript(pod.annotations(), "metadata.annotations"));
        }
    })
}

#[cfg(test)]
mod tests;
