//! Columns of tables for people.
//!
//! A column is data: its name, the paths of its values, and the format of its cells. Columns of a custom resource come
//! from its definition, those of a built-in kind from `builtin/kinds.yaml`.

use jiff::Timestamp;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::{display_value, items, text};

/// Format of a cell, computed from the values at the column's paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Cell {
    /// The first value, unchanged.
    #[default]
    Value,
    /// Time since the first value.
    Age,
    /// The first nonempty text.
    Text,
    /// The first number, or 0.
    Number,
    /// The number at each path, such as `1/2`.
    Numbers,
    /// The number of values at each path, such as `1/2`.
    Counts,
    /// The number of values at all paths.
    Size,
    /// The sum of all values.
    Sum,
    /// All values, or `<none>`.
    List,
    /// Values of the first path, each with a value of the second: `80/TCP`.
    Pairs,
    /// Like [`Cell::Pairs`], in lower case: `pod/a`.
    Object,
    /// One word for the state of a pod: the reason of a waiting or terminated container, or the pod's reason or phase.
    PodStatus,
}

/// A column of a resource's table.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Given")]
pub(crate) struct Column {
    /// Entry in `columnDefinitions`.
    pub(crate) definition: Value,
    paths: Vec<JpQuery>,
    cell: Cell,
}

/// Column in `builtin/kinds.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    name: String,
    #[serde(default)]
    wide: bool,
    cell: Cell,
    at: Vec<String>,
}

impl TryFrom<Given> for Column {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        let Given { name, wide, cell, at } = given;
        let format = if name == "Name" { "name" } else { "" };
        let priority = u8::from(wide);
        let definition =
            json!({"name": name, "type": "string", "format": format, "description": "", "priority": priority});
        let paths = at.iter().map(|path| parse_path(path).ok_or_else(|| format!("column {name}: no path {path}")));
        Ok(Column { definition, paths: paths.collect::<Result<_, _>>()?, cell })
    }
}

/// Parses a JSON path of a definition, such as `.status.conditions[?(@.type=="Ready")].status`.
pub(crate) fn parse_path(text: &str) -> Option<JpQuery> {
    let path = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    parse_json_path(&format!("${path}")).ok().filter(|_| path.starts_with(['.', '[']))
}

impl Column {
    /// Builds a column from a definition. Returns `None` if `path` is not a path.
    pub(crate) fn new(definition: Value, path: &str) -> Option<Self> {
        let cell = if definition["type"] == "date" { Cell::Age } else { Cell::Value };
        Some(Column { definition, paths: vec![parse_path(path)?], cell })
    }

    /// Returns the name column, which is the first in each table of a custom resource.
    pub(crate) fn name() -> Option<Self> {
        let definition = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
        Self::new(definition, ".metadata.name")
    }

    /// Returns the cell of an object.
    pub(crate) fn cell(&self, object: &Value) -> Value {
        let paths = self.paths.iter().map(|path| js_path_process(path, object).unwrap_or_default());
        let paths: Vec<Vec<&Value>> = paths.map(|found| found.into_iter().map(|found| found.val()).collect()).collect();
        let all = || paths.iter().flatten().copied();
        let words = || all().map(display_value).filter(|word| !word.is_empty());
        let number = |path: &Vec<&Value>| path.first().and_then(|value| value.as_i64()).unwrap_or(0);
        let or_none = |text: String| Value::from(if text.is_empty() { "<none>".to_owned() } else { text });
        let slashed = |numbers: Vec<String>| Value::from(numbers.join("/"));
        match self.cell {
            Cell::Value => match all().next() {
                Some(value) if self.definition["type"] == "string" && !value.is_null() => display_value(value).into(),
                value => value.cloned().unwrap_or_default(),
            },
            Cell::Age => match (words().next(), all().next()) {
                (None, Some(Value::Null) | None) if self.definition["type"] == "date" => Value::Null,
                (time, _) => age(&time.unwrap_or_default()),
            },
            Cell::Text => words().next().unwrap_or_default().trim().into(),
            Cell::Number => all().find_map(Value::as_i64).unwrap_or(0).into(),
            Cell::Numbers => slashed(paths.iter().map(|path| number(path).to_string()).collect()),
            Cell::Counts => slashed(paths.iter().map(|path| path.len().to_string()).collect()),
            Cell::Size => all().count().into(),
            Cell::Sum => all().filter_map(Value::as_i64).sum::<i64>().to_string().into(),
            Cell::List => or_none(words().collect::<Vec<_>>().join(",")),
            Cell::Pairs | Cell::Object => {
                let seconds = paths.get(1).into_iter().flatten().cycle();
                let pairs = paths.first().into_iter().flatten().zip(seconds);
                let pairs = pairs.map(|(first, second)| match self.cell {
                    Cell::Object => format!("{}/{}", display_value(first).to_lowercase(), display_value(second)),
                    _ => format!("{}/{}", display_value(first), display_value(second)),
                });
                or_none(pairs.collect::<Vec<_>>().join(","))
            }
            Cell::PodStatus => pod_status(object).into(),
        }
    }
}

fn pod_status(pod: &Value) -> String {
    if !text(pod, "/metadata/deletionTimestamp").is_empty() {
        return "Terminating".into();
    }
    let reason = |status| {
        let found = [text(status, "/state/waiting/reason"), text(status, "/state/terminated/reason")];
        found.into_iter().find(|reason| !reason.is_empty())
    };
    let statuses = items(pod, "/status/containerStatuses").iter();
    let own = [text(pod, "/status/reason"), text(pod, "/status/phase")];
    let word = statuses.filter_map(reason).next_back();
    word.or_else(|| own.into_iter().find(|word| !word.is_empty())).unwrap_or("Unknown").to_owned()
}

/// Formats the time since a timestamp for people: `5s`, `3m20s`, `2d`.
fn age(time: &str) -> Value {
    match time.parse::<Timestamp>() {
        Err(_) => "<unknown>".into(),
        Ok(time) => human(Timestamp::now().as_second() - time.as_second()).into(),
    }
}

fn human(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        small => format!("{big}{big_unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..=0 => "0s".into(),
        1..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_have_at_most_two_units() {
        for (seconds, wanted) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (3600, "60m"),
            (4 * 3600 + 60, "4h1m"),
            (30 * 3600, "30h"),
            (3 * 86400, "3d"),
            (100 * 86400, "100d"),
        ] {
            assert_eq!(human(seconds), wanted, "{seconds}");
        }
    }
}
