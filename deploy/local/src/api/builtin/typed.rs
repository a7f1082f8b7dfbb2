//! Bodies read as the published types of Kubernetes.

use crate::api::openapi::describe;
use crate::api::resource::Model;
use k8s_openapi::schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A model that reads bodies as `T`.
pub(super) fn typed<T: DeserializeOwned + Serialize + JsonSchema>() -> Model {
    Model::Typed { decode: decode::<T>, describe: describe::<T> }
}

/// Reads a body as `T`; what is wrong is named by its field.
pub(super) fn decode<T: DeserializeOwned + Serialize>(mut value: Value) -> Result<Value, String> {
    quantities(&mut value);
    let typed: T = serde_path_to_error::deserialize(value).map_err(|error| error.to_string())?;
    let mut value = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    Ok(value)
}

/// Quantities may be written as numbers; the types know them as text alone.
fn quantities(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match (key.as_str(), value) {
                    ("limits" | "requests" | "hard" | "capacity" | "allocatable", Value::Object(amounts)) => {
                        amounts.values_mut().filter(|amount| amount.is_number()).for_each(|amount| {
                            *amount = amount.to_string().into();
                        });
                    }
                    (_, value) => quantities(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quantities),
        _ => {}
    }
}
