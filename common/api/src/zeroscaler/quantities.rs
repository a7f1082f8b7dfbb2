//! Quantities in metrics and behavior, written as texts or numbers. An autoscaling/v2 HorizontalPodAutoscaler accepts
//! both.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a value that contains quantities. A quantity of any type becomes a text, which is checked when it is used.
/// Fails if the value does not have the form of `T`.
pub(super) fn deserialize<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let mut value = Value::deserialize(deserializer)?;
    write_as_texts(&mut value, "");
    serde_json::from_value(value).map_err(D::Error::custom)
}

fn write_as_texts(value: &mut Value, parent: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_quantity =
                    name == "tolerance" || parent == "target" && ["value", "averageValue"].contains(&&**name);
                if is_quantity && !value.is_null() && !value.is_string() {
                    *value = value.to_string().into();
                }
                write_as_texts(value, name);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| write_as_texts(item, parent)),
        _ => {}
    }
}

/// Makes a schema accept fractions for quantities: `int-or-string` accepts only whole numbers and texts.
pub(super) fn allow_fractions(schema: &mut JSONSchemaProps) {
    if schema.x_kubernetes_int_or_string.take().is_some() {
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(allow_fractions);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        allow_fractions(items);
    }
}
