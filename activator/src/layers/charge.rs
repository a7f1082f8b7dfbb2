//! Memory charge of a waiting request, in bytes, against the budget of the process.
//!
//! | part | bytes |
//! |---|---|
//! | HTTP/1 connection | [`FRESH`]; [`REUSED`] if it had a response before, because its buffers were written to |
//! | HTTP/2 stream | [`STREAM`]: its task and its place in the connection |
//! | header map | [`NAME`] for each name of its capacity, [`FURTHER`] for each further value of a name |
//! | names, values, target | their lengths |
//! | HTTP/2 body | bytes that the client may send before they are read: its length, at most [`STREAM_WINDOW`] |
//!
//! The charge of a head is at least the memory allocated for it (see the tests). It is larger if headers share bytes,
//! as those from the HPACK table do. `faults flood` shows the resident memory of a process beside its charges.
//!
//! # Responses
//!
//! A large response head ([`response_head`]) is charged to the same share until it is written: a pod sends it in a
//! moment, but a client may read it as slowly as it likes. Such a charge cannot wait, so beyond the share the request
//! fails.
//!
//! # Not here
//!
//! Kernel buffers, and connections without a waiting request.

use activator_net::{Prepared, STREAM_WINDOW};
use http::{HeaderMap, Request, Uri, Version};
use http_body::Body;

/// HTTP/1 connection without an earlier response: measured 10.5 to 10.8 KiB (`held` in the benchmarks), including the
/// request's head.
pub(super) const FRESH: u64 = 10 * 1024;

/// HTTP/1 connection with an earlier response: measured 18 to 20 KiB.
pub(super) const REUSED: u64 = 19 * 1024;

pub(super) const STREAM: u64 = 4 * 1024;

/// Name in the header map, with its first value and its index entry.
const NAME: u64 = 112;
/// Further value of a name, including the spare capacity of a vector that doubles.
const FURTHER: u64 = 144;

/// Size up to which a response head is not charged: over HTTP/1, and over HTTP/2, where a connection has many streams.
const RESPONSE_FREE: u64 = 16 * 1024;
const RESPONSE_FREE_STREAM: u64 = 8 * 1024;

/// Returns the charge of a waiting request. `is_subsequent`: it is not the first of its connection.
pub(super) fn charge<B: Body>(request: &Request<B>, is_subsequent: bool) -> u64 {
    of_parts(request.version(), (request.uri(), request.headers()), request.body(), is_subsequent)
}

/// Returns the charge of a request that is being sent to a pod, from a client of this version.
pub(super) fn charge_of(client: Version, prepared: &Prepared, is_subsequent: bool) -> u64 {
    let head = &prepared.head;
    of_parts(client, (&head.uri, &head.headers), &prepared.body, is_subsequent)
}

fn of_parts(client: Version, (target, fields): (&Uri, &HeaderMap), unsent: &impl Body, is_subsequent: bool) -> u64 {
    let connection = match (client < Version::HTTP_2, is_subsequent) {
        (true, false) => FRESH,
        (true, true) => REUSED,
        (false, _) => STREAM,
    };
    connection + head(target, fields) + body(client, unsent)
}

/// Returns the charge of a response head until it is written, if the head is large.
pub(super) fn response_head(head: &HeaderMap, client: Version) -> Option<u64> {
    let free = if client < Version::HTTP_2 { RESPONSE_FREE } else { RESPONSE_FREE_STREAM };
    let size = fields(head);
    (size > free).then_some(size)
}

fn head(target: &Uri, map: &HeaderMap) -> u64 {
    let authority = target.authority().map_or(0, |authority| authority.as_str().len());
    let path = target.path_and_query().map_or(0, |path| path.as_str().len());
    fields(map) + (authority + path) as u64
}

fn fields(map: &HeaderMap) -> u64 {
    let further = map.len() - map.keys_len();
    let texts: usize = map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    map.capacity() as u64 * NAME + further as u64 * FURTHER + texts as u64
}

/// Returns the bytes of the body that may arrive before they are read. Over HTTP/1 they stay in the kernel.
fn body(client: Version, unsent: &impl Body) -> u64 {
    if client < Version::HTTP_2 || unsent.is_end_stream() {
        return 0;
    }
    let window = u64::from(STREAM_WINDOW);
    unsent.size_hint().upper().map_or(window, |length| length.min(window))
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocation_counter::measure;
    use bytes::Bytes;
    use http::header::{COOKIE, HeaderName, HeaderValue};
    use http_body::Frame;
    use http_body_util::{Empty, Full, StreamBody};
    use std::convert::Infallible;
    use std::iter::repeat_n;

    /// Returns a value as the HTTP/2 parser makes it: in an allocation of its own, unless it comes from a table.
    fn value(length: usize) -> HeaderValue {
        HeaderValue::from_bytes(&vec![b'v'; length]).expect("text")
    }

    fn named(n: usize) -> HeaderName {
        format!("x-name-{n}").parse().expect("a name")
    }

    fn cookies(values: impl Iterator<Item = HeaderValue>) -> HeaderMap {
        let mut fields = HeaderMap::new();
        values.for_each(|value| _ = fields.append(COOKIE, value));
        fields
    }

    /// Goal: heads of every shape are charged at most twice their memory, unless they share bytes. Method: measure the
    /// bytes that each row's map keeps allocated.
    #[test]
    fn a_head_is_charged_at_least_its_memory() {
        type Make = fn() -> HeaderMap;
        let rows: [(&str, Make); 9] = [
            ("three fields", || (0..3).map(|n| (named(n), value(20))).collect()),
            ("a browser's", || (0..14).map(|n| (named(n), value(60))).collect()),
            ("one large value", || [(COOKIE, value(60_000))].into_iter().collect()),
            ("a thousand fields", || (0..1000).map(|n| (named(n), value(10))).collect()),
            ("sixteen thousand fields", || (0..16_000).map(|n| (named(n), value(1))).collect()),
            ("a name a thousand times", || cookies((0..1000).map(|_| value(100)))),
            ("one field of a table a thousand times", || cookies(repeat_n(value(4000), 1000))),
            ("a short field of a table sixteen thousand times", || cookies(repeat_n(value(16), 16_000))),
            ("fields of a table under names of their own", || {
                let indexed = value(2000);
                (0..200).map(|n| (named(n), indexed.clone())).collect()
            }),
        ];
        for (name, make) in rows {
            let mut map = HeaderMap::new();
            let size = u64::try_from(measure(|| map = make()).bytes_current).expect("no less than before");
            let (charged, shares_texts) = (fields(&map), name.contains("table"));
            assert!(charged >= size, "{name}: charged {charged}, size {size}");
            assert!(shares_texts || charged <= 2 * size, "{name}: charged {charged}, size {size}");
        }
    }

    #[test]
    fn connections_and_bodies_are_charged_by_protocol() {
        fn request<B>(version: Version, body: B) -> Request<B> {
            let mut request = Request::new(body);
            *request.version_mut() = version;
            *request.uri_mut() = Uri::from_static("/");
            request
        }
        let sized = |size: usize| Full::new(Bytes::from(vec![0; size]));
        let unsized_body = || StreamBody::new(futures::stream::empty::<Result<Frame<Bytes>, Infallible>>());
        let rows = [
            (charge(&request(Version::HTTP_11, Empty::<Bytes>::new()), false), FRESH + 1),
            (charge(&request(Version::HTTP_10, sized(9)), true), REUSED + 1),
            (charge(&request(Version::HTTP_2, Empty::<Bytes>::new()), true), STREAM + 1),
            (charge(&request(Version::HTTP_2, sized(100)), false), STREAM + 101),
            (charge(&request(Version::HTTP_2, sized(1 << 20)), false), STREAM + 1 + u64::from(STREAM_WINDOW)),
            (charge(&request(Version::HTTP_2, unsized_body()), false), STREAM + 1 + u64::from(STREAM_WINDOW)),
            (charge(&request(Version::HTTP_11, unsized_body()), false), FRESH + 1),
        ];
        for (n, (charged, expected)) in rows.into_iter().enumerate() {
            assert_eq!(charged, expected, "row {n}");
        }
    }
}
