//! Hand-written HTTP/2 for floods: frames, and header blocks in which every byte is chosen.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const UNKNOWN: u8 = 0xfa;
pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// Reference to the newest field of the sender's table, in one byte.
pub(super) const NEWEST: u8 = 0xbe;

/// Largest payload that every peer accepts.
pub(super) const PAYLOAD_MAX: usize = 16 * 1024;

/// Identifier of the setting for the initial window of each stream.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Largest window.
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Sends the connection preface and empty settings.
pub(super) async fn begin(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    hello.extend(frame(SETTINGS, 0, 0, &[]));
    Ok(stream.write_all(&hello).await?)
}

/// Returns the frames that open the windows of the connection and of future streams as far as possible.
pub(super) fn windows_open() -> Vec<u8> {
    let more = frame(WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - 0xffff).to_be_bytes());
    [window_of_streams(WINDOW_MAX), more].concat()
}

/// Returns a SETTINGS frame with the initial window of each stream.
pub(super) fn window_of_streams(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &bytes.to_be_bytes()].concat())
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a whole header block, in as many frames as necessary.
pub(super) fn head(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    let last = block.len().div_ceil(PAYLOAD_MAX).saturating_sub(1);
    let frames = block.chunks(PAYLOAD_MAX).enumerate().map(|(n, piece)| {
        let ends = if n == last { END_HEADERS } else { 0 };
        if n == 0 { frame(HEADERS, flags | ends, stream, piece) } else { frame(CONTINUATION, ends, stream, piece) }
    });
    frames.collect::<Vec<_>>().concat()
}

/// Returns the pseudo-header fields of a request.
pub(super) fn request(method: &str, host: &str, target: &str) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":path", target), (":authority", host)];
    fields.map(|(name, value)| field(name, value.as_bytes())).concat()
}

/// Returns a literal field that enters no table.
pub(super) fn field(name: &str, value: &[u8]) -> Vec<u8> {
    [&[0][..], &text(name.as_bytes()), &text(value)].concat()
}

/// Returns a field that enters the sender's table and is then the newest one.
pub(super) fn entry(size: usize) -> Vec<u8> {
    [&[0x40][..], &text(b"x-a"), &text(&vec![b'v'; size])].concat()
}

/// Encodes a text without Huffman coding: its length, in seven bits of the first byte and of the bytes after it, then
/// its bytes.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut coded = Vec::with_capacity(bytes.len() + 4);
    if bytes.len() < 0x7f {
        coded.push(bytes.len() as u8);
    } else {
        coded.push(0x7f);
        let mut rest = bytes.len() - 0x7f;
        while rest >= 0x80 {
            coded.push(0x80 | (rest % 0x80) as u8);
            rest /= 0x80;
        }
        coded.push(rest as u8);
    }
    coded.extend(bytes);
    coded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7541, C.1.2 (1337 with another prefix), and both sides of the first bound.
    #[test]
    fn lengths_are_encoded_as_hpack_integers() {
        let begins =
            |length: usize| text(&vec![b'v'; length]).into_iter().take_while(|b| *b != b'v').collect::<Vec<_>>();
        assert_eq!(begins(126), [126]);
        assert_eq!(begins(127), [127, 0]);
        assert_eq!(begins(127 + 1306), [127, 0x9a, 0x0a]);
    }

    #[test]
    fn a_long_block_ends_with_the_flag_end_headers() {
        let frames = head(END_STREAM, 3, &[7; 2 * PAYLOAD_MAX]);
        assert_eq!(frames.len(), 2 * (9 + PAYLOAD_MAX));
        assert_eq!(frames[3..9], [HEADERS, END_STREAM, 0, 0, 0, 3]);
        assert_eq!(frames[9 + PAYLOAD_MAX + 3..][..6], [CONTINUATION, END_HEADERS, 0, 0, 0, 3]);
    }
}
