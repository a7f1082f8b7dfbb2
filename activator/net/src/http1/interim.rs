//! An interim response (1xx) of a pod, as it is sent to the client.

use super::request::write_field;
use crate::hop_by_hop::strip_response;
use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_LENGTH, TRAILER};

/// Returns the bytes of an interim response on a client's connection, without hop-by-hop fields, and without a length,
/// which an interim response must not have (RFC 9110, 8.6).
pub(crate) fn interim_bytes(mut interim: Response<()>) -> Bytes {
    strip_response(interim.headers_mut());
    let status = interim.status();
    let mut bytes = Vec::with_capacity(128);
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    bytes.extend_from_slice(b"\r\n");
    for (name, value) in interim.headers().iter().filter(|(name, _)| **name != CONTENT_LENGTH && **name != TRAILER) {
        write_field(name, value.as_bytes(), &mut bytes);
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::interim_bytes;
    use crate::http1::{Head, read_head};
    use bytes::BytesMut;
    use http::Method;

    #[test]
    fn interim_responses_are_written_without_hop_by_hop_fields() {
        let rows: [(&[u8], &[u8]); 4] = [
            (
                b"HTTP/1.1 103 Hint\r\nLink: </a.css>; rel=preload\r\nlink: </b.js>\r\n\r\n",
                b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.js>\r\n\r\n",
            ),
            (
                b"HTTP/1.1 103 X\r\nconnection: x-pod, close\r\nx-pod: 1\r\nkeep-alive: 5\r\nx: \xe4\r\n\r\n",
                b"HTTP/1.1 103 Early Hints\r\nx: \xe4\r\n\r\n",
            ),
            (
                b"HTTP/1.1 102 X\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n",
                b"HTTP/1.1 102 Processing\r\n\r\n",
            ),
            (b"HTTP/1.1 199 X\r\n\r\n", b"HTTP/1.1 199 \r\n\r\n"),
        ];
        for (received, passed) in rows {
            let Ok(Some(Head::Interim(interim))) = read_head(&mut BytesMut::from(received), &Method::GET) else {
                panic!("{}", String::from_utf8_lossy(received));
            };
            assert_eq!(interim_bytes(interim), passed, "{}", String::from_utf8_lossy(received));
        }
    }
}
