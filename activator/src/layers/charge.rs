//! What a request that waits keeps in memory, in bytes: what it is charged of the process's budget.
//!
//! | part | bytes |
//! |---|---|
//! | a connection over HTTP/1 | [`FRESH`]; [`AGAIN`] if it had an answer before, since its buffers were written to |
//! | a stream of HTTP/2 | [`STREAM`]: its task and its place in the connection |
//! | the map of fields | [`NAME`] for each name that it has room for, [`FURTHER`] for each further value of one |
//! | names, values, target | their lengths |
//! | a body over HTTP/2 | what the client may send before anybody reads: its length, at most [`STREAM_WINDOW`] |
//!
//! A head is charged no less than is allocated for it (the tests below), and more where fields share a text, as those do
//! that HPACK's table has. `faults flood` shows a process's resident memory beside its charges.
//!
//! # Answers
//!
//! A large head of an answer ([`answer`]) is charged to the same share until it is written: a pod sends it in a moment, a
//! client may read it for as long as it likes. There is nothing to wait for: beyond the share the request fails.
//!
//! # Not here
//!
//! Buffers in the kernel, and a connection that waits for nothing.

use activator_net::{Prepared, STREAM_WINDOW};
use http::{HeaderMap, Request, Uri, Version};
use http_body::Body;

/// A connection over HTTP/1 that had no answer yet: measured 10.5 to 10.8 KiB (`held` in the benchmarks), the request's head
/// included.
pub(super) const FRESH: u64 = 10 * 1024;

/// A connection over HTTP/1 that had one: measured 18 to 20 KiB.
pub(super) const AGAIN: u64 = 19 * 1024;

/// A stream of HTTP/2.
pub(super) const STREAM: u64 = 4 * 1024;

/// A name in the map, with its first value and its place in the index.
const NAME: u64 = 112;
/// A further value of a name, with what a vector that doubles leaves free.
const FURTHER: u64 = 144;

/// What an answer's head may keep without being charged: over HTTP/1, and over HTTP/2, where a connection has many.
const ANSWER_FREE: u64 = 16 * 1024;
const ANSWER_FREE_STREAM: u64 = 8 * 1024;

/// What a request keeps while it waits. `again`: it is not the first of its connection.
pub(super) fn charge<B: Body>(request: &Request<B>, again: bool) -> u64 {
    of_parts(request.version(), (request.uri(), request.headers()), request.body(), again)
}

/// The same for one that is on its way to a pod, from a client of this version.
pub(super) fn charge_of(client: Version, prepared: &Prepared, again: bool) -> u64 {
    let head = prepared.head();
    of_parts(client, (&head.uri, &head.headers), prepared.body(), again)
}

fn of_parts(client: Version, (target, fields): (&Uri, &HeaderMap), unsent: &impl Body, again: bool) -> u64 {
    let connection = match (client < Version::HTTP_2, again) {
        (true, false) => FRESH,
        (true, true) => AGAIN,
        (false, _) => STREAM,
    };
    connection + head(target, fields) + body(client, unsent)
}

/// What an answer's head keeps until it is written, if it is a large one.
pub(super) fn answer(head: &HeaderMap, client: Version) -> Option<u64> {
    let free = if client < Version::HTTP_2 { ANSWER_FREE } else { ANSWER_FREE_STREAM };
    let kept = fields(head);
    (kept > free).then_some(kept)
}

/// The head.
fn head(target: &Uri, map: &HeaderMap) -> u64 {
    let authority = target.authority().map_or(0, |authority| authority.as_str().len());
    let path = target.path_and_query().map_or(0, |path| path.as_str().len());
    fields(map) + (authority + path) as u64
}

/// The map of fields, and their texts.
fn fields(map: &HeaderMap) -> u64 {
    let further = map.len() - map.keys_len();
    let texts: usize = map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    map.capacity() as u64 * NAME + further as u64 * FURTHER + texts as u64
}

/// What may come of the body while nobody reads it. Over HTTP/1 it stays in the kernel.
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

    /// As the parser of HTTP/2 makes them: each name and value in a block of its own, unless it comes from a table.
    fn value(length: usize) -> HeaderValue {
        HeaderValue::from_bytes(&vec![b'v'; length]).expect("text")
    }

    fn named(n: usize) -> HeaderName {
        format!("x-name-{n}").parse().expect("a name")
    }

    /// Goal: heads of every shape are charged no less than they keep, and no more than twice of it, unless they share
    /// texts. Method: what each row's map has allocated and not given back is counted.
    #[test]
    fn a_head_is_charged_what_it_keeps() {
        type Make = fn() -> HeaderMap;
        let rows: [(&str, Make); 9] = [
            ("three fields", || (0..3).map(|n| (named(n), value(20))).collect()),
            ("a browser's", || (0..14).map(|n| (named(n), value(60))).collect()),
            ("one large value", || [(COOKIE, value(60_000))].into_iter().collect()),
            ("a thousand fields", || (0..1000).map(|n| (named(n), value(10))).collect()),
            ("sixteen thousand fields", || (0..16_000).map(|n| (named(n), value(1))).collect()),
            ("a name a thousand times", || {
                let mut fields = HeaderMap::new();
                (0..1000).for_each(|_| _ = fields.append(COOKIE, value(100)));
                fields
            }),
            ("one field of a table a thousand times", || {
                let mut fields = HeaderMap::new();
                let indexed = value(4000);
                (0..1000).for_each(|_| _ = fields.append(COOKIE, indexed.clone()));
                fields
            }),
            ("a short one of a table sixteen thousand times", || {
                let mut fields = HeaderMap::new();
                let indexed = value(16);
                (0..16_000).for_each(|_| _ = fields.append(COOKIE, indexed.clone()));
                fields
            }),
            ("fields of a table under names of their own", || {
                let indexed = value(2000);
                (0..200).map(|n| (named(n), indexed.clone())).collect()
            }),
        ];
        for (name, make) in rows {
            let mut map = HeaderMap::new();
            let kept = u64::try_from(measure(|| map = make()).bytes_current).expect("no less than before");
            let (charged, shares_texts) = (fields(&map), name.contains("table"));
            assert!(charged >= kept, "{name}: charged {charged}, kept {kept}");
            assert!(shares_texts || charged <= 2 * kept, "{name}: charged {charged}, kept {kept}");
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
        let of_no_length = || StreamBody::new(futures::stream::empty::<Result<Frame<Bytes>, Infallible>>());
        let rows = [
            (charge(&request(Version::HTTP_11, Empty::<Bytes>::new()), false), FRESH + 1),
            (charge(&request(Version::HTTP_10, sized(9)), true), AGAIN + 1),
            (charge(&request(Version::HTTP_2, Empty::<Bytes>::new()), true), STREAM + 1),
            (charge(&request(Version::HTTP_2, sized(100)), false), STREAM + 101),
            (charge(&request(Version::HTTP_2, sized(1 << 20)), false), STREAM + 1 + u64::from(STREAM_WINDOW)),
            (charge(&request(Version::HTTP_2, of_no_length()), false), STREAM + 1 + u64::from(STREAM_WINDOW)),
            (charge(&request(Version::HTTP_11, of_no_length()), false), FRESH + 1),
        ];
        for (n, (charged, expected)) in rows.into_iter().enumerate() {
            assert_eq!(charged, expected, "row {n}");
        }
    }
}
