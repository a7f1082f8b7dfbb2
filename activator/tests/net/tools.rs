//! Third-party clients: curl, nghttp2's h2load and nghttp, tokio-tungstenite, with features that few clients use.
//! `.ci/run` installs the programs.

use crate::protocols::{PAIRS, Pair};
use crate::rig::{self, AnyBody, Pod, patient};
use bytes::Bytes;
use common::backend::Protocol;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Runs a program to its end, and returns its output.
async fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).kill_on_drop(true);
    let ended = patient(command.output()).await;
    let output = ended.unwrap_or_else(|error| panic!("{program} cannot be run ({error}); .ci/run installs it"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

async fn counting() -> Pod {
    Pod::start(|request: Request<Incoming>| async move {
        let version = request.version();
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        Response::new(rig::full(format!("{} bytes over {version:?}", body.len())))
    })
    .await
}

/// Goal: curl works in each of its protocols, without uploads, and with uploads with and without `Expect`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_is_served() {
    let pod = counting().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path").to_owned();
    std::fs::write(&path, vec![b'x'; 3 << 20]).expect("its content");
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let rig = Pair { client: Protocol::Http1, pod: protocol }.start(&pod).await;
        let url = format!("http://{}/", rig.address);
        let over = if protocol == Protocol::Http1 { "HTTP/1.1" } else { "HTTP/2.0" };
        for version in ["--http1.0", "--http1.1", "--http2-prior-knowledge", "--http2"] {
            let common = ["-sS", "--max-time", "15", version, "-H", "Host: app.ns"];
            let plain = run("curl", &[&common[..], &[&url]].concat()).await;
            assert_eq!(plain, format!("0 bytes over {over}"), "{version}");
            if version == "--http1.0" {
                let upload = run("curl", &[&common[..], &["-T", &path, &url]].concat()).await;
                assert_eq!(upload, format!("{} bytes over {over}", 3 << 20), "{version}");
                continue; // HTTP/1.0 supports neither chunks nor expectations.
            }
            let expecting = ["--expect100-timeout", "12", "-H", "Expect: 100-continue"];
            let expecting = if version == "--http1.1" { &expecting[..] } else { &[] };
            for coding in ["X-Length: known", "Transfer-Encoding: chunked"] {
                if coding.starts_with("Transfer") && version != "--http1.1" {
                    continue; // Not part of HTTP/2.
                }
                let upload = run("curl", &[&common[..], expecting, &["-H", coding, "-T", &path, &url]].concat()).await;
                assert_eq!(upload, format!("{} bytes over {over}", 3 << 20), "{version} {coding}");
            }
            if version == "--http2-prior-knowledge" {
                continue; // Debian 12's curl cannot reuse such a connection; h2load does.
            }
            let twice = run("curl", &[&common[..], &["-w", "|%{num_connects}|", &url, &url]].concat()).await;
            assert!(twice.ends_with("|0|"), "{version}: {twice}");
        }
    }
}

/// Goal: a WebSocket passes messages of all kinds and sizes in both directions, and its closing handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_messages_pass_in_both_directions() {
    let pod = Pod::start(|mut request: Request<Incoming>| async move {
        let key = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let io = TokioIo::new(upgraded.await.expect("upgraded"));
            let mut socket = tokio_tungstenite::WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() || message.is_binary() {
                    socket.send(message).await.expect("open");
                }
            }
        });
        let mut response = rig::switching_to("websocket");
        response.headers_mut().insert("sec-websocket-accept", key.parse().expect("a value"));
        response
    })
    .await;
    let rig = Pair { client: Protocol::Http1, pod: Protocol::Http1 }.start(&pod).await;
    let stream = rig.raw().await;
    let (mut socket, _) = patient(tokio_tungstenite::client_async("ws://app.ns/chat", stream)).await.expect("agreed");
    for message in [Message::text("hello"), Message::binary(vec![7; 1 << 20]), Message::text("")] {
        socket.send(message.clone()).await.expect("open");
        assert_eq!(patient(socket.next()).await.expect("open").expect("whole"), message);
    }
    rig.until(|load| load.in_flight == 1).await;
    socket.close(None).await.expect("open");
    while let Some(Ok(message)) = patient(socket.next()).await {
        assert!(message.is_close(), "{message:?}");
    }
    drop(socket);
    rig.until(|load| load.in_flight == 0).await;
}

/// Goal: with many streams and many connections at once, in all four pairs, every request gets a response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_loses_nothing() {
    let pod = counting().await;
    for pair in PAIRS {
        let rig = pair.start(&pod).await;
        let at = format!("--connect-to={}", rig.address);
        let protocol: &[&str] = if pair.client == Protocol::Http1 { &["--h1"] } else { &["-m", "40"] };
        let text = run("h2load", &[&["-n", "1000", "-c", "8", &at], protocol, &["http://app.ns/"]].concat()).await;
        assert!(text.contains("1000 succeeded, 0 failed, 0 errored, 0 timeout"), "{pair:?}: {text}");
        assert!(text.contains("1000 2xx"), "{pair:?}: {text}");
    }
}

/// `hello\n` in gzip.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\x00\x20\x30\x3a\x36\x06\x00\x00\x00";

/// Starts a pod that returns the request line and the length of the body. A few paths have special responses.
async fn features() -> Pod {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rare_features_of_curl_pass() {
    let pod = features().await;
    let rig = PAIRS[0].start(&pod).await;
    let url = format!("http://{}", rig.address);
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
    let rig = PAIRS[2].start(&pod).await;
    let url = format!("http://{}", rig.address);
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
