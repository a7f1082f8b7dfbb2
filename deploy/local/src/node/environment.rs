//! Environment, command and arguments of a container, as defined by the Kubernetes API and Knative's runtime contract.
//!
//! Sources in order; later ones override earlier ones:
//!
//! 1. the variables of Services ([`super::service_links`]);
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

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Variables that a container inherits from the node's process.
const INHERITED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
/// Port of a container that declares none, unless another container of the pod has it.
const PORT_DEFAULT: u16 = 8080;

/// Data of ConfigMaps or Secrets by name.
type Objects = BTreeMap<String, BTreeMap<String, String>>;

/// Objects needed to build an environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pub(crate) config_maps: Objects,
    pub(crate) secrets: Objects,
}

/// Data of a pod that is not in its object.
#[derive(Clone, Debug)]
pub(crate) struct DownwardFields {
    pub(crate) pod_ip: IpAddr,
    pub(crate) host_ip: IpAddr,
    pub(crate) node_name: String,
}

/// Returns the names of ConfigMaps and Secrets that `container` needs.
pub(crate) fn sources_needed(container: &Container) -> (Vec<String>, Vec<String>) {
    let (mut config_maps, mut secrets) = (Vec::new(), Vec::new());
    for from in container.env_from.iter().flatten() {
        config_maps.extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
        secrets.extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        config_maps.extend(source.config_map_key_ref.as_ref().map(|r| r.name.clone()));
        secrets.extend(source.secret_key_ref.as_ref().map(|r| r.name.clone()));
    }
    (config_maps, secrets)
}

/// Returns the value of `PORT` for `container` of `pod`: its first declared TCP port, else 8080, else the next port
/// that no other container of the pod has.
pub(crate) fn port_of(pod: &Pod, container: &str) -> u16 {
    let containers = pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default();
    let declared = |c: &Container| {
        let ports = c.ports.iter().flatten();
        ports
            .filter(|p| p.protocol.as_deref().unwrap_or("TCP") == "TCP")
            .find_map(|p| u16::try_from(p.container_port).ok())
    };
    let mut taken: Vec<u16> = containers
        .iter()
        .flat_map(|c| c.ports.iter().flatten())
        .filter_map(|p| u16::try_from(p.container_port).ok())
        .collect();
    for candidate in containers {
        let port = declared(candidate).unwrap_or_else(|| {
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

/// Returns the environment of `container`, in order, with each name once.
///
/// # Errors
/// Fails if a source is missing and not optional, or is not supported. The error is a message for the container's
/// status.
pub(crate) fn environment(
    pod: &Pod,
    container: &Container,
    downward: &DownwardFields,
    sources: &Sources,
    links: Vec<(String, String)>,
    inherited: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, String> {
    let services = Variables(links);
    let mut given = Variables(services.0.clone());
    for name in INHERITED {
        if let Some(value) = inherited(name) {
            given.set(name, value);
        }
    }
    given.set("PORT", port_of(pod, &container.name).to_string());
    given.set("HOST", downward.pod_ip.to_string());
    given.set("POD_IP", downward.pod_ip.to_string());
    given.set("HOSTNAME", pod.name_any());
    for (name, label) in [
        ("K_REVISION", common::names::REVISION),
        ("K_CONFIGURATION", common::names::CONFIGURATION),
        ("K_SERVICE", common::names::SERVICE),
    ] {
        given.set(name, pod.labels().get(label).cloned().unwrap_or_default());
    }
    let mut own = Variables::default();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let (kind, name, optional, objects) = match (&from.config_map_ref, &from.secret_ref) {
            (Some(map), _) => ("configmap", map.name.clone(), map.optional, &sources.config_maps),
            (None, Some(secret)) => ("secret", secret.name.clone(), secret.optional, &sources.secrets),
            (None, None) => continue,
        };
        match objects.get(&name) {
            Some(data) => data.iter().for_each(|(key, value)| own.set(&format!("{prefix}{key}"), value.clone())),
            None if optional == Some(true) => {}
            None => {
                return Err(format!("{kind} \"{name}\" not found, {}", needed_by(&format!("{prefix}*"), container)));
            }
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(pod, container, downward, sources, variable, [&own, &services])? {
            own.set(&variable.name, value);
        }
    }
    own.0.into_iter().for_each(|(name, value)| given.set(&name, value));
    Ok(given.0)
}

/// Replaces each `$(NAME)` in `text` with the value from `lookup`.
pub(crate) fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$'); // `$$` is a literal dollar sign.
            rest = after;
            continue;
        }
        match rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            Some((name, after)) => {
                match lookup(name) {
                    Some(value) => expanded.push_str(&value),
                    None => {
                        expanded.push_str("$(");
                        expanded.push_str(name);
                        expanded.push(')');
                    }
                }
                rest = after;
            }
            None => expanded.push('$'),
        }
    }
    expanded.push_str(rest);
    expanded
}

/// Returns the command line of `container`: `command` and `args`, expanded.
///
/// # Errors
/// Fails if there is no command.
pub(crate) fn command_line(container: &Container, env: &[(String, String)]) -> Result<Vec<String>, String> {
    let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let command = container.command.as_deref().filter(|c| !c.is_empty());
    let command = command.ok_or_else(|| {
        let rule = "this node runs pods as processes, so a container needs a command; its image is not used";
        format!("container {:?} has no command: {rule}", container.name)
    })?;
    let words = command.iter().chain(container.args.iter().flatten());
    Ok(words.map(|word| expand(word, lookup)).collect())
}

/// Names with values, in the order of their first use.
#[derive(Debug, Default)]
struct Variables(Vec<(String, String)>);

impl Variables {
    fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, held)) => *held = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
    }
}

/// Returns the value of a variable, or `None` if its optional source is missing.
fn value_of(
    pod: &Pod,
    container: &Container,
    downward: &DownwardFields,
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
        let value = field_of(pod, downward, &field.field_path);
        return value
            .map(Some)
            .ok_or_else(|| format!("this node offers no fieldRef {:?}, {needed_by}", field.field_path));
    }
    let (kind, name, key, optional, objects) = match (&source.config_map_key_ref, &source.secret_key_ref) {
        (Some(map), _) => ("configmap", &map.name, &map.key, map.optional, &sources.config_maps),
        (None, Some(secret)) => ("secret", &secret.name, &secret.key, secret.optional, &sources.secrets),
        (None, None) => return Err(format!("this node offers no resourceFieldRef or fileKeyRef, {needed_by}")),
    };
    match objects.get(name).map(|data| data.get(key)) {
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
fn field_of(pod: &Pod, downward: &DownwardFields, path: &str) -> Option<String> {
    let subscript = |map: &BTreeMap<String, String>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    Some(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "spec.nodeName" => downward.node_name.clone(),
        "spec.serviceAccountName" => pod.spec.as_ref()?.service_account_name.clone().unwrap_or_default(),
        "status.podIP" | "status.podIPs" => downward.pod_ip.to_string(),
        "status.hostIP" | "status.hostIPs" => downward.host_ip.to_string(),
        _ => {
            return subscript(pod.labels(), "metadata.labels")
                .or_else(|| subscript(pod.annotations(), "metadata.annotations"));
        }
    })
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
