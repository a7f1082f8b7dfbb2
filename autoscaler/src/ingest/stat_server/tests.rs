//! On loopback sockets: what a client sees.

use super::*;
use futures::SinkExt;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

/// Far beyond what anything here takes: only there so that a bug fails a test and does not hang it.
const PATIENCE: Duration = Duration::from_secs(20);

struct Recorder {
    frames: mpsc::UnboundedSender<(Bytes, Origin)>,
    owned: Mutex<Vec<String>>,
}

impl Sink for Recorder {
    fn frame(&self, frame: Bytes, from: &Origin) -> bool {
        let good = !frame.starts_with(b"bad");
        self.frames.send((frame, from.clone())).expect("the test listens");
        good
    }

    fn owns_bucket(&self, name: &str) -> bool {
        self.owned.lock().iter().any(|owned| owned == name)
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
        let server = StatServer::bind(([127, 0, 0, 1], 0).into()).await.expect("bind");
        let address = server.local_addr().expect("address");
        let (sender, frames) = mpsc::unbounded_channel();
        let owned = Mutex::new(vec!["autoscaler-bucket-00-of-02".to_owned()]);
        let (counters, shutdown) = (Counters::default(), CancellationToken::new());
        let sink = Arc::new(Recorder { frames: sender, owned });
        let serving = tokio::spawn(server.serve(sink, counters.clone(), shutdown.clone()));
        Self { address, frames, counters, shutdown, serving }
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

    /// Sends a request head, and returns the head of the answer.
    async fn raw(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("write");
        let mut answer = Vec::new();
        while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
            assert_ne!(within(stream.read_buf(&mut answer)).await.expect("read"), 0, "closed without an answer");
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("did not happen in time")
}

/// Goal: binary frames reach the sink with their origin; what is not binary or not decodable is counted, and the
/// connection stays.
#[tokio::test]
async fn frames_reach_the_sink_and_bad_ones_end_nothing() {
    let mut fixture = Fixture::new().await;
    let mut client = fixture.connect(None).await;
    client.send(Message::text("not binary")).await.expect("send");
    for frame in [&b"bad"[..], b"good"] {
        client.send(Message::binary(frame.to_vec())).await.expect("send");
        let (read, from) = within(fixture.frames.recv()).await.expect("a frame");
        assert_eq!(&read[..], frame);
        assert_eq!(from, Origin { ip: [127, 0, 0, 1].into(), forwarded: false, pod: None });
    }
    client.send(Message::Ping(Bytes::from_static(b"still there?"))).await.expect("send");
    let pong = within(client.next()).await.expect("open").expect("readable");
    assert_eq!(pong, Message::Pong(Bytes::from_static(b"still there?")), "pings are answered");
    assert_eq!((fixture.counters.frames.get(), fixture.counters.bad_frames.get()), (2, 2));
}

/// Goal: a forwarder's mark is seen.
#[tokio::test]
async fn forwarded_frames_are_known_as_such() {
    let mut fixture = Fixture::new().await;
    let mut client = fixture.connect(Some((FORWARDED, "1"))).await;
    client.send(Message::binary(vec![1])).await.expect("send");
    assert!(within(fixture.frames.recv()).await.expect("a frame").1.forwarded);
}

/// Goal: a frame beyond the bound ends its connection, and only that.
#[tokio::test]
async fn an_oversized_frame_ends_its_connection() {
    let mut fixture = Fixture::new().await;
    let mut good = fixture.connect(None).await;
    let mut bad = fixture.connect(None).await;
    // The write may fail: the server stops reading as soon as it sees the length.
    let _ = within(bad.send(Message::binary(vec![0; FRAME_MAX + 1]))).await;
    while let Some(Ok(_)) = within(bad.next()).await {}
    good.send(Message::binary(vec![1])).await.expect("send");
    assert_eq!(&within(fixture.frames.recv()).await.expect("a frame").0[..], [1]);
}

/// Goal: probes come first, then the bucket's host, then the upgrade with its refusals.
#[tokio::test]
async fn requests_are_answered_in_upstreams_order() {
    let fixture = Fixture::new().await;
    let key = generate_key();
    let upgrade = |host: &str, rest: &str| {
        format!(
            "GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}{rest}"
        )
    };
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
        ("a short key", upgrade("x", "").replace(&key, "short"), 400),
    ];
    for (what, head, status) in rows {
        let answer = fixture.raw(&head).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
    }
}

/// Goal: on shutdown the port is closed, every client hears 1012 `Restarting`, and the server ends when they have gone.
#[tokio::test]
async fn shutdown_says_restarting_to_everybody() {
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
