//! Compaction of the head of a waiting request.
//!
//! # Why
//!
//! The values and the target of an HTTP/1 head are slices of the read buffer and keep all of it alive: 8 KiB for a few
//! hundred bytes. A copy needs only the bytes themselves, and frees the buffer for the next connection. Over HTTP/2
//! only the target is such a slice, of a buffer that also holds other data of the connection.
//!
//! # Not here
//!
//! Header names, and HTTP/2 values, which are copies already. A target with a scheme other than `http` and `https`: the
//! head stays unchanged. An HTTP/1 head larger than the buffer: the connection keeps the memory it was read into.

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{Request, Version};

/// Size of hyper's buffers for heads.
const BUFFER: usize = 8192;

/// Copies the request's head and releases the buffer that it was read into.
pub(super) fn compact<B>(request: &mut Request<B>) {
    let target = request.uri();
    let authority = target.authority().map_or("", Authority::as_str).len();
    let target = authority + target.path_and_query().map_or("", PathAndQuery::as_str).len();
    if request.version() >= Version::HTTP_2 {
        copy_target(request, &mut BytesMut::with_capacity(target));
        return;
    }
    let head = target + request.headers().values().map(HeaderValue::len).sum::<usize>();
    if head <= BUFFER {
        let mut room = BytesMut::with_capacity(head);
        copy_target(request, &mut room);
        copy_values(request.headers_mut(), &mut room);
    }
}

fn copy_values(fields: &mut HeaderMap, room: &mut BytesMut) {
    for value in fields.values_mut() {
        // Always valid, because the original was.
        if let Ok(mut copied) = HeaderValue::from_maybe_shared(in_room(value.as_bytes(), room)) {
            copied.set_sensitive(value.is_sensitive());
            *value = copied;
        }
    }
}

fn copy_target<B>(request: &mut Request<B>, room: &mut BytesMut) {
    if let Some(target) = copied_target(request.uri(), room) {
        *request.uri_mut() = target;
    }
}

fn copied_target(target: &Uri, room: &mut BytesMut) -> Option<Uri> {
    let mut parts = target.clone().into_parts();
    if let Some(authority) = &mut parts.authority {
        *authority = Authority::from_maybe_shared(in_room(authority.as_str().as_bytes(), room)).ok()?;
    }
    if let Some(path) = &mut parts.path_and_query {
        *path = PathAndQuery::from_maybe_shared(in_room(path.as_str().as_bytes(), room)).ok()?;
    }
    Uri::from_parts(parts).ok()
}

/// Copies bytes to the end of the buffer and returns the copy.
fn in_room(bytes: &[u8], room: &mut BytesMut) -> Bytes {
    room.extend_from_slice(bytes);
    room.split().freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::COOKIE;

    /// Returns a request with slices of one buffer, as hyper makes it, and the buffer.
    fn read(target: &str) -> (Request<()>, Bytes) {
        let buffer = Bytes::from(format!("{target}first second").into_bytes());
        let at = target.len();
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_maybe_shared(buffer.slice(..at)).expect("a target");
        let value = |range| HeaderValue::from_maybe_shared(buffer.slice(range)).expect("text");
        request.headers_mut().append(COOKIE, value(at..at + 5));
        request.headers_mut().append(COOKIE, value(at + 6..at + 12));
        (request, buffer)
    }

    /// Goal: a head stays equal. It releases its buffer, unless it is larger than the buffer and so is not copied.
    #[test]
    fn a_compacted_head_is_equal_and_releases_its_buffer() {
        let copied = ["/path?query=value", "/", "*", "http://host.example:80/path", "host.example:80"];
        let large = format!("/{}", "p".repeat(BUFFER));
        for (target, is_copied) in copied.map(|target| (target, true)).into_iter().chain([(large.as_str(), false)]) {
            let (mut request, buffer) = read(target);
            let before = request.uri().clone();
            compact(&mut request);
            assert_eq!(*request.uri(), before);
            drop(before);
            let values: Vec<_> = request.headers().get_all(COOKIE).iter().collect();
            assert_eq!(values, ["first", "second"], "{target}");
            assert_eq!(buffer.is_unique(), is_copied, "{target}");
        }
    }

    #[test]
    fn only_the_target_of_an_http2_head_is_copied() {
        let (mut request, buffer) = read("/path");
        *request.version_mut() = Version::HTTP_2;
        let target = request.uri().path().as_ptr();
        let values: Vec<_> = request.headers().values().map(|value| value.as_bytes().as_ptr()).collect();
        compact(&mut request);
        assert_ne!(request.uri().path().as_ptr(), target);
        assert!(request.headers().values().map(|value| value.as_bytes().as_ptr()).eq(values));
        request.headers_mut().clear();
        assert!(buffer.is_unique());
    }
}
