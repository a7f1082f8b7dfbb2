//! What `kubectl get hpa` shows: `cpu: 12%/50%` is a metric and its target.

use serde_json::Value;

use crate::api::fields::{number, text};
use crate::api::printer::{Printer, age};

/// So many metrics are shown, then how many more there are.
const SHOWN: usize = 2;

pub(super) const HPA: Printer = Printer {
    columns: &[
        ("Name", 0),
        ("Reference", 0),
        ("Targets", 0),
        ("MinPods", 0),
        ("MaxPods", 0),
        ("Replicas", 0),
        ("Age", 0),
    ],
    row: |o| {
        let target = format!("{}/{}", text(o, "/spec/scaleTargetRef/kind"), text(o, "/spec/scaleTargetRef/name"));
        let count = |pointer: &str| number(o, pointer).unwrap_or(0);
        let least = number(o, "/spec/minReplicas").map_or_else(|| "<unset>".to_owned(), |least| least.to_string());
        vec![
            o["metadata"]["name"].clone(),
            target.into(),
            targets(o).into(),
            least.into(),
            count("/spec/maxReplicas").to_string().into(),
            count("/status/currentReplicas").into(),
            age(text(o, "/metadata/creationTimestamp")),
        ]
    },
};

fn targets(o: &Value) -> String {
    let list = |pointer: &str| o.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (specs, statuses) = (list("/spec/metrics"), list("/status/currentMetrics"));
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown = specs.iter().enumerate().take(SHOWN);
    let mut cells: Vec<String> = shown.map(|(i, spec)| one(spec, statuses.get(i).unwrap_or(&Value::Null))).collect();
    if specs.len() > SHOWN {
        cells.truncate(SHOWN);
        return format!("{} + {} more...", cells.join(", "), specs.len() - SHOWN);
    }
    cells.join(", ")
}

fn one(spec: &Value, status: &Value) -> String {
    let key = match text(spec, "/type") {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return "<unknown type>".to_owned(),
    };
    let (source, target) = (&spec[key], &spec[key]["target"]);
    let current = |field: &str| amount(&status[key]["current"], field);
    if matches!(key, "resource" | "containerResource") {
        let name = text(source, "/name");
        return if target.get("averageValue").is_some() {
            format!("{name}: {}/{}", current("averageValue").unwrap_or_else(unknown), wanted(target, "averageValue"))
        } else {
            let percent = current("averageUtilization").map_or_else(unknown, |percent| format!("{percent}%"));
            let aim = target.get("averageUtilization").map_or_else(|| "<auto>".to_owned(), |aim| format!("{aim}%"));
            format!("{name}: {percent}/{aim}")
        };
    }
    let averaged = target.get("averageValue").is_some();
    let field = if averaged { "averageValue" } else { "value" };
    let suffix = if averaged && key != "pods" { " (avg)" } else { "" };
    format!("{}/{}{suffix}", current(field).unwrap_or_else(unknown), wanted(target, field))
}

fn amount(value: &Value, field: &str) -> Option<String> {
    match value.get(field)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

fn wanted(target: &Value, field: &str) -> String {
    amount(target, field).unwrap_or_else(unknown)
}

fn unknown() -> String {
    "<unknown>".to_owned()
}

#[cfg(test)]
mod tests {
    use super::targets;
    use serde_json::json;

    #[test]
    fn the_cells_of_the_reference() {
        let cpu =
            |target, current| (json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}), current);
        let rows = [
            (
                cpu(json!({"averageUtilization": 50}), json!({"resource": {"current": {"averageUtilization": 12}}})),
                "cpu: 12%/50%",
            ),
            (cpu(json!({"averageUtilization": 50}), json!({"type": ""})), "cpu: <unknown>/50%"),
            (
                cpu(json!({"averageValue": "500m"}), json!({"resource": {"current": {"averageValue": "250m"}}})),
                "cpu: 250m/500m",
            ),
            (
                (
                    json!({"type": "Pods", "pods": {"target": {"averageValue": "2"}}}),
                    json!({"pods": {"current": {"averageValue": "1"}}}),
                ),
                "1/2",
            ),
            (
                (json!({"type": "External", "external": {"target": {"averageValue": "2"}}}), json!(null)),
                "<unknown>/2 (avg)",
            ),
            (
                (
                    json!({"type": "Object", "object": {"target": {"value": "2"}}}),
                    json!({"object": {"current": {"value": "7"}}}),
                ),
                "7/2",
            ),
        ];
        for ((spec, status), wanted) in rows {
            let object = json!({"spec": {"metrics": [spec]}, "status": {"currentMetrics": [status]}});
            assert_eq!(targets(&object), wanted);
        }
        assert_eq!(targets(&json!({"spec": {}})), "<none>");
        let metric = json!({"type": "Pods", "pods": {"target": {"averageValue": "2"}}});
        let many = json!({"spec": {"metrics": [metric, metric, metric]}});
        assert_eq!(targets(&many), "<unknown>/2, <unknown>/2 + 1 more...");
    }
}
