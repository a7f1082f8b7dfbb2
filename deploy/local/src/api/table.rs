//! Objects as rows for people: the `Table` that kubectl prints, and `PartialObjectMetadata`.

use serde_json::{Value, json};

use super::fields::text;
use super::printer::{Printer, age};
use super::resource::Resource;
use super::store::Object;

/// What rows carry beside their cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
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
            let cells = model.columns.iter().map(|column| match column.find(value) {
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
        Include::Object => row["object"] = resource.full(&object.value),
    }
    row
}

/// The metadata of an object, as an object of its own.
pub(crate) fn partial(object: &Object) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.value["metadata"]})
}
