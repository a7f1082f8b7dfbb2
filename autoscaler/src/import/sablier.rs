//! Sablier: Deployments and StatefulSets that its labels enable, and the Traefik Middleware that names their group.
//!
//! There a proxy in front asks Sablier to start what is called, and shows a page meanwhile; here the request waits. A
//! session there is what the window is here. Of the workload itself nothing is printed: it stays as it is.

use super::draft::Draft;
use super::source::Source;
use serde_json::{Value, json};
use std::collections::HashMap;

const ENABLE: &str = "/metadata/labels/sablier.enable";
const GROUP: &str = "/metadata/labels/sablier.group";
const PLUGIN: &str = "/spec/plugin/sablier";
/// What a workload is in whose labels name none.
const GROUP_DEFAULT: &str = "default";

/// Whether Sablier's labels enable a workload.
pub(super) fn is_enabled(object: &Value) -> bool {
    object.pointer(ENABLE).is_some_and(|value| value == "true")
}

/// Whether a Middleware is one of Sablier's.
pub(super) fn is_middleware(object: &Value) -> bool {
    object["kind"] == "Middleware" && object.pointer(PLUGIN).is_some()
}

/// Sablier's Middlewares by the group that they name.
pub(super) fn middlewares(documents: &[(String, Value)]) -> HashMap<String, Value> {
    let ours = documents.iter().map(|(_, document)| document).filter(|document| is_middleware(document));
    let group = |object: &Value| Some(object.pointer(PLUGIN)?.get("group")?.as_str()?.to_owned());
    ours.filter_map(|object| Some((group(object)?, object.clone()))).collect()
}

/// A Deployment or StatefulSet with Sablier's labels, and the Middleware of its group, if that is among the documents.
pub(super) fn workload(from: &mut Source, kind: &str, middlewares: &HashMap<String, Value>) -> Vec<Value> {
    let name = from.text("/metadata/name").unwrap_or_default();
    let namespace = from.text("/metadata/namespace");
    from.take(ENABLE);
    let group = from.text(GROUP).unwrap_or_else(|| GROUP_DEFAULT.to_owned());
    from.keep_labels_of("sablier.");
    let mut draft = Draft::new(&name, namespace.as_deref(), json!({"kind": kind, "name": name}));
    if group != GROUP_DEFAULT {
        from.note(GROUP, "workloads wake one by one, each when it is called, not as a group");
    }
    if let Some(middleware) = middlewares.get(&group) {
        let mut plugin = Source::new(middleware.clone());
        plugin.take("/metadata");
        for field in ["sablierUrl", "group", "keepAliveInterval"] {
            plugin.take(&format!("{PLUGIN}/{field}"));
        }
        draft.duration("scale.window", &mut plugin, &format!("{PLUGIN}/sessionDuration"));
        draft.duration("wake.timeout", &mut plugin, &format!("{PLUGIN}/blocking/timeout"));
        plugin.lose(&format!("{PLUGIN}/dynamic"), "there is no waiting page: requests wait for the workload");
        plugin.lose(&format!("{PLUGIN}/failOpen"), "traffic that is on goes on without the autoscaler");
        plugin.lose(&format!("{PLUGIN}/ignoreUserAgent"), "every request wakes the workload");
        for (field, why) in plugin.lost() {
            from.note(&format!("/Middleware/{}", field.replace('.', "/")), why);
        }
    }
    from.note("/metadata/labels", "take Sablier's labels and its Middleware away before this is applied");
    from.note(
        "/metadata/name",
        "the Service that clients call is taken to have the workload's name; say service.name if it has not",
    );
    vec![draft.finish()]
}
