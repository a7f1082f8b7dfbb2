//! Table of workloads.

use crate::model::{Summary, Wake};
use crate::text::{BAD, BUSY, Cell, Colours, FAINT, GOOD, PLAIN, number, seconds, since, table as rows_as_text};
use k8s_openapi::jiff::Timestamp;

/// Layout of the table.
#[derive(Clone, Copy, Debug)]
pub struct TableLayout {
    /// Adds more columns.
    pub wide: bool,
    /// Adds the namespace column.
    pub namespaces: bool,
    /// Prints column heads.
    pub heads: bool,
    /// Current time, for ages.
    pub now: Timestamp,
    /// Colour setting.
    pub colours: Colours,
    /// Width of the terminal.
    pub width: Option<usize>,
}

/// Head of a column and the function for its cells.
type Column = (&'static str, fn(&Summary, Timestamp) -> Cell);

const NAMESPACE: Column = ("NAMESPACE", |workload, _| workload.namespace.as_str().into());
const NARROW: [Column; 8] = [
    ("NAME", |workload, _| workload.name.as_str().into()),
    ("STATE", |workload, _| state(workload)),
    ("PODS", |workload, _| pods(workload).into()),
    ("MIN", |workload, _| number(workload.min.map(|min| min as f64)).into()),
    ("MAX", |workload, _| max_pods(workload).into()),
    ("REQ/S", |workload, _| number(workload.requests_per_second).into()),
    ("HELD", |workload, _| held(workload)),
    ("AGE", |workload, now| workload.created.map_or_else(|| "-".to_owned(), |then| since(then, now)).into()),
];
const WIDE: [Column; 6] = [
    ("TARGET", |workload, _| workload.target.as_str().into()),
    ("READY", |workload, _| readiness(workload)),
    ("IN FLIGHT", |workload, _| number(workload.concurrency).into()),
    ("LAST WAKE", |workload, now| last_wake(workload.last_wake.as_ref(), now).into()),
    ("SAVED", |workload, _| saved(workload).into()),
    ("OWNER", |workload, _| workload.owner.as_deref().filter(|owner| !owner.is_empty()).unwrap_or("-").into()),
];
const WHY: Column = ("WHY", |workload, _| {
    let (text, style) = if workload.is_wrong() && !workload.why.contains(&workload.ready.message) {
        (format!("{}: {}", workload.ready.reason, workload.ready.message), BAD)
    } else {
        (workload.why.clone(), if workload.is_wrong() { BAD } else { PLAIN })
    };
    Cell::new(text, style)
});

/// Formats workloads as a table.
pub fn table(workloads: &[Summary], layout: &TableLayout) -> String {
    let mut columns: Vec<Column> = Vec::new();
    columns.extend(Some(NAMESPACE).filter(|_| layout.namespaces));
    columns.extend(NARROW);
    columns.extend(WIDE.into_iter().filter(|_| layout.wide));
    columns.push(WHY);
    let rows: Vec<Vec<Cell>> =
        workloads.iter().map(|workload| columns.iter().map(|(_, cell)| cell(workload, layout.now)).collect()).collect();
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let text = rows_as_text(&heads, &rows, layout.colours, layout.width.filter(|_| !layout.wide));
    if layout.heads { text } else { text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default() }
}

/// Returns the state, marked if the workload is paused.
pub fn state(workload: &Summary) -> Cell {
    let style = match workload.state.as_str() {
        _ if workload.is_wrong() => BAD,
        "Awake" => GOOD,
        "Waking" | "FallingAsleep" => BUSY,
        _ => FAINT,
    };
    let word = if workload.state.is_empty() { "Unknown" } else { &workload.state };
    Cell::new(if workload.paused { format!("{word}, paused") } else { word.to_owned() }, style)
}

fn readiness(workload: &Summary) -> Cell {
    let style = if workload.is_wrong() { BAD } else { PLAIN };
    Cell::new(if workload.ready.status.is_empty() { "Unknown" } else { &workload.ready.status }, style)
}

/// Formats `2/3`: ready pods of desired or existing pods, whichever is larger.
fn pods(workload: &Summary) -> String {
    let pods = workload.pods;
    format!("{}/{}", pods.ready, pods.desired.unwrap_or(pods.actual).max(pods.actual))
}

/// Returns the maximum number of pods, or `-` if it is unlimited.
pub fn max_pods(workload: &Summary) -> String {
    workload.max.filter(|max| *max > 0).map_or_else(|| "-".to_owned(), |max| max.to_string())
}

fn held(workload: &Summary) -> Cell {
    let style = if workload.held.unwrap_or(0.0) > 0.0 { BUSY } else { PLAIN };
    Cell::new(number(workload.held), style)
}

fn last_wake(wake: Option<&Wake>, now: Timestamp) -> String {
    let Some(wake) = wake else { return "-".to_owned() };
    let ago = wake.at.map(|at| format!("{} ago", since(at, now))).unwrap_or_default();
    match wake.outcome.as_str() {
        "failed" => format!("failed {ago}"),
        _ => format!("{}, {ago}", seconds(wake.seconds)),
    }
}

/// Formats the saved pod time in a readable unit, and its cost.
pub fn saved(workload: &Summary) -> String {
    let Some(saved) = &workload.saved else { return "-".to_owned() };
    let time = match saved.pod_seconds {
        seconds if seconds < 3600.0 => format!("{} pod-minutes", number(Some(seconds / 60.0))),
        seconds if seconds < 72.0 * 3600.0 => format!("{} pod-hours", number(Some(seconds / 3600.0))),
        seconds => format!("{} pod-days", number(Some(seconds / 86_400.0))),
    };
    match &saved.money {
        Some(money) if money.amount < 10.0 => format!("{time}, {:.3} {}", money.amount, money.currency),
        Some(money) => format!("{time}, {:.0} {}", money.amount, money.currency),
        None => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workloads() -> Vec<Summary> {
        let workloads = json!([
            {"namespace": "shop", "name": "hello", "target": "Deployment/hello", "state": "Awake", "min": 0, "max": 20,
             "pods": {"ready": 2, "actual": 2, "desired": 3}, "requestsPerSecond": 123.4, "concurrency": 4.25,
             "held": 7.0, "why": "the load asks for it", "ready": {"status": "True"}, "owner": "autoscaler-1",
             "lastWake": {"at": "1970-01-01T00:15:40Z", "seconds": 0.019, "outcome": "answered"},
             "saved": {"podSeconds": 7200.0, "money": {"amount": 0.5, "perHour": 0.25, "currency": "EUR"}},
             "created": "1970-01-01T00:00:00Z"},
            {"namespace": "shop", "name": "still", "state": "Asleep", "paused": true, "ready": {"status": "True"},
             "why": "paused: the replicas stay as they are"},
            {"namespace": "shop", "name": "wrong", "state": "Unknown",
             "ready": {"status": "False", "reason": "TargetNotFound", "message": "spec.target: gone"}},
        ]);
        serde_json::from_value(workloads).expect("workloads")
    }

    fn layout() -> TableLayout {
        let now = Timestamp::from_second(1000).expect("a time");
        TableLayout { wide: false, namespaces: false, heads: true, now, colours: Colours(false), width: None }
    }

    #[test]
    fn a_table_shows_state_load_and_reason() {
        assert_eq!(
            table(&workloads(), &layout()),
            "\
NAME    STATE            PODS   MIN   MAX   REQ/S   HELD   AGE   WHY
hello   Awake            2/3    0     20    123     7      16m   the load asks for it
still   Asleep, paused   0/0    -     -     -       -      -     paused: the replicas stay as they are
wrong   Unknown          0/0    -     -     -       -      -     TargetNotFound: spec.target: gone
"
        );
    }

    #[test]
    fn a_wide_table_has_more_columns_and_a_narrow_terminal_cuts_the_reason() {
        let wide = table(&workloads()[..1], &TableLayout { wide: true, namespaces: true, ..layout() });
        for part in [
            "NAMESPACE",
            "shop",
            "Deployment/hello",
            "4.2",
            "19.0 ms, 1m ago",
            "2 pod-hours, 0.500 EUR",
            "autoscaler-1",
        ] {
            assert!(wide.contains(part), "{part}: {wide}");
        }
        let narrow = table(&workloads(), &TableLayout { width: Some(80), ..layout() });
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let colours = table(&workloads(), &TableLayout { colours: Colours(true), ..layout() });
        assert!(colours.contains("\u{1b}[32mAwake") && colours.contains("\u{1b}[31mUnknown"), "{colours}");
        assert_eq!(table(&workloads()[1..2], &TableLayout { heads: false, ..layout() }).lines().count(), 1);
    }
}
