//! Protobuf bodies, as `kubectl create`, `kubectl auth` and `helm` write them, converted to JSON.
//!
//! kubectl requests JSON, but sends the kinds that it knows in Kubernetes' envelope: four magic bytes, then the kind
//! and the object. If the server rejects that, kubectl tries no other format. So this module parses the kinds and
//! fields that common commands write, by a table (`kinds.yaml`). Responses are always JSON. Generated message types
//! would not do: they skip unknown fields, so requested fields would be lost silently.
//!
//! # Edge cases
//!
//! - Go writes each field that is not a pointer, whatever its value. So zero means absent, unless the table marks the
//!   field as optional. An unknown field is skipped if it contains only zeros. Otherwise the whole body is rejected,
//!   with the field's number and its message, so that nothing is lost.
//! - The depth is bounded by the tables, and by [`DEPTH_MAX`] in skipped fields.

#[cfg(test)]
mod tests;

use super::status::{ApiError, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::{self, WireType};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// Content type of such a body.
pub(super) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// First bytes of the envelope.
const MAGIC: &[u8] = b"k8s\0";
/// Maximum depth to which an unknown field is examined.
const DEPTH_MAX: usize = 8;

/// Known kinds and messages.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let read = serde_yaml_ng::from_str(include_str!("protobuf/kinds.yaml"));
    read.unwrap_or_else(|error| unreachable!("{error}, in a file that is part of the program and read by tests"))
});

#[derive(Deserialize)]
struct Table {
    /// Version, kind and message.
    kinds: Vec<(String, String, String)>,
    messages: HashMap<String, BTreeMap<u32, Field>>,
}

/// JSON name, type and count of a field. A type is `Text`, `Number`, `Flag`, `Blob` (bytes, which are base64 in JSON),
/// `Texts` and `Blobs` (maps, whose entries are messages), `Either` (number or text), or the name of a message.
#[derive(Deserialize)]
struct Field(String, String, #[serde(default)] Count);

#[derive(Default, Deserialize)]
enum Count {
    /// Zero means absent.
    #[default]
    One,
    /// Zero is a value.
    Optional,
    Many,
}

/// Value on the wire.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Parses the object in a body.
pub(super) fn read(body: &[u8]) -> Result<Value> {
    let envelope = body.strip_prefix(MAGIC).ok_or_else(|| broken("it does not begin with k8s and a zero byte"))?;
    let (mut types, mut object) = (&b""[..], &b""[..]);
    for field in fields(envelope) {
        match field? {
            (1, raw) => types = raw.bytes()?,
            (2, raw) => object = raw.bytes()?,
            _ => {}
        }
    }
    let types = message("Types", types)?;
    let text = |name: &str| types.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let is_kind = |row: &&(String, String, String)| (row.0 == api_version || row.0.is_empty()) && row.1 == kind;
    let (.., name) = TABLE.kinds.iter().find(is_kind).ok_or_else(|| unsupported(&format!("{api_version} {kind}")))?;
    let mut fields = message(name, object)?;
    fields.extend(types);
    Ok(Value::Object(fields))
}

fn broken(why: &str) -> ApiError {
    ApiError::bad_request(format!("the body cannot be read: {why}"))
}

fn unsupported(what: &str) -> ApiError {
    ApiError::unsupported_media(&format!("application/json (this server cannot read {what} in protobuf)"))
}

/// Parses the message with that name.
fn message(name: &str, bytes: &[u8]) -> Result<Map<String, Value>> {
    let known = TABLE.messages.get(name);
    let mut object = Map::new();
    for field in fields(bytes) {
        let (number, raw) = field?;
        let Some(Field(field, type_name, count)) = known.and_then(|fields| fields.get(&number)) else {
            if is_all_zero(raw, DEPTH_MAX) {
                continue;
            }
            return Err(unsupported(&format!("field {number} of {name}")));
        };
        match (type_name.as_str(), count) {
            ("Texts" | "Blobs", _) => {
                let entry = message(type_name, raw.bytes()?)?;
                let part = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
                put(&mut object, field, Value::Object(Map::new()))[part("key")] = part("value").into();
            }
            (_, Count::One) if is_all_zero(raw, DEPTH_MAX) => {}
            (_, Count::One | Count::Optional) => _ = object.insert(field.clone(), value(type_name, raw)?),
            (_, Count::Many) => {
                let value = value(type_name, raw)?;
                if let Value::Array(items) = put(&mut object, field, Value::Array(Vec::new())) {
                    items.push(value);
                }
            }
        }
    }
    Ok(object)
}

/// Returns the field with that name, and sets it to `empty` if it is missing.
fn put<'a>(object: &'a mut Map<String, Value>, name: &str, empty: Value) -> &'a mut Value {
    object.entry(name.to_owned()).or_insert(empty)
}

/// Parses a single value of a type.
fn value(type_name: &str, raw: Raw<'_>) -> Result<Value> {
    Ok(match type_name {
        // Negative numbers are encoded in two's complement.
        "Number" => Value::from(raw.number()?.cast_signed()),
        "Flag" => Value::from(raw.number()? != 0),
        "Text" => Value::from(raw.text()?),
        "Blob" => Value::from(STANDARD.encode(raw.bytes()?)),
        "Either" => {
            let mut either = message(type_name, raw.bytes()?)?;
            let chosen = if either.contains_key("isText") { "text" } else { "number" };
            either.remove(chosen).unwrap_or_else(|| "".into())
        }
        name => Value::Object(message(name, raw.bytes()?)?),
    })
}

/// Reports whether a value is zero, or a message that contains only zeros.
fn is_all_zero(raw: Raw<'_>, depth: usize) -> bool {
    match raw {
        Raw::Number(number) => number == 0,
        Raw::Bytes(b"") => true,
        Raw::Bytes(bytes) => {
            depth > 0 && fields(bytes).all(|field| field.is_ok_and(|(_, raw)| is_all_zero(raw, depth - 1)))
        }
    }
}

impl<'a> Raw<'a> {
    fn number(self) -> Result<u64> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(broken("bytes where a number should be")),
        }
    }

    fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(broken("a number where bytes should be")),
        }
    }

    fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| broken("a text that is not UTF-8"))
    }
}

/// Returns the fields of a message in their order. The caller stops at an error.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Result<(u32, Raw<'_>)>> {
    std::iter::from_fn(move || (!rest.is_empty()).then(|| field(&mut rest)))
}

fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, Raw<'a>)> {
    let endless = |_| broken("it is cut off, or has a number that does not end");
    let (field, wire) = encoding::decode_key(rest).map_err(endless)?;
    let raw = match wire {
        WireType::Varint => Raw::Number(encoding::decode_varint(rest).map_err(endless)?),
        WireType::LengthDelimited => {
            let length = usize::try_from(encoding::decode_varint(rest).map_err(endless)?).unwrap_or(usize::MAX);
            let (bytes, after) = rest.split_at_checked(length).ok_or_else(|| broken("it is cut off"))?;
            *rest = after;
            Raw::Bytes(bytes)
        }
        // No kind has numbers of fixed width.
        _ => return Err(broken("a field of a type that no kind has")),
    };
    Ok((field, raw))
}
