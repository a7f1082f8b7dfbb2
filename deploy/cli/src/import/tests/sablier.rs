//! Workloads with Sablier's labels, and Middlewares.

use super::{import, noted, one, zero_scaler};
use serde_json::json;

/// Goal: the waiting page and the running hours in Sablier's documentation are translated.
#[test]
fn sabliers_page_and_running_hours_are_translated() {
    let rows = [
        ("09:00-18:00", Some("Mon,Tue,Wed,Thu,Fri"), Some(("0 9 * * 1,2,3,4,5", "540m"))),
        ("22:00-06:00", Some("Friday"), Some(("0 22 * * 5", "480m"))),
        ("08:30-09:15", None, Some(("30 8 * * *", "45m"))),
        ("08:30-09:15", Some("Caturday"), Some(("30 8 * * *", "45m"))),
        ("24:00-06:00", None, None),
        ("all day", None, None),
    ];
    for (hours, days, expected) in rows {
        let days = days.map(|days| format!(", sablier.running-days: '{days}'")).unwrap_or_default();
        let imported = one(&format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: myapp
  labels: {{sablier.enable: 'true'}}
  annotations: {{sablier.group: myapp, sablier.running-hours: '{hours}'{days}}}
---
apiVersion: traefik.io/v1alpha1
kind: Middleware
metadata: {{name: myapp}}
spec:
  plugin:
    sablier: {{group: myapp, sessionDuration: 1m, dynamic: {{displayName: My App, theme: ghost}}}}
"
        ));
        let spec = &imported.objects[0]["spec"];
        assert_eq!(spec["wake"], json!({"page": {}}), "{hours}");
        let expected = expected.map(|(cron, duration)| json!([{"cron": cron, "duration": duration, "min": 1}]));
        assert_eq!(spec.get("schedules"), expected.as_ref(), "{hours}");
        let fields = noted(&imported);
        for field in ["metadata.annotations.sablier.running-hours", "Middleware.spec.plugin.sablier.dynamic.theme"] {
            assert!(fields.contains(&field), "{field}: {fields:?}");
        }
        assert!(!fields.iter().any(|field| field.contains("ZeroScaler")), "all fields exist: {fields:?}");
    }
}

/// Goal: Sablier's labels and the Middleware of their group are translated, and nothing of the workload itself.
#[test]
fn only_the_labels_of_a_deployment_and_their_middleware_are_translated() {
    let imported = one("
apiVersion: apps/v1
kind: Deployment
metadata:
  name: whoami
  namespace: lab
  labels: {app: whoami, sablier.enable: 'true', sablier.group: demo, sablier.mystery: x}
spec: {replicas: 0, template: {spec: {containers: [{name: whoami, image: whoami}]}}}
---
apiVersion: traefik.io/v1alpha1
kind: Middleware
metadata: {name: demo}
spec:
  plugin:
    sablier: {group: demo, sablierUrl: 'http://sablier:10000', sessionDuration: 5m, blocking: {timeout: 30s}, failOpen: false}
---
apiVersion: traefik.io/v1alpha1
kind: Middleware
metadata: {name: page}
spec: {plugin: {sablier: {group: demo, dynamic: {}}}}
");
    let target = json!({"kind": "Deployment", "name": "whoami"});
    let spec = json!({"target": target, "scale": {"window": "5m"}, "wake": {"timeout": "30s"}});
    assert_eq!(imported.objects, [zero_scaler(json!({"name": "whoami", "namespace": "lab"}), spec)]);
    let fields = [
        "metadata.labels.sablier.group",
        "Middleware",
        "Middleware.spec.plugin.sablier.sablierUrl",
        "Middleware.spec.plugin.sablier.failOpen",
        "metadata.labels",
        "metadata.name",
        "metadata.labels.sablier.mystery",
    ];
    assert_eq!(noted(&imported), fields);
    let plain = "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: a}\n";
    assert!(one(plain).objects.is_empty(), "nothing of Sablier's");
}

/// Goal: every Middleware is mentioned in the output; a note says if its group is not among the documents.
#[test]
fn a_middleware_goes_with_the_workloads_of_its_group() {
    let middleware = |name: &str, group: &str| {
        format!(
            "apiVersion: traefik.io/v1alpha1\nkind: Middleware\nmetadata: {{name: {name}}}\n\
             spec: {{plugin: {{sablier: {{{group}sessionDuration: 5m}}}}}}\n"
        )
    };
    let workload = |name: &str, metadata: &str| {
        format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, {metadata}}}\n")
    };
    let documents = [
        middleware("of-label", "group: a, "),
        middleware("of-annotation", "group: b, "),
        middleware("of-default", "group: default, "),
        middleware("stray", "group: nobody, "),
        middleware("unnamed", "names: c, "),
        workload("one", "labels: {sablier.enable: 'true', sablier.group: a}"),
        workload("two", "labels: {sablier.enable: 'true'}, annotations: {sablier.group: b}"),
        workload("three", "labels: {sablier.enable: 'true'}"),
    ];
    let all = import(&[("f.yaml".to_owned(), documents.join("---\n"))]).expect("known kinds");
    let (empty, made): (Vec<_>, Vec<_>) = all.iter().partition(|imported| imported.objects.is_empty());
    assert_eq!((empty.len(), made.len()), (2, 3), "{all:?}");
    for imported in made {
        assert_eq!(imported.objects[0]["spec"]["scale"]["window"], "5m", "{imported:?}");
    }
    for (imported, source, why) in [
        (empty[0], "Middleware stray", "no workload of group nobody is among the documents"),
        (empty[1], "Middleware unnamed", "no group is named"),
    ] {
        let why = format!("{why}, so this object is not translated");
        let expected = vec![("spec.plugin.sablier.group".to_owned(), why)];
        assert_eq!((imported.source.as_str(), &imported.notes), (source, &expected));
    }
}
