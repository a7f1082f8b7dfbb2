//! Bodies in protobuf, as `kubectl create`, `kubectl auth` and `helm` write them: read into the JSON that everything
//! else works on.
//!
//! kubectl asks for JSON but sends the kinds that it knows in Kubernetes' envelope: four bytes of magic, then the kind
//! and the object. A server that refuses them is of no use to it, since it tries nothing else. So the kinds and fields
//! that everyday commands write are read, by a table (`kinds.yaml`); answers are JSON, as ever. Derived messages would not do:
//! they pass over a field that they do not have, and what somebody asked for would be lost in silence.
//!
//! # Odd cases
//!
//! - Go writes each field that is no pointer, whatever its value. Zero therefore means absent, unless the table calls the
//!   field optional; and a field that it does not have is passed over if it holds nothing but zeros. One that says
//!   something is never lost: the body is refused as a whole, by the field's number and its message.
//! - Depth is bounded by the tables', and by [`DEPTH_MAX`] in what is passed over.

#[cfg(test)]
mod tests;

use super::status::{ApiError, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// What such a body is called.
pub(super) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// How it begins.
const MAGIC: &[u8] = b"k8s\0";
/// How deep a field that no table has is looked into.
const DEPTH_MAX: usize = 8;

/// What is read.
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

/// Name in JSON, what it holds, and how often.
#[derive(Deserialize)]
struct Field(String, Type, #[serde(default)] Count);

#[derive(Deserialize)]
#[serde(from = "String")]
enum Type {
    Text,
    Number,
    Flag,
    /// From text to text.
    Texts,
    /// From text to bytes, in base 64 as JSON has them.
    Blobs,
    /// A number or a text.
    Either,
    Message(String),
}

impl From<String> for Type {
    fn from(name: String) -> Self {
        match name.as_str() {
            "Text" => Type::Text,
            "Number" => Type::Number,
            "Flag" => Type::Flag,
            "Texts" => Type::Texts,
            "Blobs" => Type::Blobs,
            "Either" => Type::Either,
            _ => Type::Message(name),
        }
    }
}

#[derive(Default, Deserialize)]
enum Count {
    /// Zero is absent.
    #[default]
    One,
    /// Zero is a value.
    Optional,
    Many,
}

/// A value on the wire.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Why a body cannot be read.
#[derive(Debug, PartialEq, Eq)]
enum Unreadable {
    /// It is cut off, or something else altogether.
    Broken(&'static str),
    /// It is more than is read here.
    Unknown(String),
}

type Read<T> = std::result::Result<T, Unreadable>;

/// The object of a body.
pub(super) fn read(body: &[u8]) -> Result<Value> {
    object(body).map_err(|unreadable| match unreadable {
        Unreadable::Broken(why) => ApiError::bad_request(format!("the body cannot be read: {why}")),
        Unreadable::Unknown(what) => ApiError::unsupported_media(&format!("application/json; not in protobuf: {what}")),
    })
}

fn object(body: &[u8]) -> Read<Value> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Unreadable::Broken("it does not begin with k8s and a zero byte"))?;
    let (mut types, mut object) = (&b""[..], &b""[..]);
    for field in fields(envelope) {
        match field? {
            (1, Raw::Bytes(bytes)) => types = bytes,
            (2, Raw::Bytes(bytes)) => object = bytes,
            _ => {}
        }
    }
    let types = message("Types", types)?;
    let of = |name: &str| types.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (of("apiVersion"), of("kind"));
    let is_meant = |of: &&(String, String, String)| (of.0 == api_version || of.0.is_empty()) && of.1 == kind;
    let (.., name) =
        TABLE.kinds.iter().find(is_meant).ok_or_else(|| Unreadable::Unknown(format!("{api_version} {kind}")))?;
    let mut fields = message(name, object)?;
    fields.extend(types);
    Ok(Value::Object(fields))
}

/// Reads the message of that name.
fn message(name: &str, bytes: &[u8]) -> Read<Map<String, Value>> {
    let known = TABLE.messages.get(name);
    let mut object = Map::new();
    for field in fields(bytes) {
        let (number, raw) = field?;
        let Some(Field(field, of, count)) = known.and_then(|fields| fields.get(&number)) else {
            if says_nothing(raw, DEPTH_MAX) {
                continue;
            }
            return Err(Unreadable::Unknown(format!("field {number} of {name}")));
        };
        match (of, count) {
            (Type::Texts | Type::Blobs, _) => {
                let (key, value) = entry(of, raw.bytes()?)?;
                put(&mut object, field, Value::Object(Map::new()))[key] = value;
            }
            (_, Count::One) if says_nothing(raw, DEPTH_MAX) => {}
            (_, Count::One | Count::Optional) => _ = object.insert(field.clone(), of.read(raw)?),
            (_, Count::Many) => {
                let value = of.read(raw)?;
                if let Value::Array(items) = put(&mut object, field, Value::Array(Vec::new())) {
                    items.push(value);
                }
            }
        }
    }
    Ok(object)
}

/// The field of that name, which is `empty` if it is not there.
fn put<'a>(object: &'a mut Map<String, Value>, name: &str, empty: Value) -> &'a mut Value {
    object.entry(name.to_owned()).or_insert(empty)
}

impl Type {
    fn read(&self, raw: Raw<'_>) -> Read<Value> {
        Ok(match self {
            // Negative numbers are written as what two's complement makes of them.
            Self::Number => Value::from(raw.number()?.cast_signed()),
            Self::Flag => Value::from(raw.number()? != 0),
            Self::Text => Value::from(raw.text()?),
            Self::Either => either(raw.bytes()?)?,
            Self::Message(name) => Value::Object(message(name, raw.bytes()?)?),
            Self::Texts | Self::Blobs => return Err(Unreadable::Broken("a map is no single value")),
        })
    }
}

/// One entry of a map: a message of key and value.
fn entry(of: &Type, bytes: &[u8]) -> Read<(String, Value)> {
    let (mut key, mut value) = (String::new(), &b""[..]);
    for field in fields(bytes) {
        match field? {
            (1, raw) => key = raw.text()?.to_owned(),
            (2, raw) => value = raw.bytes()?,
            _ => {}
        }
    }
    let value = match of {
        Type::Blobs => Value::from(STANDARD.encode(value)),
        _ => Value::from(Raw::Bytes(value).text()?),
    };
    Ok((key, value))
}

/// A message that says of which type it is, and holds a value of each.
fn either(bytes: &[u8]) -> Read<Value> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    for field in fields(bytes) {
        match field? {
            (1, raw) => is_text = raw.number()? == 1,
            (2, raw) => number = raw.number()?.cast_signed(),
            (3, raw) => text = raw.text()?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

/// Whether a value is zero, or a message of nothing but such.
fn says_nothing(raw: Raw<'_>, depth: usize) -> bool {
    match raw {
        Raw::Number(number) => number == 0,
        Raw::Bytes(b"") => true,
        Raw::Bytes(bytes) => {
            depth > 0 && fields(bytes).all(|field| field.is_ok_and(|(_, raw)| says_nothing(raw, depth - 1)))
        }
    }
}

impl<'a> Raw<'a> {
    fn number(self) -> Read<u64> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(Unreadable::Broken("bytes where a number should be")),
        }
    }

    fn bytes(self) -> Read<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Unreadable::Broken("a number where bytes should be")),
        }
    }

    fn text(self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable::Broken("a text that is not UTF-8"))
    }
}

/// The fields of a message, in the order in which they stand; after an error there is nothing more.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Read<(u32, Raw<'_>)>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Read<(u32, Raw<'a>)> {
    let key = number(rest)?;
    let field = u32::try_from(key >> 3).map_err(|_| Unreadable::Broken("a field with too high a number"))?;
    let raw = match key & 7 {
        0 => Raw::Number(number(rest)?),
        2 => {
            let length = usize::try_from(number(rest)?).unwrap_or(usize::MAX);
            let (bytes, after) = rest.split_at_checked(length).ok_or(Unreadable::Broken("it is cut off"))?;
            *rest = after;
            Raw::Bytes(bytes)
        }
        // No kind has numbers of fixed width.
        _ => return Err(Unreadable::Broken("a field of a type that no kind has")),
    };
    Ok((field, raw))
}

/// A number of variable length: seven bits in each byte, the lowest first.
fn number(rest: &mut &[u8]) -> Read<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(Unreadable::Broken("it is cut off"))?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Unreadable::Broken("a number that does not end"))
}
