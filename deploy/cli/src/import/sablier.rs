//! Translates Sablier: Deployments and StatefulSets that its labels enable, and the Traefik Middleware of their group.
//!
//! With Sablier, a proxy asks Sablier to start the called workload, and meanwhile shows a page or holds the request, as
//! the Middleware says. A ZeroScaler does the same. Running hours become a schedule, and a session becomes the window.
//! The workload's own manifest is not printed, since it does not change.

use super::draft::Draft;
use super::source::Source;
use serde_json::{Value, json};

const ENABLE: &str = "/metadata/labels/sablier.enable";
const PLUGIN: &str = "/spec/plugin/sablier";
/// Group of a workload whose labels name none.
const GROUP_DEFAULT: &str = "default";
/// Settings of a Middleware without an equivalent, and the reasons.
const REPLACED: [(&str, &str); 8] = [
    ("sablierUrl", "the activator replaces Sablier and its proxy"),
    ("keepAliveInterval", "a request counts as load until it ends"),
    ("dynamic/displayName", "the page shows the workload's name; HTML in spec.wake.page.html may show another"),
    ("dynamic/theme", "the built-in page has one theme, light and dark; spec.wake.page.html replaces it"),
    ("dynamic/refreshFrequency", "the page reloads as soon as the workload is ready"),
    ("dynamic/showDetails", "the page shows since when the workload starts, and how long that usually takes"),
    ("failOpen", "running workloads keep serving without the autoscaler"),
    ("ignoreUserAgent", "every request wakes the workload"),
];

/// Reports whether Sablier's labels enable a workload.
pub(super) fn is_enabled(object: &Value) -> bool {
    object.pointer(ENABLE).is_some_and(|value| value == "true")
}

/// Reports whether a Middleware belongs to Sablier.
pub(super) fn is_middleware(object: &Value) -> bool {
    object["kind"] == "Middleware" && object.pointer(PLUGIN).is_some()
}

/// Returns the group that a Middleware names.
fn named_group(middleware: &Value) -> Option<&str> {
    middleware.pointer(PLUGIN)?["group"].as_str()
}

/// Returns the group in a workload's labels or annotations, or the default group.
fn group(setting: Option<(String, String)>) -> String {
    setting.map_or_else(|| GROUP_DEFAULT.to_owned(), |(_, group)| group)
}

/// Returns the field that names a Middleware's group, and the reason why the Middleware belongs to no workload. Returns
/// `None` if it belongs to one.
pub(super) fn skip_reason(middleware: &Value, documents: &[Value]) -> Option<(String, String)> {
    let mut workloads = documents.iter().filter(|document| is_enabled(document));
    let group_of = |workload: &Value| group(sablier_setting(&mut Source::new(workload.clone()), "group"));
    let why = match named_group(middleware) {
        Some(named) if workloads.any(|workload| group_of(workload) == named) => return None,
        Some(group) => format!("no workload of group {group} is among the documents, so this object is not translated"),
        None => "no group is named, so this object is not translated".to_owned(),
    };
    Some((format!("{PLUGIN}/group"), why))
}

/// Translates a Deployment or StatefulSet with Sablier's labels, and the Middleware of its group, if the documents have
/// one.
pub(super) fn workload(from: &mut Source, kind: &str, documents: &[Value]) -> Vec<Value> {
    from.take(ENABLE);
    let group = sablier_setting(from, "group");
    let (hours, days) =
        (sablier_setting(from, "running-hours"), sablier_setting(from, "running-days").map(|(_, days)| days));
    from.keep_metadata("sablier.");
    let mut draft = Draft::new(from, json!({"kind": kind, "name": from.name}));
    if let Some((at, _)) = group.as_ref().filter(|(_, group)| group != GROUP_DEFAULT) {
        from.note(at, "workloads do not wake as a group: each wakes on its own requests");
    }
    let group = self::group(group);
    let middlewares = documents.iter().filter(|document| is_middleware(document));
    let mut middlewares = middlewares.filter(|middleware| named_group(middleware) == Some(group.as_str()));
    if let Some(middleware) = middlewares.next() {
        let mut plugin = Source::new(middleware.clone());
        for other in middlewares {
            let name = other["metadata"]["name"].as_str().unwrap_or_default();
            from.note("/Middleware", format!("{name} names this group, too; the settings of {} are used", plugin.name));
        }
        plugin.take("/metadata");
        plugin.take(&format!("{PLUGIN}/group"));
        draft.duration("scale.window", &mut plugin, &format!("{PLUGIN}/sessionDuration"));
        draft.duration("wake.timeout", &mut plugin, &format!("{PLUGIN}/blocking/timeout"));
        draft.set("wake.page", plugin.look(&format!("{PLUGIN}/dynamic")).map(|_| json!({})));
        for (field, why) in REPLACED {
            plugin.drop_field(&format!("{PLUGIN}/{field}"), why);
        }
        from.note_all("Middleware", plugin);
    }
    if let Some((at, hours)) = hours {
        match schedule(&hours, days.as_deref()) {
            Some(schedule) => {
                draft.set("schedules", vec![schedule]);
                from.note(&at, "the times are in UTC; set schedules[0].timeZone if Sablier had another TZ");
            }
            None => from.note(&at, format!("{hours} cannot be parsed; Sablier ignores it, too")),
        }
    }
    from.note("/metadata/labels", "remove Sablier's labels and its Middleware before you apply this");
    from.note(
        "/metadata/name",
        "all Services that lead to the workload's pods and share a port with the first of them are served; to choose, list them in services",
    );
    vec![draft.finish()]
}

/// Returns a Sablier setting and its pointer: an annotation, or a label as in earlier versions.
fn sablier_setting(from: &mut Source, name: &str) -> Option<(String, String)> {
    let mut found = |kind: &str| {
        let at = format!("/metadata/{kind}/sablier.{name}");
        from.text(&at).map(|text| (at, text))
    };
    let (annotation, label) = (found("annotations"), found("labels"));
    annotation.or(label)
}

/// Translates the hours `HH:MM-HH:MM` on these days, or on all days, to a schedule. Returns `None` if they cannot be
/// parsed.
fn schedule(hours: &str, days: Option<&str>) -> Option<Value> {
    const DAY: u32 = 24 * 60;
    let minutes = |text: &str| {
        let (hour, minute) = text.trim().split_once(':')?;
        let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
        (hour < 24 && minute < 60).then_some(hour * 60 + minute)
    };
    let (begin, end) = hours.split_once('-')?;
    let (begin, end) = (minutes(begin)?, minutes(end)?);
    // Sablier ignores hours whose start and end are equal.
    let length = Some((end + DAY - begin) % DAY).filter(|length| *length > 0)?;
    let days = days.and_then(week_days).unwrap_or_else(|| "*".to_owned());
    let cron = format!("{} {} * * {days}", begin % 60, begin / 60);
    Some(json!({"cron": cron, "duration": format!("{length}m"), "min": 1}))
}

/// Converts days of the week to crontab(5). Returns `None` if they cannot be parsed, which means every day in Sablier.
fn week_days(text: &str) -> Option<String> {
    const NAMES: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    let number = |day: &str| {
        let day = day.trim().to_lowercase();
        let is = |name: &&str| *name == day || (day.len() == 3 && name.starts_with(&day));
        NAMES.iter().position(is).map(|number| number.to_string())
    };
    text.split(',').map(number).collect::<Option<Vec<_>>>().map(|days| days.join(","))
}
