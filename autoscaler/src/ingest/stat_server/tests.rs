//! Tests of the client's view, on loopback sockets.

use super::*;
use crate::certificate::Certificate;
use crate::ingest::tests::{eventually, within};
use common_runtime::admission::{Demand, GOOD_FOR};
use common_runtime::resolve::Dns;
use common_runtime::websocket::{Config, DurableSender, HANDSHAKE_TIMEOUT};
use futures::SinkExt;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

/// API server's verdict on a token.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// The token belongs to an activator, in this Pod.
    Activator(&'static str),
    /// The token has expired.
    Expired,
    /// No response at all.
    Silent,
}

/// API server that reviews tokens as configured, and records its requests.
#[derive(Clone, Default)]
struct Reviews {
    answers: Arc<Mutex<HashMap<&'static str, Answer>>>,
    reviewed: Arc<Mutex<Vec<String>>>,
}

impl Reviews {
    fn say(&self, token: &'static str, answer: Answer) {
        self.answers.lock().insert(token, answer);
    }

    fn review_count(&self, token: &str) -> usize {
        self.reviewed.lock().iter().filter(|reviewed| *reviewed == token).count()
    }

    fn gate(&self) -> Access {
        let reviews = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| reviews.clone().answer(request));
        let gate = Gate::new(Demand::of_planes("a", "sys", "autoscaler"), kube::Client::new(service, "default"));
        Access { gate: Some(Arc::new(gate)), ..Access::default() }
    }

    async fn answer(self, request: Request<kube::client::Body>) -> Result<Response<kube::client::Body>, Infallible> {
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let token = review["spec"]["token"].as_str().expect("a token");
        self.reviewed.lock().push(token.to_owned());
        let status = match self.answers.lock().get(token).copied().unwrap_or(Answer::Expired) {
            Answer::Activator(pod) => json!({"authenticated": true, "audiences": ["a"], "user": {
                "username": "system:serviceaccount:sys:activator",
                "extra": {"authentication.kubernetes.io/pod-name": [pod]},
            }}),
            Answer::Expired => json!({"error": "token has expired"}),
            Answer::Silent => Value::Null,
        };
        if status.is_null() {
            std::future::pending::<()>().await;
        }
        let body = json!({"spec": {"token": token}, "status": status}).to_string().into_bytes();
        Ok(Response::builder().status(201).body(kube::client::Body::from(body)).expect("a response"))
    }
}

struct Recorder {
    frames: mpsc::UnboundedSender<(Bytes, Origin)>,
}

impl Sink for Recorder {
    fn frame(&self, frame: Bytes, from: &Origin) -> bool {
        let good = !frame.starts_with(b"bad");
        self.frames.send((frame, from.clone())).expect("the test listens");
        good
    }

    fn owns_bucket(&self, name: &str) -> bool {
        name == "autoscaler-bucket-00-of-02"
    }
}

struct Fixture {
    address: SocketAddr,
    frames: mpsc::UnboundedReceiver<(Bytes, Origin)>,
    counters: Counters,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(Access::default()).await
    }

    async fn with(access: Access) -> Self {
        let mut server = StatServer::bind(([127, 0, 0, 1], 0).into()).expect("bind");
        server.access = access;
        let address = server.local_addr().expect("address");
        let (sender, frames) = mpsc::unbounded_channel();
        let (counters, shutdown) = (Counters::default(), CancellationToken::new());
        let sink = Arc::new(Recorder { frames: sender });
        let serving = tokio::spawn(server.serve(sink, counters.clone(), shutdown.clone()));
        Self { address, frames, counters, shutdown, serving }
    }

    /// Returns the counts of bad frames: not binary, undecodable, too large, forbidden.
    fn bad(&self) -> [u64; 4] {
        [BadFrame::NotBinary, BadFrame::Undecodable, BadFrame::TooLarge, BadFrame::Forbidden]
            .map(|reason| self.bad_frames(reason))
    }

    fn bad_frames(&self, reason: BadFrame) -> u64 {
        self.counters.bad_frames.get_or_create(&[("reason", reason)]).get()
    }

    /// Waits for the next frame at the sink.
    async fn frame(&mut self) -> (Bytes, Origin) {
        within(self.frames.recv()).await.expect("a frame")
    }

    async fn connect(&self, header: Option<(&str, &str)>) -> WebSocketStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("connect");
        let uri = format!("ws://{}/any/path", self.address).parse().expect("URI");
        let mut request = ClientRequestBuilder::new(uri);
        if let Some((name, value)) = header {
            request = request.with_header(name, value);
        }
        within(client_async(request, stream)).await.expect("handshake").0
    }

    /// Sends a kubelet's probe, and returns the status of the response.
    async fn probe(&self, path: &str) -> u16 {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: kube-probe/1.36")).await
    }

    /// Sends a request head, and returns the status of the response.
    async fn request(&self, head: &str) -> u16 {
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("write");
        let mut answer = Vec::new();
        while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
            assert_ne!(within(stream.read_buf(&mut answer)).await.expect("read"), 0, "closed without an answer");
        }
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        status.unwrap_or_else(|| panic!("{answer}"))
    }
}

async fn send(client: &mut WebSocketStream<TcpStream>, message: Message) {
    client.send(message).await.expect("send");
}

/// Returns the head of a handshake that ends with `rest`.
fn upgrade(host: &str, rest: &str) -> String {
    let key = generate_key();
    format!(
        "GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}{rest}"
    )
}

/// Returns the head of a binary frame of this length. Its mask of zeros leaves the data unchanged.
fn head(length: usize) -> [u8; 14] {
    let mut head = [0; 14];
    head[..2].copy_from_slice(&[0x82, 0xff]);
    head[2..10].copy_from_slice(&u64::try_from(length).expect("fits").to_be_bytes());
    head
}

/// Goal: binary frames reach the sink with their origin. A frame that is not binary or not decodable is counted, and
/// the connection stays.
#[tokio::test]
async fn frames_reach_the_sink_and_bad_ones_do_not_end_the_connection() {
    let mut fixture = Fixture::new().await;
    let mut client = fixture.connect(None).await;
    send(&mut client, Message::text("not binary")).await;
    for frame in [&b"bad"[..], b"good"] {
        send(&mut client, Message::binary(frame.to_vec())).await;
        let origin = Origin { ip: [127, 0, 0, 1].into(), forwarded: None, pod: None };
        assert_eq!(fixture.frame().await, (Bytes::from_static(frame), origin));
    }
    send(&mut client, Message::Ping(Bytes::from_static(b"still there?"))).await;
    let pong = within(client.next()).await.expect("open").expect("readable");
    assert_eq!(pong, Message::Pong(Bytes::from_static(b"still there?")), "pings are answered");
    assert_eq!(fixture.counters.frames.get(), 2);
    assert_eq!(fixture.bad(), [1, 1, 0, 0], "each by its reason");
}

/// Goal: a frame that is too large, or that the protocol forbids, is counted and ends its own connection only. A peer
/// that disconnects is not hostile.
#[tokio::test]
async fn an_oversized_or_forbidden_frame_is_counted_and_ends_its_connection() {
    let mut fixture = Fixture::new().await;
    let mut open = fixture.connect(None).await;
    let long_ping = [&[0x89, 0xfe, 0, 126, 0, 0, 0, 0][..], &[0; 126]].concat();
    let oversized = [&head(FRAME_MAX + 1)[..], &vec![0; FRAME_MAX + 1]].concat();
    // (bytes after the handshake, oversized and forbidden frames so far)
    for (frame, expected) in [
        (&[0x82, 0x01, 0x00][..], [0, 1]),   // Client frame without a mask.
        (&[0xf2, 0x80, 0, 0, 0, 0], [0, 2]), // Reserved bits.
        (&[0x83, 0x80, 0, 0, 0, 0], [0, 3]), // Unknown opcode.
        (&long_ping, [0, 4]),
        (&[0x82, 0xff], [0, 4]), // Half a head, then nothing.
        (&[], [0, 4]),
        (&oversized, [1, 4]),
    ] {
        let mut stream = fixture.connect(None).await.into_inner();
        let written = within(stream.write_all(frame)).await;
        // The server stops reading an oversized frame as soon as it sees the length, and closes the connection itself.
        if frame.len() <= FRAME_MAX {
            written.expect("written");
            within(stream.shutdown()).await.expect("shut down");
        }
        let mut rest = Vec::new();
        let _ = within(stream.read_to_end(&mut rest)).await; // Closed, or reset.
        let [oversized, forbidden] = expected;
        assert_eq!(fixture.bad(), [0, 0, oversized, forbidden], "{} bytes", frame.len());
    }
    let mut new = fixture.connect(None).await;
    for client in [&mut open, &mut new] {
        send(client, Message::binary(vec![1])).await;
        assert_eq!(&fixture.frame().await.0[..], [1]);
    }
}

/// Goal: probes are handled first, then the bucket's host, then the upgrade with its rejections.
#[tokio::test]
async fn requests_are_answered_in_upstreams_order() {
    let fixture = Fixture::new().await;
    let rows = [
        ("a kubelet's probe", "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: kube-probe/1.36".to_owned(), 200),
        ("a marked probe", "POST /y HTTP/1.1\r\nHost: autoscaler-bucket-01-of-02.ns\r\nK-Kubelet-Probe: q".into(), 200),
        ("a bucket that is not ours", upgrade("autoscaler-bucket-01-of-02.ns.svc:8080", ""), 200),
        ("a bucket without a domain", upgrade("autoscaler-bucket-00-of-02:8080", ""), 200),
        ("our bucket", upgrade("autoscaler-bucket-00-of-02.ns.svc:8080", ""), 101),
        ("any other host", upgrade("10.0.0.1:8080", ""), 101),
        ("the same origin", upgrade("host:1", "\r\nOrigin: http://host:1"), 101),
        ("another origin", upgrade("host:1", "\r\nOrigin: http://evil"), 403),
        ("no upgrade", "GET / HTTP/1.1\r\nHost: x".into(), 400),
        ("another upgrade", upgrade("x", "").replace("websocket\r", "h2c\r"), 426),
        ("another method", upgrade("x", "").replace("GET", "POST"), 405),
        ("another version", upgrade("x", "").replace(": 13", ": 12"), 400),
        ("a short key", upgrade("x", "").replace("-Key: ", "-Key: short"), 400),
    ];
    for (what, head, status) in rows {
        assert_eq!(fixture.request(&head).await, status, "{what}");
    }
}

/// Goal: a readiness probe succeeds once the process can act; a liveness probe succeeds at once.
#[tokio::test]
async fn a_server_is_ready_once_its_process_can_act() {
    let can_act = CancellationToken::new();
    let waiting = Fixture::with(Access { can_act: Some(can_act.clone()), ..Access::default() }).await;
    for (path, status) in [("/", 200), ("/ready", 503), ("/ready?x", 503), ("/readyz", 200)] {
        assert_eq!(waiting.probe(path).await, status, "{path} before");
    }
    can_act.cancel();
    for path in ["/", "/ready"] {
        assert_eq!(waiting.probe(path).await, 200, "{path} after");
    }
    assert_eq!(Fixture::new().await.probe("/ready").await, 200, "nothing to wait for");
}

/// Goal: on shutdown the port is closed, every client receives 1012 `Restarting`, and the server ends when they are
/// gone.
#[tokio::test]
async fn shutdown_closes_every_connection_with_restarting() {
    let fixture = Fixture::new().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(fixture.connect(None).await);
    }
    fixture.shutdown.cancel();
    for client in &mut clients {
        let close = within(client.next()).await.expect("open").expect("readable");
        let Message::Close(Some(frame)) = close else { panic!("{close:?}") };
        assert_eq!((frame.code, frame.reason.as_str()), (CloseCode::Restart, "Restarting"));
        while let Some(Ok(_)) = within(client.next()).await {}
    }
    within(fixture.serving).await.expect("ends");
    assert!(TcpStream::connect(fixture.address).await.is_err(), "the port is closed");
    assert_eq!(fixture.counters.connections.get(), 0);
}

/// Goal: frames arrive over TLS as usual. A plain connection is rejected and counted, except probes, unless plain is
/// allowed.
#[tokio::test]
async fn stats_are_accepted_over_tls() {
    let (certificate, until) = (Certificate::new("autoscaler.sys.svc"), CancellationToken::new());
    for allow_plain in [false, true] {
        let config = certificate.server(&until).await;
        let tls = Some(StatServerTls { config, allow_plain });
        let mut fixture = Fixture::with(Access { tls, ..Access::default() }).await;
        let trust = certificate.trust("autoscaler.sys.svc", &until).await;
        let url = format!("wss://{}", fixture.address);
        let config = Config { trust: Some(trust), ..Config::default() };
        let link = DurableSender::start(vec![url], Arc::new(Dns), config, until.clone()).expect("valid URL");
        within(link.connected().wait_for(|connected| *connected)).await.expect("alive");
        within(link.send(Bytes::from_static(b"good"))).await.expect("sent");
        assert_eq!(&fixture.frame().await.0[..], b"good");

        assert_eq!(fixture.probe("/").await, 200);
        let (status, refused) = if allow_plain { (101, 0) } else { (400, 1) };
        assert_eq!(fixture.request(&upgrade("x", "")).await, status);
        assert_eq!(fixture.counters.tls_refusals.get(), refused);
        fixture.shutdown.cancel();
    }
    until.cancel();
}

/// Goal: handshakes of a client that rejects the certificate, and of one that sends garbage, are counted.
#[tokio::test]
async fn failed_tls_handshakes_are_counted() {
    let (ours, theirs, stop) = (Certificate::new("a"), Certificate::new("a"), CancellationToken::new());
    let config = ours.server(&stop).await;
    let tls = Some(StatServerTls { config, allow_plain: false });
    let fixture = Fixture::with(Access { tls, ..Access::default() }).await;
    let stream = TcpStream::connect(fixture.address).await.expect("connect");
    let error = within(theirs.trust("a", &stop).await.connect(stream)).await.expect_err("not trusted").to_string();
    assert!(error.contains("invalid peer certificate") && error.contains("must contain the name a"), "{error}");
    let mut nonsense = TcpStream::connect(fixture.address).await.expect("connect");
    nonsense.write_all(&[0x16, 0x03, 0x01, 0x00, 0x04, 1, 2, 3, 4]).await.expect("write");
    let mut rest = Vec::new();
    let _ = within(nonsense.read_to_end(&mut rest)).await;
    eventually("counted", || fixture.counters.tls_refusals.get() == 2).await;
    stop.cancel();
}

/// Goal: a connection stays open when its token expires, because it still speaks for its Pod; no new one is opened.
#[tokio::test]
async fn an_expired_token_ends_no_connection_and_opens_none() {
    let reviews = Reviews::default();
    reviews.say("young", Answer::Activator("a-0"));
    let mut fixture = Fixture::with(reviews.gate()).await;
    let mut client = fixture.connect(Some(("authorization", "Bearer young"))).await;
    send(&mut client, Message::binary(vec![1])).await;
    assert_eq!(fixture.frame().await.1.pod.as_deref(), Some("a-0"));

    reviews.say("young", Answer::Expired);
    tokio::time::pause();
    tokio::time::advance(GOOD_FOR).await;
    tokio::time::resume();
    assert_eq!(fixture.request(&upgrade("x", "\r\nAuthorization: Bearer young")).await, 401);
    send(&mut client, Message::binary(vec![1])).await;
    assert_eq!(fixture.frame().await.1.pod.as_deref(), Some("a-0"), "still the pod's");
    assert_eq!(reviews.review_count("young"), 2, "once for each handshake, never for a frame");
}

/// Goal: a handshake with a slow token review delays no other connection, and gets 503 before its peer gives up.
#[tokio::test]
async fn a_slow_review_delays_its_own_handshake_alone() {
    let reviews = Reviews::default();
    reviews.say("slow", Answer::Silent);
    reviews.say("good", Answer::Activator("a-0"));
    let fixture = Fixture::with(reviews.gate()).await;
    let slow = upgrade("x", "\r\nAuthorization: Bearer slow");
    let (status, ()) = tokio::join!(fixture.request(&slow), async {
        eventually("reviewed", || reviews.review_count("slow") > 0).await;
        assert_eq!(fixture.request(&upgrade("x", "\r\nAuthorization: Bearer good")).await, 101);
        tokio::time::pause();
        tokio::time::advance(HANDSHAKE_TIMEOUT - Duration::from_millis(1)).await;
        tokio::time::resume();
    });
    assert_eq!(status, 503);
}

/// Goal: silent connections block no probe and no activator, and existing streams stay. Method: eight times as many
/// connections as the limit before the upgrade.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_block_no_probe_and_no_activator() {
    common_runtime::descriptor::raise_limit();
    let mut fixture = Fixture::new().await;
    let mut before = fixture.connect(None).await;
    let mut silent = Vec::new();
    for n in 0..8192 {
        silent.push(TcpStream::connect(fixture.address).await.expect("connect"));
        if n % 1024 == 1023 {
            for path in ["/", READY] {
                assert_eq!(fixture.probe(path).await, 200, "{path} with {n} connections");
            }
            let mut client = fixture.connect(None).await;
            for client in [&mut client, &mut before] {
                send(client, Message::binary(vec![1])).await;
                fixture.frame().await;
            }
        }
    }
}

/// Goal: peers that stop short of a large frame's end occupy no more than the common limit. If there is one peer too
/// many, one loses its connection, and the others finish their frames.
#[tokio::test]
async fn incomplete_frames_share_one_limit() {
    let mut fixture = Fixture::new().await;
    let fitting = incomplete_frames::TOTAL_MAX / FRAME_MAX;
    let mut clients = Vec::new();
    for _ in 0..=fitting {
        clients.push(fixture.connect(None).await.into_inner());
    }
    let frame = [&head(FRAME_MAX)[..], &vec![0; FRAME_MAX]].concat();
    let (last, most) = frame.split_last().expect("not empty");
    let (mut whole, mut cut) = (Vec::new(), 0);
    for mut client in clients {
        match within(client.write_all(most)).await {
            Ok(()) => whole.push(client),
            Err(_) => cut += 1,
        }
    }
    eventually("counted", || fixture.bad_frames(BadFrame::Unfinished) > 0).await;
    let mut ended = cut;
    for client in &mut whole {
        ended += usize::from(within(client.write_all(&[*last])).await.is_err());
    }
    for _ in 0..fitting {
        assert_eq!(fixture.frame().await.0.len(), FRAME_MAX);
    }
    assert!(ended <= 1, "{ended} lost their connection");
    assert_eq!(fixture.bad_frames(BadFrame::Unfinished), 1);
}
