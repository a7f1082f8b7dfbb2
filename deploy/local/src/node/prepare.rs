//! Prepares a run of a container: program, environment and probes.
//!
//! Each run is prepared anew, so that a missing ConfigMap or program is found once it exists.
//!
//! The program is `command[0]`. With a slash it is a path, relative to the working directory. A bare name is searched
//! for first in the folder of the running executable (so that a sample of this workspace needs no path), then in the
//! container's `PATH`.

use super::Node;
use super::environment::{Sources, command_line, environment, port_of, sources_needed};
use super::probe::check::Handler;
use super::probe::{Purpose, Spec};
use super::process::Launch;
use super::status::PodPlacement;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Volume};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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
    let find = |name: &str| find_program(name, dir.as_deref(), node.exe_dir.as_deref(), &path);
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

/// Finds `name`. The error lists all folders that were searched.
fn find_program(name: &str, dir: Option<&Path>, exe_dir: Option<&Path>, path: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        let candidate = match dir {
            Some(dir) => dir.join(name),
            None => std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name)),
        };
        return if is_program(&candidate) {
            Ok(candidate)
        } else {
            Err(format!("{} is not an executable file", candidate.display()))
        };
    }
    let directories = exe_dir.map(Path::to_owned).into_iter().chain(std::env::split_paths(path));
    let mut searched = Vec::new();
    for directory in directories.filter(|d| !d.as_os_str().is_empty()) {
        let candidate = directory.join(name);
        if is_program(&candidate) {
            return Ok(candidate);
        }
        searched.push(directory.display().to_string());
    }
    Err(format!("program {name:?} not found in {}", searched.join(", ")))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns a message about the first feature of a pod that this node lacks and programs depend on. Such a pod is
/// rejected with a reason instead of being started incompletely.
pub(super) fn unsupported(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if let Some(init) = spec.init_containers.iter().flatten().next() {
        return Some(format!("init container {:?}: this node runs no init containers", init.name));
    }
    let is_ignored = |name: &str| {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == name);
        volume.is_some_and(is_service_account)
    };
    let mounts = spec.containers.iter().flat_map(|c| c.volume_mounts.iter().flatten().map(move |mount| (c, mount)));
    let mut unsupported = mounts.filter(|(_, mount)| !is_ignored(&mount.name));
    unsupported.next().map(|(container, mount)| {
        let (name, path) = (&container.name, &mount.mount_path);
        let rule = "this node runs pods as processes and mounts no volumes";
        format!("container {name:?} mounts volume {:?} at {path}: {rule}", mount.name)
    })
}

/// Reports whether this is the token volume that an API server adds to every pod. Programs here use a kubeconfig
/// instead.
fn is_service_account(volume: &Volume) -> bool {
    volume.name.starts_with("kube-api-access-") && volume.projected.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bare_name_is_found_next_to_the_executable_before_path() {
        let (exe_dir, path) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let make = |dir: &Path, name: &str, mode: u32| {
            let file = dir.join(name);
            std::fs::write(&file, "").expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("a mode");
            file
        };
        let (both, only_path) = (make(exe_dir.path(), "both", 0o755), make(path.path(), "only", 0o755));
        make(path.path(), "both", 0o755);
        make(exe_dir.path(), "only", 0o644); // Not executable: skipped.
        let search = |name: &str| find_program(name, None, Some(exe_dir.path()), &path.path().display().to_string());
        assert_eq!(search("both"), Ok(both));
        assert_eq!(search("only"), Ok(only_path));
        let error = search("absent").expect_err("nowhere");
        assert!(error.contains(&path.path().display().to_string()), "{error}");
        assert_eq!(find_program("./only", Some(path.path()), None, ""), Ok(path.path().join("./only")));
    }

    #[test]
    fn init_containers_and_volumes_are_rejected_except_the_token() {
        let token = json!({"name": "kube-api-access-x1", "projected": {"sources": []}});
        let data = json!({"name": "data", "emptyDir": {}});
        let mount = |name: &str| json!([{"name": "main", "volumeMounts": [{"name": name, "mountPath": "/p"}]}]);
        let rows = [
            (json!({"containers": [{"name": "main"}]}), None),
            (json!({"containers": mount("kube-api-access-x1"), "volumes": [token]}), None),
            (json!({"containers": mount("data"), "volumes": [data]}), Some("\"data\" at /p")),
            (json!({"containers": [], "initContainers": [{"name": "first"}]}), Some("\"first\"")),
        ];
        for (spec, expected) in rows {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a valid Pod");
            let refused = unsupported(&pod);
            match expected {
                None => assert_eq!(refused, None),
                Some(words) => assert!(refused.as_deref().is_some_and(|r| r.contains(words)), "{refused:?}"),
            }
        }
    }
}
