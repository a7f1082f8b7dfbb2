//! Objects as rows for people: the `Table` that kubectl prints, and `PartialObjectMetadata`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::meta::text;
use super::patch::full;
use super::resource::Resource;
use super::store::Object;

/// How a built-in resource is printed.
#[derive(Debug)]
pub(crate) struct Printer {
    /// Names of the columns, and whether only wide output shows them (1) or all (0).
    pub(crate) columns: &'static [(&'static str, u8)],
    /// The cells of one object.
    pub(crate) row: fn(&Value) -> Vec<Value>,
}

/// What rows carry beside their cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    Nothing,
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
}

/// A table of objects; `columns` are left out where a stream has sent them before.
pub(crate) fn table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Object>,
    metadata: Value,
    include: Include,
    columns: bool,
) -> Value {
    let rows: Vec<Value> = objects.map(|object| row(resource, object, include)).collect();
    let definitions = if columns { definitions(resource) } else { Vec::new() };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

const PLAIN: Printer = Printer {
    columns: &[("Name", 0), ("Age", 0)],
    row: |object| vec![object["metadata"]["name"].clone(), age(text(object, "/metadata/creationTimestamp"))],
};

fn definitions(resource: &Resource) -> Vec<Value> {
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
    if let Some(model) = resource.custom() {
        return std::iter::once(name).chain(model.columns.iter().map(|column| column.definition.clone())).collect();
    }
    let printer = resource.rules.printer.unwrap_or(&PLAIN);
    let column = |(name, priority): &(&str, u8)| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({"name": name, "type": "string", "format": format, "description": "", "priority": priority})
    };
    printer.columns.iter().map(column).collect()
}

fn row(resource: &Resource, object: &Object, include: Include) -> Value {
    let value = &object.value;
    let cells = match resource.custom() {
        Some(model) => {
            let cells = model.columns.iter().map(|column| match column.path.find(value) {
                None | Some(Value::Null) => Value::Null,
                Some(found) if column.date => age(found.as_str().unwrap_or_default()),
                Some(found) if column.definition["type"] == "string" && !found.is_string() => found.to_string().into(),
                Some(found) => found.clone(),
            });
            std::iter::once(value["metadata"]["name"].clone()).chain(cells).collect()
        }
        None => (resource.rules.printer.unwrap_or(&PLAIN).row)(value),
    };
    let mut row = json!({"cells": cells});
    match include {
        Include::Nothing => row["object"] = Value::Null,
        Include::Metadata => row["object"] = partial(object),
        Include::Object => row["object"] = full(resource, object),
    }
    row
}

/// The metadata of an object, as an object of its own.
pub(crate) fn partial(object: &Object) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.value["metadata"]})
}

/// How long ago a time was, for people: `5s`, `3m20s`, `2d`.
pub(crate) fn age(time: &str) -> Value {
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
