//! Full description of one workload.

use super::list::{max_pods, saved, state};
use crate::gather::Sources;
use crate::model::{Detail, Summary, Wake};
use crate::text::{self, BAD, BUSY, Cell, Colours, PLAIN, STRONG, number, seconds, since, table};
use common::RevisionKey;
use common::text::printable_line;
use common_api::{ZeroScaler, ZeroScalerStatus};
use k8s_openapi::jiff::Timestamp;
use std::fmt::Write as _;
use std::io::Write;

/// Maximum width of a wake's bar, in characters.
const BAR: usize = 40;

/// Prints one workload. Fails if no source can be reached, the workload does not exist, or `out` is closed.
pub async fn run(sources: &Sources, key: &RevisionKey, out: &mut impl Write) -> anyhow::Result<()> {
    let object = async { sources.cluster()?.get(key).await }.await;
    let live = async { sources.dashboard()?.detail(key).await }.await;
    let (object, detail) = match (object, live) {
        (Ok(object), Ok(live)) => (Some(object), live),
        (Ok(object), Err(error)) => {
            let missing = "the workload is shown without load and wakes, which only the dashboard has";
            text::warn(&format!("{missing}: {error:#}"));
            let summary = Summary::from_object(&object);
            (Some(object), Detail { summary, ..Detail::default() })
        }
        (Err(error), Ok(live)) => {
            text::warn(&format!("the workload is shown without conditions: {error:#}"));
            (None, live)
        }
        (Err(error), Err(_)) => return Err(error),
    };
    Ok(out.write_all(page(object.as_ref(), &detail, Timestamp::now(), Colours::of_output()).as_bytes())?)
}

/// Formats everything that is known about the workload.
pub fn page(object: Option<&ZeroScaler>, detail: &Detail, now: Timestamp, colours: Colours) -> String {
    let workload = &detail.summary;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut line = |head: &str, text: &str| {
        let _ = writeln!(out, "{}{}", colours.paint(STRONG, &format!("{head:<13}")), printable_line(text));
    };
    line("Workload", &format!("{}/{}", workload.namespace, workload.name));
    let service = object.and_then(|object| object.status.as_ref()?.service.clone());
    let service = service.map(|name| format!(", behind Service {name}")).unwrap_or_default();
    line("Target", &format!("{}{service}", workload.target));
    line("State", &state(workload).text);
    let pods = workload.pods;
    let desired = pods.desired.map(|desired| format!(", {desired} desired")).unwrap_or_default();
    let bounds = format!("min {}, max {}", number(workload.min.map(|min| min as f64)), max_pods(workload));
    line("Pods", &format!("{} of {} ready{desired}; {bounds}", pods.ready, pods.actual));
    if workload.requests_per_second.is_some() || workload.concurrency.is_some() {
        let (rate, in_flight, held) =
            (number(workload.requests_per_second), number(workload.concurrency), number(workload.held));
        line("Load", &format!("{rate} requests per second, {in_flight} in flight, {held} held"));
    }
    line("Why", &workload.why);
    if let Some(next) = workload.next() {
        let max = next.max.map_or_else(|| "-".to_owned(), |max| max.to_string());
        line("Next change", &format!("{}: min {}, max {max}", next.at.0, next.min));
    }
    if workload.saved.is_some() {
        line("Saved", &saved(workload));
    }
    if let Some(owner) = workload.owner.as_deref().filter(|owner| !owner.is_empty()) {
        line("Decided by", owner);
    }
    let Some(object) = object else { return out + &wakes(&detail.wakes, now, colours) };
    let status = object.status.clone().unwrap_or_default();
    if let Some(request) = &status.request {
        let why = if request.message.is_empty() { String::new() } else { format!(": {}", request.message) };
        let at: Option<Timestamp> = request.at.parse().ok();
        let at = at.map_or_else(|| format!("at {}", request.at), |at| format!("{} ago", since(at, now)));
        line("Request", &format!("{}, requested {at}: {:?}{why}", request.state, request.result));
    }
    if !object.spec.hosts.is_empty() {
        let assigned = if status.hosts.is_empty() { "none".to_owned() } else { status.hosts.join(", ") };
        line("Hosts", &format!("{}; assigned: {assigned}", object.spec.hosts.join(", ")));
    }
    out.push_str(&tables(object, &status, colours, now));
    out + &wakes(&detail.wakes, now, colours)
}

/// Formats the tables that only the ZeroScaler has: conditions, ports and schedules.
fn tables(object: &ZeroScaler, status: &ZeroScalerStatus, colours: Colours, now: Timestamp) -> String {
    let conditions = status.conditions.iter().map(|condition| {
        let style = match condition.status.as_str() {
            "False" if condition.type_ != "Active" => BAD,
            "Unknown" => BUSY,
            _ => PLAIN,
        };
        let [kind, reason, message] = [&condition.type_, &condition.reason, &condition.message].map(Cell::from);
        let since = since(condition.last_transition_time.0, now);
        vec![kind, Cell::new(&condition.status, style), reason, since.into(), message]
    });
    let conditions = section(&["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"], conditions, colours);
    let count = |number: Option<i32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let ports = status.ports.iter().map(|port| {
        let (service, activators) = (port.port.to_string(), count(port.number.map(i32::from)));
        vec![port.name.as_str().into(), service.into(), activators.into(), port.protocol.as_str().into()]
    });
    let ports = section(&["PORT", "SERVICE", "ACTIVATORS", "PROTOCOL"], ports, colours);
    let schedules = object.spec.schedules.iter().map(|schedule| {
        let (cron, zone, length) = (schedule.cron.clone(), schedule.time_zone.clone(), schedule.duration.to_string());
        [cron, zone, length, count(schedule.min), count(schedule.max), schedule.prewarm.to_string()]
            .map(Cell::from)
            .to_vec()
    });
    let heads = ["SCHEDULE", "TIME ZONE", "LENGTH", "MIN", "MAX", "PREWARM"];
    conditions + &ports + &section(&heads, schedules, colours)
}

/// Formats a table below an empty line; nothing if there are no rows.
fn section(heads: &[&str], rows: impl Iterator<Item = Vec<Cell>>, colours: Colours) -> String {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { String::new() } else { format!("\n{}", table(heads, &rows, colours, None)) }
}

/// Formats recent wakes, latest first, each with a bar of its phases.
pub fn wakes(all: &[Wake], now: Timestamp, colours: Colours) -> String {
    let mut latest: Vec<&Wake> = all.iter().collect();
    latest.sort_by_key(|wake| std::cmp::Reverse(wake.at));
    let longest = latest.iter().map(|wake| wake.seconds).fold(f64::MIN_POSITIVE, f64::max);
    let rows = latest.iter().map(|wake| {
        let is_bad = wake.outcome == "failed";
        let took = Cell::new(seconds(wake.seconds), if is_bad { BAD } else { PLAIN });
        let phases: Vec<String> =
            wake.phases.iter().map(|phase| format!("{} {}", phase.name, seconds(phase.seconds))).collect();
        let end =
            if is_bad { format!("failed: {}", wake.reason.as_deref().unwrap_or("-")) } else { phases.join(" + ") };
        let ago = wake.at.map_or_else(|| "-".to_owned(), |at| since(at, now));
        vec![ago.into(), took, bar(wake, longest).into(), end.into()]
    });
    section(&["WAKE", "TOOK", "", "PHASES"], rows, colours)
}

/// Formats a bar with one shade per phase. A phase's length is its share of the longest wake, and at least one
/// character if it took any time.
fn bar(wake: &Wake, longest: f64) -> String {
    const SHADES: [char; 5] = ['░', '▒', '█', '▓', '▪'];
    let mut out = String::new();
    for (index, phase) in wake.phases.iter().enumerate().filter(|(_, phase)| phase.seconds > 0.0) {
        let length = ((phase.seconds / longest) * BAR as f64).round().clamp(1.0, BAR as f64) as usize;
        out.extend(std::iter::repeat_n(SHADES[index % SHADES.len()], length));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Phase;
    use serde_json::json;

    const NOW: i64 = 1_700_000_000;

    fn wake(ago: i64, phases: &[(&str, f64)]) -> Wake {
        let phases: Vec<Phase> =
            phases.iter().map(|(name, seconds)| Phase { name: (*name).to_owned(), seconds: *seconds }).collect();
        let seconds = phases.iter().map(|phase| phase.seconds).sum();
        Wake { at: Timestamp::from_second(NOW - ago).ok(), seconds, phases, outcome: "answered".into(), reason: None }
    }

    #[test]
    fn wakes_are_bars_of_their_phases() {
        let slow = wake(30, &[("signal", 0.001), ("scale", 0.009), ("pod", 0.09)]);
        let quick = wake(10, &[("signal", 0.0), ("scale", 0.01), ("pod", 0.04)]);
        let failed = Wake { outcome: "failed".into(), reason: Some("CrashLoopBackOff".into()), ..wake(60, &[]) };
        let now = Timestamp::from_second(NOW).expect("a time");
        let text = wakes(&[failed, slow, quick], now, Colours(false));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("10s") && lines[2].contains("▒▒▒▒████████████████ "), "{text}");
        assert!(lines[3].contains("░▒▒▒▒████"), "{text}");
        assert!(lines[3].contains("signal 1.0 ms + scale 9.0 ms + pod 90.0 ms"), "{text}");
        assert!(lines[4].contains("failed: CrashLoopBackOff"), "{text}");
        assert_eq!(wakes(&[], now, Colours(false)), "");
    }

    #[test]
    fn a_page_shows_the_fields_of_the_object() {
        let object: ZeroScaler = serde_json::from_value(json!({
            "metadata": {"name": "hello", "namespace": "shop"},
            "spec": {"target": {"name": "hello"}, "paused": true, "hosts": ["a.example.com"],
                "schedules": [{"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "duration": "10h", "min": 2}]},
            "status": {
                "state": "Asleep", "min": 0, "max": 5, "service": "hello", "hosts": [],
                "ports": [{"name": "web", "port": 80, "number": 20000, "protocol": "auto"}],
                "nextChange": {"at": "2030-01-01T00:00:00Z", "min": 2},
                "request": {"state": "Awake", "at": "2023-11-14T22:00:00Z", "result": "Kept", "reason": "Paused", "message": "the workload is paused"},
                "conditions": [{"type": "Active", "status": "False", "reason": "Paused", "message": "spec.paused: stays", "lastTransitionTime": "2023-11-14T22:00:00Z"}],
            },
        }))
        .expect("a ZeroScaler");
        let now = Timestamp::from_second(NOW).expect("a time");
        let detail = Detail { summary: Summary::from_object(&object), ..Detail::default() };
        let text = page(Some(&object), &detail, now, Colours(false));
        for part in [
            "Workload     shop/hello\n",
            "Target       Deployment/hello, behind Service hello\n",
            "State        Asleep, paused\n",
            "Pods         0 of 0 ready; min 0, max 5\n",
            "Why          spec.paused: stays\n",
            "Next change  2030-01-01T00:00:00Z: min 2, max -\n",
            "Request      Awake, requested 13m ago: Kept: the workload is paused\n",
            "Active      False    Paused   13m     spec.paused: stays\n",
            "web    80        20000        auto\n",
            "0 8 * * 1-5   Europe/Berlin   10h      2     -     0s\n",
            "Hosts        a.example.com; assigned: none\n",
        ] {
            assert!(text.contains(part), "{part:?}:\n{text}");
        }
    }
}
