//! Objects as rows for people: the `Table` that kubectl prints, and `PartialObjectMetadata`.

use serde_json::{Value, json};

use super::media::Form;
use super::resource::Resource;
use super::store::Object;

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
