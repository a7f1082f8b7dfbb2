//! Features of curl and nghttp2's programs that few clients use: each of them must pass.

use crate::protocols::Pair;
use crate::rig::{self, AnyBody, Pod, Rig};
use crate::tools::run;
use bytes::Bytes;
use common::backend::Protocol;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;

/// `hello\n` in gzip.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\x00\x20\x30\x3a\x36\x06\x00\x00\x00";

/// Starts a pod that returns the request line and the length of the body. A few paths have special responses.
async fn pod() -> Pod {
    Pod::start(|request: Request<Incoming>| async move {
        let (head, body) = request.into_parts();
        let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().expect("text")).to_owned();
        match head.uri.path() {
            "/gzip" => with(&[("content-encoding", "gzip")], rig::full(GZIP)),
            "/range" => {
                assert_eq!(header("range"), "bytes=2-4");
                let mut part = with(&[("content-range", "bytes 2-4/6")], rig::full("llo"));
                *part.status_mut() = StatusCode::PARTIAL_CONTENT;
                part
            }
            "/trailers" => {
                let trailers =
                    HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))]);
                let frames = [Ok(Frame::data(Bytes::from_static(b"data"))), Ok(Frame::trailers(trailers))];
                with(&[("trailer", "x-sum")], StreamBody::new(futures::stream::iter(frames)).boxed_unsync())
            }
            _ => {
                let length = header("content-length");
                let body = body.collect().await.expect("whole").to_bytes();
                let text = format!("{} {} of {} length={length}\n", head.method, head.uri, body.len());
                Response::new(rig::full(text))
            }
        }
    })
    .await
}

fn with(fields: &[(&'static str, &str)], body: AnyBody) -> Response<AnyBody> {
    let mut response = Response::new(body);
    for (name, value) in fields {
        response.headers_mut().insert(*name, value.parse().expect("a value"));
    }
    response
}

async fn start(pod: &Pod, client: Protocol) -> (Rig, String) {
    let rig = Pair { client, pod: Protocol::Http1 }.start(pod).await;
    let url = format!("http://{}", rig.address);
    (rig, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rare_features_of_curl_pass() {
    let pod = pod().await;
    let (rig, url) = start(&pod, Protocol::Http1).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, vec![b'x'; 70_000]).expect("its content");
    let path = file.path().to_str().expect("a path");
    let proxy = ["--proxy", &url];
    let (form, upload) = (format!("file=@{path}"), format!("@{path}"));
    // Arguments, path, and expected part of the response or its head.
    let rows: &[(&[&str], &str, &str)] = &[
        (&["-I"], "/", "content-length: "),
        (&["-X", "OPTIONS", "--request-target", "*"], "/", ""),
        (&["-X", "POST"], "/", "POST / of 0 length=0"),
        (&["-X", "PUT"], "/", "PUT / of 0 length=0"),
        (&["-X", "DELETE"], "/", "DELETE / of 0 length=\n"),
        (&["-X", "PURGE"], "/", "PURGE / of 0 length=\n"),
        (&["-X", "GET", "-d", "abc"], "/", "GET / of 3 length=3"),
        (&["--data-binary", &upload], "/", "POST / of 70000 length=70000"),
        (&["-T", path], "/file", "PUT /file of 70000 length=70000"),
        (&["-F", &form], "/", "POST / of 70"),
        (&["--compressed"], "/gzip", "hello\n"),
        (&["-r", "2-4"], "/range", "llo"),
        (&["-i", "-H", "TE: trailers"], "/trailers", "data"),
        (&["--path-as-is"], "/a/../b", "GET /a/../b of 0"),
        (&["--globoff"], "/?q={\"a\":[1]}", "GET /?q={%22a%22:[1]} of 0"),
        (&["--globoff"], "/<a>?caf\u{e9}", "GET /%3Ca%3E?caf%C3%A9 of 0"),
        (&["--http1.0", "-0"], "/", "GET / of 0"),
        (&["-H", "Connection: close, X-Drop", "-H", "X-Drop: 1"], "/", "GET / of 0"),
        (&["-H", "User-Agent:", "-H", "Accept:"], "/", "GET / of 0"),
    ];
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for (arguments, target, expected) in rows {
            let of_http1 = |name: &&str| ["--http1.0", "*", "Connection: close, X-Drop"].contains(name);
            // Over HTTP/2 the target is a field: it passes unchanged, or is refused.
            if version != "--http1.1" && (arguments.iter().any(of_http1) || arguments.contains(&"--globoff")) {
                continue;
            }
            let url = format!("{url}{target}");
            let common = ["-sS", "--max-time", "15", version, "-H", "Host: app.ns"];
            let text = run("curl", &[&common[..], arguments, &[&url]].concat()).await;
            assert!(text.contains(expected), "{version} {arguments:?} {target}: {text}");
        }
    }
    let absolute = run("curl", &[&["-sS", "--max-time", "15"], &proxy[..], &["http://app.ns/a?b"]].concat()).await;
    assert!(absolute.starts_with("GET /a?b of 0"), "{absolute}");
    let trailers =
        run("curl", &["-sS", "-i", "-H", "TE: trailers", "-H", "Host: app.ns", &format!("{url}/trailers")]).await;
    assert!(trailers.contains("x-sum: 7"), "{trailers}");
    let (one, other) = (format!("{url}/1"), format!("{url}/2"));
    let keep_alive = ["-sS", "--http1.0", "-H", "Connection: keep-alive", "-H", "Host: app.ns"];
    let output = run("curl", &[&keep_alive[..], &["-w", "|%{num_connects}|", &one, &other]].concat()).await;
    assert!(output.ends_with("|0|"), "HTTP/1.0 with keep-alive: {output}");
    drop(rig);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rare_features_of_nghttp_and_h2load_pass() {
    let pod = Pod::start(|request: Request<Incoming>| async move {
        assert_eq!(request.version(), Version::HTTP_11);
        let fields = request.headers().len();
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        Response::new(rig::full(format!("{} bytes, {} fields\n", body.len(), if fields > 7 { "many" } else { "few" })))
    })
    .await;
    let (_rig, url) = start(&pod, Protocol::H2c).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, vec![b'x'; 200_000]).expect("its content");
    let path = file.path().to_str().expect("a path");
    let rows: &[(&[&str], &str)] = &[
        (&[], "0 bytes"),
        (&["--continuation"], "0 bytes, many"),
        (&["--padding=200"], "0 bytes"),
        (&["--padding=200", "-d", path], "200000 bytes"),
        (&["-d", path, "--trailer", "x-sum: 7"], "200000 bytes"),
        (&["--no-dep"], "0 bytes"),
        (&["--no-content-length", "-d", path], "200000 bytes"),
        (&["--expect-continue", "-d", path], "200000 bytes"),
        (&["--header-table-size=0"], "0 bytes"),
        (&["--header-table-size=65536", "--encoder-header-table-size=0"], "0 bytes"),
        (&["-w", "1", "-W", "1"], "0 bytes"),
        (&["-m", "20"], "0 bytes"),
        (&["-H", ":method: DELETE"], "0 bytes"),
    ];
    for (arguments, expected) in rows {
        let common = ["--timeout=15", "-H", ":authority: app.ns"];
        let text = run("nghttp", &[&common[..], arguments, &[&url]].concat()).await;
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    let rows: &[&[&str]] = &[
        &["-n", "2000", "-c", "4", "-m", "100"],
        &["-n", "500", "-c", "4", "-m", "10", "-w", "10", "-W", "12"],
        &["-n", "200", "-c", "4", "-m", "10", "-d", path],
        &["-n", "300", "-c", "3", "--header-table-size=0", "--encoder-header-table-size=0"],
        &["-n", "300", "-c", "100", "-r", "50"],
        &["-n", "300", "-c", "4", "-m", "4", "--h1"],
    ];
    for arguments in rows {
        let at = format!("--connect-to={}", url.trim_start_matches("http://"));
        let text = run("h2load", &[*arguments, &[&at, "http://app.ns/"]].concat()).await;
        let is_good = text.contains(" 0 failed, 0 errored, 0 timeout") && !text.contains(" 0 succeeded");
        assert!(is_good, "{arguments:?}: {text}");
    }
}
