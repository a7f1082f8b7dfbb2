//! Objects as rows for people: the `Table` that kubectl prints with its columns, and `PartialObjectMetadata`.
//!
//! A column is data: its name, the paths of its values, and the format of its cells. Columns of a custom resource come
//! from its definition, those of a built-in kind from `builtin/kinds.yaml`.

use super::fields::{display_value, text};
use super::media::Form;
use super::resource::Resource;
use super::store::Object;
use jiff::Timestamp;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    /// For each path its number, or else the count of its values, such as `1/2`.
    Ratio,
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
    /// Like [`Cell::Text`], unless the object is being deleted.
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

/// Column in a definition, or in `builtin/kinds.yaml`, which has `cell` and `at` instead of `type` and `jsonPath`.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Given {
    name: String,
    r#type: String,
    format: String,
    description: String,
    priority: i64,
    #[serde(skip_serializing, rename = "jsonPath")]
    json_path: Option<String>,
    #[serde(skip_serializing)]
    cell: Cell,
    #[serde(skip_serializing)]
    at: Vec<String>,
}

impl TryFrom<Given> for Column {
    type Error = String;

    fn try_from(mut given: Given) -> Result<Self, String> {
        if given.r#type.is_empty() {
            given.r#type = "string".into();
        }
        let cell = if given.r#type == "date" { Cell::Age } else { given.cell };
        let parse = |path: &String| parse_path(path).ok_or_else(|| format!("column {}: no path {path}", given.name));
        let paths = given.json_path.iter().chain(&given.at).map(parse).collect::<Result<_, _>>()?;
        Ok(Column { definition: json!(given), paths, cell })
    }
}

/// Parses a JSON path of a definition, such as `.status.conditions[?(@.type=="Ready")].status`.
pub(crate) fn parse_path(text: &str) -> Option<JpQuery> {
    let path = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    parse_json_path(&format!("${path}")).ok().filter(|_| path.starts_with(['.', '[']))
}

impl Column {
    /// Returns the name column, which is the first in each table of a custom resource.
    pub(crate) fn name() -> Option<Self> {
        let path = Some(".metadata.name".into());
        Given { name: "Name".into(), format: "name".into(), json_path: path, ..Given::default() }.try_into().ok()
    }

    pub(crate) fn cell(&self, object: &Value) -> Value {
        let paths = self.paths.iter().map(|path| js_path_process(path, object).unwrap_or_default());
        let paths: Vec<Vec<&Value>> = paths.map(|found| found.into_iter().map(|found| found.val()).collect()).collect();
        let all = || paths.iter().flatten().copied();
        let words = || all().map(display_value).filter(|word| !word.is_empty());
        let amount = |path: &Vec<&Value>| match path.first().and_then(|value| value.as_i64()) {
            Some(number) => number.to_string(),
            None => path.len().to_string(),
        };
        let or_none = |text: String| Value::from(if text.is_empty() { "<none>".to_owned() } else { text });
        match self.cell {
            Cell::Value => match all().next() {
                Some(value) if self.definition["type"] == "string" && !value.is_null() => display_value(value).into(),
                value => value.cloned().unwrap_or_default(),
            },
            Cell::Age => match (words().next(), all().next()) {
                (None, Some(Value::Null) | None) if self.definition["type"] == "date" => Value::Null,
                (time, _) => age(&time.unwrap_or_default()),
            },
            Cell::PodStatus if !text(object, "/metadata/deletionTimestamp").is_empty() => "Terminating".into(),
            Cell::Text | Cell::PodStatus => words().next().unwrap_or_default().trim().into(),
            Cell::Number => all().find_map(Value::as_i64).unwrap_or(0).into(),
            Cell::Ratio => paths.iter().map(amount).collect::<Vec<_>>().join("/").into(),
            Cell::Size => all().count().into(),
            Cell::Sum => all().filter_map(Value::as_i64).sum::<i64>().to_string().into(),
            Cell::List => or_none(words().collect::<Vec<_>>().join(",")),
            Cell::Pairs | Cell::Object => {
                let seconds = paths.get(1).into_iter().flatten().cycle();
                let pairs = paths.first().into_iter().flatten().zip(seconds);
                let pairs = pairs.map(|(first, second)| format!("{}/{}", display_value(first), display_value(second)));
                let pairs = pairs.collect::<Vec<_>>().join(",");
                or_none(if self.cell == Cell::Object { pairs.to_lowercase() } else { pairs })
            }
        }
    }
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

/// Object data in rows, in addition to cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// Returns an object in the requested form. `columns` is false if the stream has already sent a table's columns.
pub(crate) fn represent(resource: &Resource, object: &Object, form: Form, columns: bool) -> Value {
    match form {
        Form::Plain => resource.full(&object.value),
        Form::Partial => partial(object),
        Form::Table(include) => {
            let metadata = json!({"resourceVersion": object.version.to_string()});
            table(resource, std::iter::once(object), metadata, include, columns)
        }
    }
}

/// Builds a table of objects. `columns` is false if the stream has already sent the columns.
pub(crate) fn table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Object>,
    metadata: Value,
    include: Include,
    columns: bool,
) -> Value {
    let row = |object: &Object| {
        let cells: Vec<Value> = resource.rules.columns.iter().map(|column| column.cell(&object.value)).collect();
        let object = match include {
            Include::Nothing => Value::Null,
            Include::Metadata => partial(object),
            Include::Object => resource.full(&object.value),
        };
        json!({"cells": cells, "object": object})
    };
    let rows: Vec<Value> = objects.map(row).collect();
    let definitions: Vec<_> =
        resource.rules.columns.iter().filter(|_| columns).map(|column| &column.definition).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

/// Returns the metadata of an object as a PartialObjectMetadata.
pub(crate) fn partial(object: &Object) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.value["metadata"]})
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
