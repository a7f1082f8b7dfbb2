//! `wire`: frames in Knative's encoding. They are decoded, and encoded again to the same bytes. `wire_decode`: frames
//! that another encoder could send, including damaged ones.

use common::stat::{Stat, WireStatMessage, WireStatMessages};
use common::wire;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Mismatch;
use crate::compare::{equal, parse, tree};

#[derive(Deserialize)]
struct Case {
    hex: String,
    messages: Value,
}

pub(super) fn check(case: &Value) -> Result<(), Mismatch> {
    let case: Case = parse(case)?;
    let frame = wire::decode(&bytes(&case.hex)?).map_err(|e| Mismatch::Broken(e.to_string()))?;
    let messages: Vec<Value> = frame.messages.iter().map(flat).collect();
    tree("messages", &case.messages, &Value::from(messages))?;
    equal("hex", &case.hex, &hex(&wire::encode(&frame)))?;
    // Also encode from the fields alone, like a sender.
    let built = WireStatMessages { messages: frame.messages.iter().map(rebuilt).collect() };
    equal("hex of the fields", &case.hex, &hex(&wire::encode(&built)))
}

#[derive(Deserialize)]
struct DecodeCase {
    hex: String,
    want_error: bool,
    #[serde(default)]
    messages: Value,
}

pub(super) fn check_decode(case: &Value) -> Result<(), Mismatch> {
    let case: DecodeCase = parse(case)?;
    let frame = wire::decode(&bytes(&case.hex)?);
    equal("want_error", &case.want_error, &frame.is_err())?;
    let messages: Vec<Value> = frame
        .iter()
        .flat_map(|frame| &frame.messages)
        .map(|entry| json!({"namespace": entry.namespace, "name": entry.name, "stat": entry.stat.as_ref().map(fields)}))
        .collect();
    tree("messages", &case.messages, &Value::from(messages))
}

/// Returns an entry as JSON, with the fields of its stat beside its own.
fn flat(entry: &WireStatMessage) -> Value {
    let mut value = entry.stat.as_ref().map_or_else(|| json!({}), fields);
    value["namespace"] = json!(entry.namespace);
    value["name"] = json!(entry.name);
    value
}

/// Returns the fields of a stat under the vectors' names.
fn fields(stat: &Stat) -> Value {
    json!({
        "pod_name": stat.pod_name,
        "average_concurrent_requests": stat.average_concurrent_requests,
        "average_proxied_concurrent_requests": stat.average_proxied_concurrent_requests,
        "request_count": stat.request_count,
        "proxied_request_count": stat.proxied_request_count,
        "process_uptime": stat.process_uptime,
        "timestamp": stat.timestamp,
    })
}

/// Returns the entry with a stat even if it had none.
fn rebuilt(entry: &WireStatMessage) -> WireStatMessage {
    WireStatMessage { stat: Some(entry.stat.clone().unwrap_or_default()), ..entry.clone() }
}

/// Decodes hexadecimal digits.
fn bytes(hex: &str) -> Result<Vec<u8>, Mismatch> {
    let broken = || Mismatch::Broken(format!("{hex:?} is not hexadecimal"));
    if !hex.is_ascii() || !hex.len().is_multiple_of(2) {
        return Err(broken());
    }
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).map_err(|_| broken())).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
