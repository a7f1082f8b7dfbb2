//! System-internal TLS: clients of the activator's TLS port, and requests of the activator to queue-proxies.

use crate::rig::{self, FullResponse, Pod, Rig, backend, full, own_address, patient};
use activator::discovery::{Event, Spec};
use activator::{Configs, Contract, InternalTls};
use bytes::Bytes;
use common::backend::{ProbeKind, Protocol};
use common::headers;
use common_runtime::environment::Mode;
use common_runtime::tls::rustls::pki_types::{CertificateDer, ServerName};
use common_runtime::tls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use common_runtime::tls::{
    ClientAuth, HTTP_ALPN, Identity, Parameters, Roots, TlsAcceptor, TlsConnector, client::TlsStream, pem, rustls,
    server_config,
};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

pub(crate) const NAMES: [&str; 2] = ["data-plane.knative.dev", "kn-user-ns"];

/// Issuer of certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Creates an authority. Its name must be unique, because clients look up authorities by name.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("valid");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        roots
    }

    pub(crate) fn signed(&self, names: &[&str]) -> Arc<rustls::sign::CertifiedKey> {
        self.signed_as(names, |_| {})
    }

    fn signed_as(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Arc<rustls::sign::CertifiedKey> {
        let mut params = CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).expect("ok");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        pem::key_pair(("c", certificate.pem().as_bytes()), ("k", key.serialize_pem().as_bytes())).expect("a pair")
    }
}

/// Client of the TLS port.
pub(crate) struct Client<'a> {
    pub(crate) alpn: &'a [&'a [u8]],
    pub(crate) versions: &'a [&'static SupportedProtocolVersion],
    pub(crate) name: &'static str,
}

pub(crate) const ANY: Client<'static> = Client { alpn: &[], versions: &[&version::TLS13], name: "kn-routing" };

impl Client<'_> {
    pub(crate) async fn connect(
        &self,
        authority: &Authority,
        address: SocketAddr,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .expect("versions of ring")
            .with_root_certificates(authority.roots())
            .with_no_client_auth();
        config.alpn_protocols = self.alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.resumption = rustls::client::Resumption::disabled();
        let stream = TcpStream::connect(address).await.expect("connected");
        let name = ServerName::try_from(self.name).expect("a name");
        patient(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    }
}

fn presented_certificate(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
}

pub(crate) fn configs(tls: &InternalTls) -> Configs {
    Configs { tls: Some(tls.clone()), ..Configs::default() }
}

pub(crate) fn internal(issuer: &Authority, trusted: &Authority) -> InternalTls {
    InternalTls {
        identity: Identity::new(issuer.signed(&["kn-routing", NAMES[0]])),
        roots: Roots::new(trusted.roots()).expect("TLS 1.3"),
    }
}

pub(crate) async fn http1(stream: TlsStream<TcpStream>) -> hyper::client::conn::http1::SendRequest<Empty<Bytes>> {
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("open");
    tokio::spawn(connection);
    sender
}

pub(crate) async fn http2(stream: TlsStream<TcpStream>) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("open");
    tokio::spawn(connection);
    sender
}

pub(crate) fn get(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).header("host", "app.ns").body(Empty::new()).expect("a request")
}

/// Goal: without a negotiated protocol, that of the first bytes is served. Other protocols, older versions of TLS and
/// other names are errors. Plain HTTP gets an error with Go's text there, and is served on the plain port.
#[tokio::test]
async fn the_tls_port_serves_the_negotiated_protocol() {
    let authority = Authority::new("one");
    let rig = Rig::start_configured(|_| {}, configs(&internal(&authority, &authority))).await;
    let address = rig.activator.https.expect("TLS is on");
    let pod = Pod::echoing().await;
    rig.revision(|_| {}).await;
    rig.pods(&[pod.address]).await;
    for alpn in [&[][..], &[&b"http/1.1"[..]], &[b"http/1.1", b"x"]] {
        let stream = Client { alpn, ..ANY }.connect(&authority, address).await.expect("shaken");
        let answer = FullResponse::receive(http1(stream).await.send_request(get("/"))).await;
        assert_eq!(answer.status, StatusCode::OK, "{alpn:?}");
        assert!(answer.body.contains("x-forwarded-proto: https"), "{}", answer.body);
    }
    for alpn in [&[][..], &[&b"h2"[..]], &[b"h2", b"http/1.1"]] {
        let stream = Client { alpn, ..ANY }.connect(&authority, address).await.expect("shaken");
        let answer = FullResponse::receive(http2(stream).await.send_request(get("https://app.ns/"))).await;
        assert_eq!(answer.status, StatusCode::OK, "{alpn:?}");
    }
    let unknown = Client { alpn: &[b"spdy/3"], ..ANY }.connect(&authority, address).await.expect_err("not supported");
    assert!(unknown.to_string().contains("NoApplicationProtocol"), "{unknown}");
    let old = Client { versions: &[&version::TLS12], ..ANY }.connect(&authority, address).await.expect_err("too old");
    assert!(old.to_string().contains("ProtocolVersion"), "{old}");
    // The certificate is the same for every name; the client rejects it.
    let misnamed =
        Client { name: "other.example", ..ANY }.connect(&authority, address).await.expect_err("another name");
    assert!(misnamed.to_string().contains("kn-routing"), "{misnamed}");
    let mut plain = rig::connect_and_write(address, rig::GET).await;
    let answer = rig::read_to_end(&mut plain).await;
    assert_eq!(answer, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n");
    assert_eq!(rig.get("app.ns", "/").await.status, StatusCode::OK);
    rig.activator.stop().await;
}

/// Goal: the connection continues, and the next one gets the new certificate.
#[tokio::test]
async fn a_certificate_is_replaced_while_a_connection_lives() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let tls = internal(&first, &first);
    let rig = Rig::start_configured(|_| {}, configs(&tls)).await;
    let address = rig.activator.https.expect("TLS is on");
    let pod = Pod::saying("hello").await;
    rig.revision(|_| {}).await;
    rig.pods(&[pod.address]).await;
    let stream = ANY.connect(&first, address).await.expect("shaken");
    let before = presented_certificate(&stream);
    let mut client = http1(stream).await;
    let ask = async |client: &mut hyper::client::conn::http1::SendRequest<_>| {
        patient(client.ready()).await.expect("open");
        FullResponse::receive(client.send_request(get("/"))).await.body
    };
    assert_eq!(ask(&mut client).await, "hello");
    tls.identity.replace(second.signed(&["kn-routing"]));
    assert_eq!(ask(&mut client).await, "hello", "the old connection");
    let refused = ANY.connect(&first, address).await.expect_err("another authority");
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
    let stream = ANY.connect(&second, address).await.expect("shaken");
    assert_ne!(presented_certificate(&stream), before);
    assert_eq!(ask(&mut http1(stream).await).await, "hello", "a new connection");
}

/// Queue-proxy of `ns/app`, with a plain and a TLS port on its own address. A request for `/last` is the last of its
/// connection.
pub(crate) struct QueueProxy {
    pub(crate) plain: Pod,
    pub(crate) identity: Identity,
}

impl QueueProxy {
    pub(crate) async fn start(pair: Arc<rustls::sign::CertifiedKey>) -> Self {
        let ip = own_address().ip();
        let plain = TcpListener::bind(SocketAddr::new(ip, 8012)).await.expect("an address of its own");
        let tls = TcpListener::bind(SocketAddr::new(ip, 8112)).await.expect("an address of its own");
        let identity = Identity::new(pair);
        let config = server_config(&identity, &Parameters::default(), ClientAuth::None, &HTTP_ALPN).expect("valid");
        Pod::raw(tls, move |stream, _| {
            let acceptor = TlsAcceptor::from(config.clone());
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                assert!(stream.get_ref().1.alpn_protocol().is_none(), "none is offered, as upstream");
                assert_eq!(stream.get_ref().1.server_name(), Some(NAMES[0]));
                let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let host = request.headers().get("host").map(|host| host.to_str().expect("text").to_owned());
                    let text = format!("{:?} {} {host:?}", request.version(), request.uri());
                    let mut response = Response::new(full(text));
                    if request.uri().path() == "/last" {
                        response.headers_mut().insert("connection", "close".parse().expect("a value"));
                    }
                    Ok::<_, std::convert::Infallible>(response)
                });
                let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        });
        let plain = Pod::on(
            plain,
            |_| {},
            |request: Request<hyper::body::Incoming>| async move {
                let probed = request.headers().get(headers::NETWORK_PROBE).is_some_and(|value| value == "queue");
                if probed {
                    let is_knatives = request.headers()["user-agent"] == "Knative-Activator-Probe";
                    assert!(is_knatives && request.uri().path() == "/healthz", "{request:?}");
                }
                Response::new(full(if probed { "queue" } else { "a request in plain" }))
            },
        );
        Self { plain, identity }
    }
}

pub(crate) async fn knative(tls: &InternalTls, pod: &QueueProxy) -> Rig {
    let rig = Rig::start_configured(|options| options.mode = Mode::Knative, configs(tls)).await;
    let mut backend = backend("app");
    backend.probe = ProbeKind::QueueProxy.into();
    backend.protocol = Protocol::Http1;
    backend.queue_proxy = true;
    let spec = Spec { contract: Contract::Knative, ..Spec::standalone("ns", "app", backend) };
    rig.emit(Event::Revision(Arc::new(spec))).await;
    rig.ready_pods(&[pod.plain.address]).await;
    rig.settled().await;
    rig
}

pub(crate) fn to_revision(uri: &str) -> http::request::Builder {
    Request::get(uri).header(headers::REVISION, "app").header(headers::NAMESPACE, "ns").header("host", "app.example")
}

/// Goal: requests go to port 8112 over TLS in the client's protocol, probes go to port 8012.
#[tokio::test]
async fn requests_to_queue_proxies_are_encrypted_and_probes_are_not() {
    let authority = Authority::new("one");
    let pod = QueueProxy::start(authority.signed(&NAMES)).await;
    let rig = knative(&internal(&authority, &authority), &pod).await;
    let host = format!("{}:8112", pod.plain.address.ip());
    let answer = rig.send(to_revision("/path")).await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, &*format!("HTTP/1.1 /path Some({host:?})")));
    let answer = rig::ask_http2(rig.address, to_revision("http://app.example/path"), "").await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, &*format!("HTTP/2.0 https://{host}/path None")));
    assert!(pod.plain.requests() > 0, "probes");
}

/// Goal: a 502 names the fault of a pod's certificate, the pod stays in use, and the next valid handshake serves
/// requests.
#[tokio::test]
async fn an_invalid_certificate_is_reported_and_a_valid_one_accepted_without_a_restart() {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let pod = QueueProxy::start(authority.signed(&["kn-user-other", NAMES[0]])).await;
    let tls = internal(&authority, &authority);
    let rig = knative(&tls, &pod).await;
    let refused = async |expected: &str| {
        let answer = rig.send(to_revision("/")).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.body);
        assert!(answer.body.contains(expected), "{}", answer.body);
        answer.body
    };
    let text = refused("san").await;
    assert_eq!(text, "san \"kn-user-ns\" does not have a matching name in [kn-user-other data-plane.knative.dev]\n");
    pod.identity.replace(authority.signed(&[NAMES[1]]));
    refused("data-plane.knative.dev").await;
    pod.identity.replace(authority.signed_as(&NAMES, |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 2);
    }));
    refused("expired").await;
    pod.identity.replace(other.signed(&NAMES));
    refused("UnknownIssuer").await;
    tls.roots.replace(other.roots()).expect("TLS 1.3");
    assert_eq!(rig.send(to_revision("/")).await.status, StatusCode::OK);
    pod.identity.replace(authority.signed(&NAMES));
    tls.roots.replace(authority.roots()).expect("TLS 1.3");
    assert_eq!(rig.send(to_revision("/")).await.status, StatusCode::OK, "over the open connection");
}
