//! The request path over real sockets: any bytes from a client, and the requests that reach a pod.
//!
//! # Invariants
//!
//! - Nothing panics.
//! - Every request that reaches the pod is complete and belongs to an existing revision. Its host belongs to that
//!   revision, hop-by-hop fields are removed, and its forwarding headers name only the peer, whatever the peer sends.
//! - The client gets no more responses of the pod than the pod got requests.
//! - The next client is served.

use activator::discovery::{Event, Listing, Spec};
use activator::{Activator, Configs, Options};
use common::RevisionKey;
use common::backend::Backend;
use common::host::HostPattern;
use common_runtime::environment::Mode;
use common_runtime::resolve::Dns;
use fuzz::{INPUTS, Piece, TIME, render};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// Time without bytes of a response after which it counts as complete.
const SILENCE: Duration = Duration::from_millis(10);

static FRAGMENTS: LazyLock<Vec<&str>> = LazyLock::new(|| FRAGMENT_LIST.split('|').collect());
/// Fragments, separated by `|`.
const FRAGMENT_LIST: &str = "\
    GET / HTTP/1.1\r\n|POST /p?q=%zz HTTP/1.1\r\n|HEAD / HTTP/1.1\r\n|GET / HTTP/1.0\r\n|OPTIONS * HTTP/1.1\r\n|\
    CONNECT app.ns:80 HTTP/1.1\r\n|GET http://app.ns/ HTTP/1.1\r\n|GET http://other.ns/ HTTP/1.1\r\n|\
    GET //a/../b HTTP/1.1\r\n|get / HTTP/1.1\r\n|GET /<a>{b}#c?q={\"d\":\u{e9}}#e HTTP/1.1\r\n|\
    POST http://app.ns/`?\" HTTP/1.1\r\n|PUT /|Host: app.ns\r\n|Host: APP.ns:80\r\n|\
    host: app.ns.svc.cluster.local\r\n|Host: www.example.com\r\n|Host: a.b.example.com\r\n|Host: nobody\r\n|\
    Host:\r\n|Host: app.ns, other.ns\r\n|Host: @app.ns\r\n|Content-Length: 3\r\n|Content-Length: 0\r\n|\
    Content-Length: +3\r\n|Content-Length: 3, 3\r\n|Transfer-Encoding: chunked\r\n|\
    Transfer-Encoding: gzip, chunked\r\n|Transfer-Encoding : chunked\r\n|Transfer-Encoding:\tchunked\r\n|\
    Connection: close\r\n|Connection: keep-alive, X-Forwarded-For, Host\r\n|Connection: Upgrade\r\n|\
    Upgrade: websocket\r\n|Upgrade: h2c\r\n|HTTP2-Settings: AAMAAABkAAQAAP__\r\n|Expect: 100-continue\r\n|\
    Expect: more\r\n|TE: trailers\r\n|TE: gzip, trailers;q=0.5\r\n|Trailer: X-Sum\r\n|X-Sum: 7\r\n|\
    X-Forwarded-For: 1.2.3.4\r\n|Forwarded: for=x\r\n|X-Forwarded-Proto: https\r\n|K-Network-Probe: probe\r\n|\
    K-Network-Probe: activator\r\n|K-Network-Hash: h\r\n|K-Proxy-Request: x\r\n|K-Original-Host: forged\r\n|\
    User-Agent: kube-probe/1\r\n|Knative-Serving-Revision: app\r\n|Knative-Serving-Namespace: ns\r\n|\
    Cookie: a=1\r\n|X-Fold: a\r\n b\r\n|X-Lf: a\n|X-Nul: \0\r\n|\r\n|\r\n\r\n|\n|abc|3\r\nabc\r\n|0\r\n\r\n|\
    0\r\nX-Sum: 7\r\n\r\n|3;x=y\r\nabc\r\n|ffffffffffffffff\r\n|PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n|\
    \0\0\0\x04\0\0\0\0\0\0\0\x0d\x01\x05\0\0\0\x01\u{02}\u{06}\u{04}\x01\x06app.ns";

/// Activator with a pod behind it, and a record of the requests.
pub(crate) struct Target {
    _runtime: Runtime,
    pub(crate) activator: Activator,
    _events: mpsc::Sender<Event>,
    pub(crate) address: SocketAddr,
    pod_requests: Arc<AtomicUsize>,
    /// Requests with an error that reached the pod.
    wrong_requests: Arc<Mutex<Vec<String>>>,
    /// True if a task of the activator panicked.
    panicked: Arc<AtomicBool>,
}

fn loopback() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)
}

/// Returns the error in a request that reached the pod, if any.
fn request_error(request: &Request<Incoming>) -> Option<&'static str> {
    const HOSTS: [&str; 4] = ["app.ns", "app.ns.svc", "app.ns.svc.cluster.local", "www.example.com"];
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let host = text("host").to_ascii_lowercase();
    let host = host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host);
    let host = host.strip_suffix('.').unwrap_or(host);
    if !(HOSTS.contains(&host) || host.ends_with(".b.example.com")) {
        return Some("its host is not the revision's");
    }
    let passed = [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-proto", "http")];
    let forwarded = request.headers().get_all("forwarded");
    if passed.iter().any(|(name, value)| !request.headers().get_all(*name).iter().eq([value]))
        || forwarded.iter().any(|value| value != "for=127.0.0.1;proto=http")
        || forwarded.iter().count() > 1
    {
        return Some("its forwarding headers are missing, or are those of an untrusted peer");
    }
    let removed = ["keep-alive", "proxy-connection", "k-proxy-request", "k-network-hash", "knative-serving-revision"];
    if removed.iter().any(|name| request.headers().contains_key(*name)) {
        return Some("it has a header that is not for pods");
    }
    let path = request.uri().path();
    (!path.starts_with('/') && path != "*").then_some("its path is invalid")
}

/// Starts an activator with a pod.
pub(crate) fn start(memory_limit: Option<u64>) -> Target {
    let runtime = Runtime::new().expect("a runtime");
    let panicked = record_panics();
    let (pod_requests, wrong_requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (count, wrong) = (pod_requests.clone(), wrong_requests.clone());
    let (activator, events) = runtime.block_on(async move {
        let pod = TcpListener::bind(loopback()).await.expect("a free port");
        let pod_address = pod.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((stream, _)) = pod.accept().await {
                let (count, wrong) = (count.clone(), wrong.clone());
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                        count.fetch_add(1, Ordering::SeqCst);
                        if let Some(error) = request_error(&request) {
                            wrong.lock().expect("no panic").push(format!("{error}: {request:?}"));
                        }
                        async move {
                            let _ = request.into_body().collect().await;
                            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"pod"))))
                        }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let mut options = Options::new("activator-0", IpAddr::from(Ipv4Addr::LOCALHOST), Mode::Standalone);
        (options.http1, options.h2c, options.linger) = (loopback(), loopback(), Duration::ZERO);
        options.stat_url = "ws://127.0.0.1:9".into();
        (options.memory_limit, options.trusted_proxies) = (memory_limit, Vec::new());
        let (events, receiver) = mpsc::channel(16);
        let activator =
            activator::start(options, receiver, Arc::new(Dns), Configs::default()).await.expect("free ports");
        let backend = |name| Backend { timeout_ms: 5_000, ..Backend::plain(name) };
        let listing = Listing { not_ready: [pod_address.into()].into(), ..Listing::default() };
        // The last three hosts cannot be claimed.
        let hosts = ["www.example.com", "*.b.example.com", "nobody", "*.svc", "other.prod.svc"];
        let hosts = hosts.iter().filter_map(|host| Some((HostPattern::parse(host)?, "app".to_owned())));
        let asleep = RevisionKey::new("ns", "asleep");
        for event in [
            Event::Synced,
            Event::Hosts { namespace: "ns".into(), hosts: hosts.collect() },
            Event::Revision(Arc::new(Spec::standalone("ns", "app", Backend { max_held: 100, ..backend("app") }))),
            Event::Pods { key: RevisionKey::new("ns", "app"), listing },
            Event::Revision(Arc::new(Spec::standalone("ns", "asleep", backend("asleep")))),
        ] {
            events.send(event).await.expect("the activator listens");
        }
        // The activator refuses requests of workloads that it does not know yet. Events are handled in order, so once
        // it knows the last workload, it knows all.
        let known = async {
            while activator.load(&asleep).is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), known).await.expect("it handles all events");
        (activator, events)
    });
    let address = activator.http1;
    Target { _runtime: runtime, activator, _events: events, address, pod_requests, wrong_requests, panicked }
}

impl Target {
    /// Sends `bytes` and reads the response. Without `keep_open`, closes the write direction after [`SILENCE`]: an
    /// earlier close would count as a client disconnect.
    fn exchange(&self, bytes: &[u8], keep_open: bool) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        if !keep_open {
            stream.set_read_timeout(Some(SILENCE)).expect("open");
            let _ = stream.read_to_end(&mut answer);
            let _ = stream.shutdown(Shutdown::Write);
        }
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("open");
        let ended = stream.read_to_end(&mut answer);
        let waited = ended
            .is_err_and(|error| matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
        assert!(!waited, "the response does not end after {:?}", String::from_utf8_lossy(&answer));
        answer
    }

    fn check(&self, bytes: &[u8]) {
        let before = self.pod_requests.load(Ordering::SeqCst);
        let answer = self.exchange(bytes, false);
        let requests = self.pod_requests.load(Ordering::SeqCst) - before;
        let by_pod = answer.windows(7).filter(|w| *w == b"\r\n\r\npod").count();
        assert!(by_pod <= requests, "{by_pod} responses of the pod for {requests} requests");
        let wrong = std::mem::take(&mut *self.wrong_requests.lock().expect("no panic"));
        assert!(wrong.is_empty(), "the pod got {wrong:?}");
        self.check_alive();
    }

    /// Checks that no task has panicked and that the next client is served.
    pub(crate) fn check_alive(&self) {
        assert!(!self.panicked.load(Ordering::SeqCst), "a task of the activator panicked");
        let next = self.exchange(b"GET / HTTP/1.1\r\nHost: app.ns\r\nConnection: close\r\n\r\n", true);
        assert!(next.starts_with(b"HTTP/1.1 200 "), "the next client got {:?}", String::from_utf8_lossy(&next));
    }
}

#[test]
fn any_bytes_from_a_client() {
    let target = std::panic::AssertUnwindSafe(start(None));
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<Vec<Piece>>().for_each(move |pieces| {
        target.check(&render(pieces, &FRAGMENTS));
    });
}

/// Returns a flag that a panic in one of the activator's tasks sets.
fn record_panics() -> Arc<AtomicBool> {
    let panicked = Arc::new(AtomicBool::new(false));
    let flag = panicked.clone();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The engine catches panics of this thread, to find a smaller input.
        if std::thread::current().name().is_some_and(|name| name.starts_with("tokio")) {
            flag.store(true, Ordering::SeqCst);
        }
        usual(panic);
    }));
    panicked
}
