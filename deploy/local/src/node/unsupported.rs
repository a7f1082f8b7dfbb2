//! Features that this node lacks and programs depend on. A pod that uses them is rejected with a reason instead of
//! being started incompletely.

use k8s_openapi::api::core::v1::{Pod, Volume};

/// Returns a message about the first unsupported feature of a pod.
pub(crate) fn unsupported(pod: &Pod) -> Option<String> {
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
