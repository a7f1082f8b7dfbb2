//! HTTP/2 in bytes: frames, header blocks of literals, and a client that writes frame by frame.

use crate::rig::{Rig, patient};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns the bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Frame that was received.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Returns the error code at this offset of the payload, or `u32::MAX`.
    pub(crate) fn code(&self, at: usize) -> u32 {
        self.payload.get(at..at + 4).map_or(u32::MAX, |code| u32::from_be_bytes(code.try_into().expect("four")))
    }
}

pub(crate) async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await?;
    let [high, middle, low, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
    from.read_exact(&mut payload).await?;
    Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
}

/// Reads up to the next HEADERS, and returns their stream.
pub(crate) async fn next_stream(from: &mut (impl AsyncRead + Unpin)) -> io::Result<u32> {
    loop {
        let frame = read_frame(from).await?;
        if frame.kind == HEADERS {
            return Ok(frame.stream);
        }
    }
}

/// Returns a literal header field that is not indexed, with a new name (RFC 7541, 6.2.2).
pub(crate) fn field(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    let length =
        |text: &[u8]| [u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a length of one byte")];
    let (name, value) = (name.as_ref(), value.as_ref());
    [&[0][..], &length(name), name, &length(value), value].concat()
}

/// Returns a header block of such fields.
pub(crate) fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// Client connection on which HTTP/2 is written frame by frame.
pub(crate) struct Frames {
    stream: TcpStream,
}

impl Frames {
    /// Connects, and sends preface and settings.
    pub(crate) async fn open(rig: &Rig) -> Self {
        let mut frames = Self { stream: rig.raw().await };
        frames.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
        frames
    }

    /// Writes as much as the peer accepts. Returns whether it accepts everything.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        patient(self.stream.write_all(bytes)).await.is_ok()
    }

    /// Returns the next frame; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        patient(read_frame(&mut self.stream)).await.ok()
    }

    /// Returns whether the peer answers a PING instead of ending the connection.
    pub(crate) async fn is_open(&mut self) -> bool {
        self.send(&frame(PING, 0, 0, &[0; 8])).await;
        while let Some(frame) = self.next().await {
            if frame.kind == PING {
                return true;
            }
        }
        false
    }

    /// Returns the error code that ends `stream` or the connection, `u32::MAX` if the connection is closed without one,
    /// and `None` if the request gets a response.
    pub(crate) async fn verdict(&mut self, stream: u32) -> Option<u32> {
        while let Some(frame) = self.next().await {
            match frame.kind {
                RST_STREAM if frame.stream == stream => return Some(frame.code(0)),
                GOAWAY => return Some(frame.code(4)),
                HEADERS | DATA if frame.stream == stream => return None,
                _ => {}
            }
        }
        Some(u32::MAX)
    }
}
