//! Quantities of metrics and behavior, written as texts or as numbers: an autoscaling/v2 HorizontalPodAutoscaler takes both.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads what holds quantities. Anything that stands for one becomes a text, which is checked where it is used.
///
/// # Errors
/// It has not the form of `T`.
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

/// Lets a schema have a fraction for a quantity: `int-or-string` stands for whole numbers and texts alone.
pub(super) fn allow_fractions(schema: &mut JSONSchemaProps) {
    if schema.x_kubernetes_int_or_string.take().is_some() {
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(allow_fractions);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        allow_fractions(items);
    }
}
