//! Parses the heads of responses.

use super::Malformed;
use super::decoder::Decoder;
use crate::body::EndsConnection;
use crate::hop_by_hop::elements;
use crate::limits::{FIELDS_MAX, HEAD_MAX};
use bytes::BytesMut;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Number of fields that suffices for nearly every head. A head with more fields is parsed again, with room on the
/// heap.
const FIELDS_USUAL: usize = 64;

/// Head of a response, and how to go on after it.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    /// Status, fields, and the reason phrase if it is not the canonical one.
    pub(crate) head: Response<()>,
    pub(crate) body: Decoder,
    /// Another request may follow on the connection.
    pub(crate) keep_alive: bool,
}

#[derive(Debug)]
pub(crate) enum Head {
    Final(ResponseHead),
    /// Interim response: 1xx, except 101.
    Interim(Response<()>),
}

/// Takes a head from the front of `input`. Returns `None` and leaves `input` as it is if the head is incomplete.
/// `method` is the request's. An error means that the head is malformed or too large, or the end of its body is
/// ambiguous.
pub(crate) fn read_head(input: &mut BytesMut, method: &Method) -> Result<Option<Head>, Malformed> {
    let (mut few, mut many) = ([MaybeUninit::uninit(); FIELDS_USUAL], None);
    let mut parsed = httparse::Response::new(&mut []);
    let mut parser = httparse::ParserConfig::default();
    let mut ended = parser.parse_response_with_uninit_headers(&mut parsed, input, &mut few);
    let is_unusual = ended.is_err();
    if is_unusual {
        // Deviations that proxies must repair (RFC 9112, 5.1 and 5.2), and one that they usually accept.
        parser.allow_spaces_after_header_name_in_responses(true);
        parser.allow_obsolete_multiline_headers_in_responses(true);
        parser.allow_multiple_spaces_in_response_status_delimiters(true);
        let many = many.insert(Box::new_uninit_slice(FIELDS_MAX));
        parsed = httparse::Response::new(&mut []);
        ended = parser.parse_response_with_uninit_headers(&mut parsed, input, many);
    }
    let length = match ended {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_MAX => length,
        Ok(httparse::Status::Partial) if input.len() <= HEAD_MAX => return Ok(None),
        Ok(_) => return Err(Malformed("the head of the response is larger than 400 KiB")),
        Err(_) if input.first() == Some(&0) => return Err(Malformed::HTTP2),
        Err(error) => return Err(Malformed(problem_of(error))),
    };
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Malformed("the response has no valid status code"))?;
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let unusual = parsed.reason.filter(|reason| status.canonical_reason() != Some(reason));
    let reason = unusual.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok());
    // The values share these bytes, so they are split off afterwards.
    let range = |part: &[u8]| range_in(input, part);
    let fields = parsed.headers.iter().map(|field| (range(field.name.as_bytes()), range(field.value)));
    let fields: SmallVec<[(Range<usize>, Range<usize>); 24]> = fields.collect();
    let mut bytes = input.split_to(length);
    if is_unusual {
        fields.iter().for_each(|(_, value)| unfold(&mut bytes[value.clone()]));
    }
    let bytes = bytes.freeze();
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let name = HeaderName::from_bytes(&bytes[name]).map_err(|_| Malformed("invalid field name in the response"))?;
        let value = HeaderValue::from_maybe_shared(bytes.slice(value));
        headers.append(name, value.map_err(|_| Malformed("invalid field value in the response"))?);
    }
    let mut head = Response::new(());
    (*head.status_mut(), *head.version_mut(), *head.headers_mut()) = (status, version, headers);
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Some(Head::Interim(head)));
    }
    let (body, is_faulty) = Decoder::for_response(status, version, method, head.headers_mut())?;
    let keep_alive = is_kept_alive(version, head.headers()) && body != Decoder::UntilClose && !is_faulty;
    if let Some(reason) = reason {
        head.extensions_mut().insert(reason);
    }
    if is_faulty {
        head.extensions_mut().insert(EndsConnection);
    }
    Ok(Some(Head::Final(ResponseHead { head, body, keep_alive })))
}

/// Turns an obsolete folded value into one line.
fn unfold(value: &mut [u8]) {
    value.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
}

/// Returns the position of a part of a head. An empty part may point outside the head.
fn range_in(head: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr().wrapping_sub(head.as_ptr().addr());
    if part.is_empty() { 0..0 } else { start..start + part.len() }
}

/// Reports whether the connection persists (RFC 9112, 9.3): the version's default, unless `Connection` overrides it.
fn is_kept_alive(version: Version, headers: &HeaderMap) -> bool {
    let says = |word: &[u8]| elements(headers, header::CONNECTION).any(|element| element.eq_ignore_ascii_case(word));
    !says(b"close") && (version == Version::HTTP_11 || says(b"keep-alive"))
}

fn problem_of(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::Status => "the response has no status",
        httparse::Error::Version => "the response is not HTTP/1",
        httparse::Error::TooManyHeaders => "the response has more than 1024 fields",
        _ => "the head of the response is malformed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], method: &Method) -> Result<Option<Head>, Malformed> {
        read_head(&mut BytesMut::from(bytes), method)
    }

    fn answer(bytes: &[u8]) -> ResponseHead {
        match read(bytes, &Method::GET) {
            Ok(Some(Head::Final(answer))) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_complete_head_is_removed_from_the_input() {
        let mut input = BytesMut::from(
            b"HTTP/1.1 200 Fine\r\nServer: \r\nSet-Cookie: a=1\r\nset-cookie:b=\xe4 \r\n\r\nbody".as_slice(),
        );
        let Ok(Some(Head::Final(answer))) = read_head(&mut input, &Method::GET) else { panic!("{input:?}") };
        assert_eq!((answer.head.status(), answer.head.version()), (StatusCode::OK, Version::HTTP_11));
        let reason = answer.head.extensions().get::<ReasonPhrase>();
        assert_eq!(reason.map(ReasonPhrase::as_bytes), Some(b"Fine".as_slice()));
        let cookies: Vec<&[u8]> =
            answer.head.headers().get_all("set-cookie").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(cookies, [b"a=1".as_slice(), b"b=\xe4"]);
        assert_eq!(answer.head.headers()["server"], "");
        assert_eq!(input, "body");
    }

    #[test]
    fn an_incomplete_head_stays_in_the_input() {
        let whole = b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n";
        for length in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..length]);
            assert!(matches!(read_head(&mut input, &Method::GET), Ok(None)), "{length}");
            assert_eq!(input, whole[..length]);
        }
        assert!(answer(whole).head.extensions().is_empty(), "the usual words are not kept");
    }

    #[test]
    fn unusual_heads_are_repaired() {
        let answer = answer(b"HTTP/1.1  200  OK\r\na : b\r\nfolded: c\r\n\td\r\ncontent-length: 0\r\n\r\n");
        let headers = answer.head.headers();
        assert_eq!(headers["a"], "b");
        assert_eq!(headers["folded"], "c  \td");
        assert!(answer.keep_alive);
    }

    #[test]
    fn keep_alive_depends_on_version_connection_field_and_body() {
        for (head, keep_alive) in [
            ("HTTP/1.1 204 X", true),
            ("HTTP/1.1 204 X\r\nconnection: x, Close", false),
            ("HTTP/1.1 204 X\r\nconnection: close\r\nconnection: keep-alive", false),
            ("HTTP/1.0 204 X", false),
            ("HTTP/1.0 204 X\r\nconnection: Keep-Alive", true),
            ("HTTP/1.1 200 X", false),
            ("HTTP/1.1 200 X\r\ncontent-length: 0", true),
        ] {
            assert_eq!(answer(format!("{head}\r\n\r\n").as_bytes()).keep_alive, keep_alive, "{head}");
        }
        answer(b"HTTP/1.1 101 X\r\nlink: </a>\r\n\r\n"); // Final, unlike 100 and 103.
    }

    #[test]
    fn a_head_may_have_a_thousand_fields() {
        for count in [1, FIELDS_USUAL, FIELDS_USUAL + 1, 1000, FIELDS_MAX - 1] {
            let fields: String = (0..count).map(|n| format!("x-{n}: {n}\r\n")).collect();
            let head = format!("HTTP/1.1 200 Fine\r\n{fields}content-length: 3\r\n\r\n");
            let answer = answer(head.as_bytes());
            assert_eq!(answer.head.headers().len(), count + 1);
            assert_eq!(answer.head.headers()[format!("x-{}", count - 1)], (count - 1).to_string());
            assert_eq!(answer.body, Decoder::Length(3));
            assert!(matches!(read(&head.as_bytes()[..head.len() - 2], &Method::GET), Ok(None)), "{count}");
        }
    }

    #[test]
    fn malformed_heads_are_rejected() {
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
        let large = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(HEAD_MAX));
        let rows: [(&[u8], &str); 8] = [
            (b"HTTP/2.0 200 OK\r\n\r\n", "the response is not HTTP/1"),
            (b"SSH-2.0-OpenSSH\r\n", "the response is not HTTP/1"),
            (b"HTTP/1.1 2x0 OK\r\n\r\n", "the response has no status"),
            (b"HTTP/1.1 099 OK\r\n\r\n", "the response has no valid status code"),
            (b"HTTP/1.1 200 OK\r\na b: c\r\n\r\n", "the head of the response is malformed"),
            (b"HTTP/1.1 200 OK\r\na: b\r\n\0folded\r\n\r\n", "the head of the response is malformed"),
            (many.as_bytes(), "the response has more than 1024 fields"),
            (large.as_bytes(), "the head of the response is larger than 400 KiB"),
        ];
        for (bytes, problem) in rows {
            let refused = read(bytes, &Method::GET).expect_err(problem);
            assert_eq!(refused.0, problem, "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
        }
        // An incomplete head is also rejected once it is too large.
        assert!(read(&large.as_bytes()[..HEAD_MAX], &Method::GET).is_ok_and(|head| head.is_none()));
        assert!(read(&large.as_bytes()[..=HEAD_MAX], &Method::GET).is_err());
    }
}
