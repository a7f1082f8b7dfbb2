//! Frames of the cases, and codes of errors.

pub(super) use crate::frames::*;

pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const FLOW_CONTROL_ERROR: u32 = 3;
pub(super) const STREAM_CLOSED: u32 = 5;
pub(super) const FRAME_SIZE_ERROR: u32 = 6;
pub(super) const REFUSED_STREAM: u32 = 7;
pub(super) const CANCEL: u32 = 8;
pub(super) const COMPRESSION_ERROR: u32 = 9;

/// Payload of the pings that end the cases.
pub(super) const PING_DATA: &[u8; 8] = b"the-case";

/// Returns SETTINGS with these values.
pub(super) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub(super) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub(super) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// Returns PRIORITY of `stream`, which depends on stream `on`.
pub(super) fn priority(stream: u32, on: u32, weight: u8) -> Vec<u8> {
    frame(PRIORITY, 0, stream, &[&on.to_be_bytes()[..], &[weight]].concat())
}

pub(super) fn ping() -> Vec<u8> {
    frame(PING, 0, 0, PING_DATA)
}

/// Returns the header block of a request to the pod, with `path` as a literal.
pub(super) fn request(method: &str, path: &str) -> Vec<u8> {
    [field(":method", method), vec![0x86], field(":path", path), field(":authority", "app.ns")].concat()
}

/// Returns HEADERS that are complete and end their stream.
pub(super) fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
}

/// Returns a complete GET.
pub(super) fn get(stream: u32) -> Vec<u8> {
    headers(stream, &request("GET", "/"))
}

/// Returns a GET that never gets a response.
pub(super) fn held(stream: u32) -> Vec<u8> {
    headers(stream, &request("GET", "/held"))
}

/// Returns the head of a POST.
pub(super) fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &request("POST", "/"))
}

pub(super) fn data(flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(DATA, flags, stream, payload)
}

/// Returns DATA that ends its stream.
pub(super) fn last_data(stream: u32) -> Vec<u8> {
    data(END_STREAM, stream, b"test")
}
