//! Finds the end of a response's body, and decodes its data.

use super::Malformed;
use crate::hop_by_hop::elements;
use crate::limits::TRAILERS_MAX;
use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};
use http_body::{Frame, SizeHint};

/// Maximum length, in bytes, of a line with a chunk's size and extensions.
const SIZE_LINE_MAX: usize = 4 * 1024;

/// Maximum number of fields in trailers.
const TRAILER_FIELDS_MAX: usize = 100;

/// State of a body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoder {
    /// Number of bytes still to come.
    Length(u64),
    Chunked(Chunk),
    /// The body lasts until the connection ends.
    UntilClose,
    Done,
}

/// Next element of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Size,
    /// Number of bytes left of a chunk, at least one.
    Data(u64),
    /// Line end after a chunk.
    End,
    /// Trailers after the last chunk.
    Trailers,
}

impl Decoder {
    /// Returns the decoder for a response with this head to a request with this method. Normalizes the length to one
    /// number.
    ///
    /// Returns true as second value if the framing is faulty (RFC 9112, 6.1): both `Transfer-Encoding` and
    /// `Content-Length` (the latter is removed), or chunks in HTTP/1.0. The connections to the client and to the pod
    /// must then be closed. An error means that the end of the body is ambiguous.
    pub(crate) fn for_response(
        status: StatusCode,
        version: Version,
        method: &Method,
        headers: &mut HeaderMap,
    ) -> Result<(Self, bool), Malformed> {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok((Self::Done, false));
        }
        let is_chunked = headers.contains_key(header::TRANSFER_ENCODING) && is_chunked(headers)?;
        let is_faulty = is_chunked && (version == Version::HTTP_10 || headers.contains_key(header::CONTENT_LENGTH));
        if is_chunked || status == StatusCode::NO_CONTENT {
            headers.remove(header::CONTENT_LENGTH);
        }
        let length = normalize_length(headers)?;
        let body = match length {
            _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || *method == Method::HEAD => {
                Self::Done
            }
            _ if is_chunked => Self::Chunked(Chunk::Size),
            None => Self::UntilClose,
            Some(0) => Self::Done,
            Some(length) => Self::Length(length),
        };
        Ok((body, is_faulty))
    }

    pub(crate) fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// Takes the complete body if its length is known, it is not empty, and `input` begins with all of it.
    pub(crate) fn take_whole(&mut self, input: &mut BytesMut) -> Option<Bytes> {
        match self {
            Self::Length(left) if *left <= input.len() as u64 => {
                let whole = take(input, left);
                *self = Self::Done;
                whole
            }
            _ => None,
        }
    }

    /// Takes data or trailers from the front of `input`. Returns `None` if there are none yet, or no more. An error
    /// means that the chunks are malformed, or a size line or the trailers are too long.
    pub(crate) fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, Malformed> {
        match self {
            Self::Length(left) => {
                let data = take(input, left);
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(data.map(Frame::data))
            }
            Self::UntilClose => Ok((!input.is_empty()).then(|| Frame::data(input.split().freeze()))),
            Self::Chunked(_) => self.decode_chunks(input),
            Self::Done => Ok(None),
        }
    }

    fn decode_chunks(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, Malformed> {
        let mut data = None;
        while let Self::Chunked(next) = self {
            let after = match next {
                Chunk::Size => read_size(input)?,
                Chunk::Data(_) if data.is_some() => None, // It gets its own frame.
                Chunk::Data(left) => {
                    data = take(input, left).map(Frame::data);
                    (*left == 0).then_some(Chunk::End)
                }
                Chunk::End => match input.first_chunk() {
                    Some(b"\r\n") => {
                        input.advance(2);
                        Some(Chunk::Size)
                    }
                    Some(_) => return Err(Malformed("a chunk of the response is longer than its size states")),
                    None => None,
                },
                Chunk::Trailers if data.is_some() && !input.starts_with(b"\r\n") => None,
                Chunk::Trailers => match read_trailers(input)? {
                    Some(trailers) => {
                        *self = Self::Done;
                        let trailers = (!trailers.is_empty()).then(|| Frame::trailers(trailers));
                        return Ok(data.or(trailers));
                    }
                    None => None,
                },
            };
            match after {
                Some(after) => *next = after,
                None => break,
            }
        }
        Ok(data)
    }

    /// Returns the remaining length of the data, as far as it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Done => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunked(_) | Self::UntilClose => SizeHint::default(),
        }
    }
}

/// Takes up to `left` bytes from the front of `input`, if there are any.
fn take(input: &mut BytesMut, left: &mut u64) -> Option<Bytes> {
    let length = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
    *left -= length as u64;
    (length > 0).then(|| input.split_to(length).freeze())
}

/// Takes the line with a chunk's size, and returns the element that follows.
fn read_size(input: &mut BytesMut) -> Result<Option<Chunk>, Malformed> {
    const PROBLEM: Malformed = Malformed("a chunk of the response has no valid size");
    if !input.first().is_none_or(u8::is_ascii_hexdigit) {
        return Err(PROBLEM);
    }
    match httparse::parse_chunk_size(input) {
        Ok(httparse::Status::Complete((length, size))) if length <= SIZE_LINE_MAX => {
            input.advance(length);
            Ok(Some(if size == 0 { Chunk::Trailers } else { Chunk::Data(size) }))
        }
        Ok(httparse::Status::Partial) if input.len() <= SIZE_LINE_MAX => Ok(None),
        Ok(_) => Err(Malformed("the line with the size of a chunk of the response is longer than 4 KiB")),
        Err(_) => Err(PROBLEM),
    }
}

/// Takes the trailers up to and including the empty line.
fn read_trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, Malformed> {
    const PROBLEM: Malformed = Malformed("the trailers of the response are malformed");
    let mut fields = [httparse::EMPTY_HEADER; TRAILER_FIELDS_MAX];
    let (length, trailers) = match httparse::parse_headers(input, &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) if length <= TRAILERS_MAX => {
            let mut trailers = HeaderMap::with_capacity(fields.len());
            for field in fields {
                let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| PROBLEM)?;
                trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| PROBLEM)?);
            }
            (length, trailers)
        }
        Ok(httparse::Status::Partial) if input.len() <= TRAILERS_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Malformed("the trailers of the response exceed 100 fields or 16 KiB"));
        }
        Err(_) => return Err(PROBLEM),
    };
    input.advance(length);
    Ok(Some(trailers))
}

/// Returns true if the response is chunked. `identity` means that no coding was applied (RFC 2616, 4.4; removed in
/// RFC 7230).
fn is_chunked(headers: &HeaderMap) -> Result<bool, Malformed> {
    let codings = elements(headers, header::TRANSFER_ENCODING);
    let mut codings = codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Malformed("the Transfer-Encoding of the response is not exactly one chunked coding")),
    }
}

/// Returns the length in a head, if there is one, and normalizes it to one field with one number.
fn normalize_length(headers: &mut HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(None) };
    let is_plain = lengths.next().is_none() && first.as_bytes().iter().all(u8::is_ascii_digit);
    let length = one_length(headers).ok_or(Malformed("the Content-Length of the response is not one number"))?;
    if !is_plain {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(Some(length))
}

/// Returns the `Content-Length` if all values agree and consist of digits only. One field may hold several equal values
/// (RFC 9112, 6.3).
pub(super) fn one_length(headers: &HeaderMap) -> Option<u64> {
    let mut agreed = None;
    for length in elements(headers, header::CONTENT_LENGTH) {
        let digits = str::from_utf8(length).ok().filter(|_| length.iter().all(u8::is_ascii_digit))?;
        let length: u64 = digits.parse().ok()?;
        if *agreed.get_or_insert(length) != length {
            return None;
        }
    }
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_head_determines_the_end_of_the_body() {
        const LENGTH: (&str, &str) = ("content-length", "5");
        const CHUNKED: (&str, &str) = ("transfer-encoding", "Chunked");
        const IDENTITY: (&str, &str) = ("transfer-encoding", "identity");
        let chunked = Decoder::Chunked(Chunk::Size);
        // The `Ok` rows also have the resulting length in the head, and the flag for faulty framing.
        type Expected<'a> = Result<(Decoder, &'a str, bool), &'a str>;
        type Row<'a> = (u16, Version, Method, &'a [(&'static str, &'static str)], Expected<'a>);
        let rows: [Row<'_>; 22] = [
            (200, Version::HTTP_11, Method::GET, &[LENGTH], Ok((Decoder::Length(5), "5", false))),
            (200, Version::HTTP_11, Method::GET, &[LENGTH, LENGTH], Ok((Decoder::Length(5), "5", false))),
            (200, Version::HTTP_11, Method::GET, &[("content-length", "5, 5")], Ok((Decoder::Length(5), "5", false))),
            (200, Version::HTTP_11, Method::GET, &[("content-length", "0")], Ok((Decoder::Done, "0", false))),
            (200, Version::HTTP_11, Method::GET, &[CHUNKED], Ok((chunked, "", false))),
            (200, Version::HTTP_11, Method::GET, &[("transfer-encoding", "chunked, ")], Ok((chunked, "", false))),
            (200, Version::HTTP_11, Method::GET, &[], Ok((Decoder::UntilClose, "", false))),
            (200, Version::HTTP_11, Method::GET, &[IDENTITY], Ok((Decoder::UntilClose, "", false))),
            (200, Version::HTTP_11, Method::GET, &[IDENTITY, LENGTH], Ok((Decoder::Length(5), "5", false))),
            (200, Version::HTTP_10, Method::GET, &[LENGTH], Ok((Decoder::Length(5), "5", false))),
            (200, Version::HTTP_11, Method::HEAD, &[LENGTH, LENGTH], Ok((Decoder::Done, "5", false))),
            (204, Version::HTTP_11, Method::GET, &[LENGTH], Ok((Decoder::Done, "", false))),
            (304, Version::HTTP_11, Method::GET, &[LENGTH], Ok((Decoder::Done, "5", false))),
            (101, Version::HTTP_11, Method::GET, &[CHUNKED, LENGTH], Ok((Decoder::Done, "5", false))),
            (200, Version::HTTP_10, Method::GET, &[CHUNKED], Ok((chunked, "", true))),
            (200, Version::HTTP_11, Method::GET, &[LENGTH, CHUNKED], Ok((chunked, "", true))),
            (200, Version::HTTP_11, Method::HEAD, &[LENGTH, CHUNKED], Ok((Decoder::Done, "", true))),
            (200, Version::HTTP_11, Method::HEAD, &[CHUNKED, CHUNKED], Err("one chunked coding")),
            (200, Version::HTTP_11, Method::GET, &[("transfer-encoding", "gzip, chunked")], Err("one chunked coding")),
            (200, Version::HTTP_11, Method::GET, &[LENGTH, ("content-length", "6")], Err("Content-Length")),
            (200, Version::HTTP_11, Method::GET, &[("content-length", "5, 6")], Err("Content-Length")),
            (304, Version::HTTP_11, Method::GET, &[("content-length", "5, 6")], Err("Content-Length")),
        ];
        for (status, version, method, fields, expected) in rows {
            let (status, mut headers) = (StatusCode::from_u16(status).expect("a status"), headers(fields));
            let decoder = Decoder::for_response(status, version, &method, &mut headers);
            match expected {
                Ok((body, length, is_faulty)) => {
                    assert_eq!(decoder, Ok((body, is_faulty)), "{status} {version:?} {method} {fields:?}");
                    let lengths = headers.get_all("content-length").iter().map(HeaderValue::as_bytes);
                    assert_eq!(lengths.collect::<Vec<_>>().concat(), length.as_bytes(), "{status} {method} {fields:?}");
                }
                Err(problem) => {
                    assert!(decoder.is_err_and(|error| error.0.contains(problem)), "{status} {method} {fields:?}");
                }
            }
        }
        for length in ["", "+5", "-5", "5x", "0x5", "5,", "5 6", "99999999999999999999"] {
            let mut headers = headers(&[("content-length", length)]);
            let decoder = Decoder::for_response(StatusCode::OK, Version::HTTP_11, &Method::GET, &mut headers);
            assert!(decoder.is_err(), "{length:?}");
        }
    }

    /// Data, trailers if any, remaining input, and the final state.
    type Decoded = (Vec<u8>, Option<HeaderMap>, Vec<u8>, Decoder);

    fn decoded(bytes: &[u8], part: usize) -> Result<Decoded, Malformed> {
        let mut decoder = Decoder::Chunked(Chunk::Size);
        let (mut input, mut data, mut trailers) = (BytesMut::new(), Vec::new(), None);
        for bytes in bytes.chunks(part) {
            input.extend_from_slice(bytes);
            while let Some(frame) = decoder.decode(&mut input)? {
                assert!(trailers.is_none(), "nothing follows trailers");
                match frame.into_data() {
                    Ok(bytes) => data.extend_from_slice(&bytes),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
            }
        }
        Ok((data, trailers, input.to_vec(), decoder))
    }

    #[test]
    fn chunks_are_decoded_however_they_are_split() {
        let bytes = b"3\r\nabc\r\nA ;ext=\"1\"\r\n0123456789\r\n00\r\nx-sum: 1\r\nx-sum: 2\r\n\r\nrest";
        for part in 1..=bytes.len() {
            let (data, trailers, rest, decoder) = decoded(bytes, part).expect("well-formed");
            assert_eq!((data.as_slice(), decoder), (b"abc0123456789".as_slice(), Decoder::Done), "{part}");
            assert_eq!(trailers.map(|trailers| trailers.get_all("x-sum").iter().count()), Some(2), "{part}");
            assert_eq!(rest, b"rest", "{part}");
        }
        let (data, trailers, rest, decoder) = decoded(b"1\r\na\r\n0\r\n\r\n", 100).expect("well-formed");
        assert_eq!((data, trailers, rest, decoder), (vec![b'a'], None, Vec::new(), Decoder::Done));
    }

    /// Goal: a body whose end arrives with its last data is known to be complete, so that its connection is returned
    /// early.
    #[test]
    fn the_end_is_detected_with_the_last_data() {
        let mut decoder = Decoder::Chunked(Chunk::Size);
        let mut input = BytesMut::from("1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
        assert!(decoder.decode(&mut input).is_ok_and(|frame| frame.is_some()));
        assert!(!decoder.is_done());
        assert!(decoder.decode(&mut input).is_ok_and(|frame| frame.is_some()));
        assert!(decoder.is_done() && input.is_empty());
        let mut decoder = Decoder::Length(2);
        let mut input = BytesMut::from("abc");
        assert!(decoder.decode(&mut input).is_ok_and(|frame| frame.is_some()));
        assert!(decoder.is_done() && input == "c");
    }

    #[test]
    fn malformed_chunks_are_rejected_however_they_are_split() {
        let long_line = format!("1;{}\r\n", "x".repeat(SIZE_LINE_MAX));
        let large = format!("0\r\na: {}\r\n\r\n", "b".repeat(TRAILERS_MAX));
        let many = format!("0\r\n{}\r\n", "a: b\r\n".repeat(TRAILER_FIELDS_MAX + 1));
        let rows: [&[u8]; 12] = [
            b"\r\n",
            b"x\r\n",
            b";ext\r\n",
            b"-1\r\na\r\n",
            b"1 1\r\na\r\n",
            b"1\ra\r\n",
            b"1\nab\r\n",
            b"11111111111111111\r\na",
            b"1\r\nab\r\n",
            b"0\r\nno field\r\n\r\n",
            long_line.as_bytes(),
            large.as_bytes(),
        ];
        for bytes in rows.into_iter().chain([many.as_bytes()]) {
            for part in [1, bytes.len()] {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
                assert!(decoded(bytes, part).is_err(), "{text:?} in parts of {part}");
            }
        }
    }
}
