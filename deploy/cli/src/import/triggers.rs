//! Triggers of a ScaledObject that belongs to an InterceptorRoute. CPU, memory and cron triggers have an equivalent.

use super::draft::{Draft, put};
use super::keda::ROUTE;
use super::source::Source;
use serde_json::{Value, json};

/// Translates the triggers that have an equivalent. The fields of others remain in the source and are listed.
pub(super) fn translate(from: &mut Source, draft: &mut Draft) {
    let (mut metrics, mut schedules) = (Vec::new(), Vec::new());
    for index in 0..from.count("/spec/triggers") {
        let at = format!("/spec/triggers/{index}");
        if from.take(&format!("{at}/metadata/{ROUTE}")).is_some() {
            from.take(&format!("{at}/type"));
            from.take(&format!("{at}/metadata/scalerAddress")); // Not needed: the activators report the load.
            continue;
        }
        let kind = from.text(&format!("{at}/type")).unwrap_or_default();
        match kind.as_str() {
            "cpu" | "memory" => metrics.extend(resource(from, &at, &kind)),
            "cron" => schedules.extend(schedule(from, &at)),
            _ => {
                let other = "spec.metrics accepts any metric of the cluster's metrics APIs";
                from.note(&at, format!("a {kind} trigger is not translated; {other}"));
            }
        }
    }
    draft.set("metrics", metrics);
    draft.set("schedules", schedules);
}

/// Translates a CPU or memory trigger to a metric.
fn resource(from: &mut Source, at: &str, name: &str) -> Option<Value> {
    let former = from.text(&format!("{at}/metadata/type"));
    let kind = from.text(&format!("{at}/metricType")).or(former).unwrap_or_else(|| "Utilization".to_owned());
    let container = from.text(&format!("{at}/metadata/containerName"));
    let value = match kind.as_str() {
        "Utilization" => ("averageUtilization", from.number(&format!("{at}/metadata/value"))?),
        _ => ("averageValue", from.text(&format!("{at}/metadata/value"))?.into()),
    };
    let mut source = json!({"name": name, "target": {"type": kind, value.0: value.1}});
    Some(match container {
        Some(container) => {
            source["container"] = container.into();
            json!({"type": "ContainerResource", "containerResource": source})
        }
        None => json!({"type": "Resource", "resource": source}),
    })
}

/// Translates a cron trigger to a schedule, if start and end differ only in hour and minute.
fn schedule(from: &mut Source, at: &str) -> Option<Value> {
    const DAY: u32 = 24 * 60;
    let read = |from: &Source, name: &str| {
        let text = from.look(&format!("{at}/metadata/{name}"))?.as_str()?.to_owned();
        let mut fields = text.split_whitespace();
        let (minute, hour): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((hour * 60 + minute, fields.collect::<Vec<_>>().join(" "), text.clone()))
    };
    let day = |((begin, days, cron), (until, other, _)): ((u32, String, String), (u32, String, String))| {
        let length = (until + DAY).checked_sub(begin).map_or(0, |length| length % DAY);
        (days == other && length > 0 && (until >= begin || days == "* * *")).then_some((cron, length))
    };
    let Some((cron, length)) = read(from, "start").zip(read(from, "end")).and_then(day) else {
        from.note(at, "its times are not on one day: write it as an entry of spec.schedules");
        return None;
    };
    for name in ["start", "end"] {
        from.take(&format!("{at}/metadata/{name}"));
    }
    let mut schedule = json!({"cron": cron, "duration": format!("{length}m")});
    put(&mut schedule, "timeZone", from.text(&format!("{at}/metadata/timezone")));
    put(&mut schedule, "min", from.number(&format!("{at}/metadata/desiredReplicas")));
    Some(schedule)
}
