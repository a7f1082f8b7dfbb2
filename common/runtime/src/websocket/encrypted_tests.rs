//! Links over TLS, on loopback sockets.

use super::tests::{connected, received, within};
use super::*;
use crate::resolve::Dns;
use crate::tests::{listen, self_signed, wait_until};
use crate::tls;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

/// Self-signed certificate for `stats` and its key, in files of a folder.
struct Authority(TempDir);

impl Authority {
    fn new() -> Self {
        let authority = Self(tempfile::tempdir().expect("a folder"));
        authority.renew();
        authority
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Replaces certificate and key.
    fn renew(&self) {
        let (certificate, key) = self_signed("stats");
        std::fs::write(self.file("key"), key).expect("writable");
        std::fs::write(self.file("certificate"), certificate).expect("writable");
    }

    async fn identity(&self, stop: &CancellationToken) -> tls::Identity {
        let pair = tls::files::Pair { certificate: self.file("certificate"), key: self.file("key") };
        pair.follow(CHECK_INTERVAL, stop.clone()).await.expect("a pair")
    }

    async fn trust(&self, name: &str, stop: &CancellationToken) -> Trust {
        Trust::follow(self.file("certificate"), name, CHECK_INTERVAL, stop.clone()).await.expect("an authority")
    }
}

const CHECK_INTERVAL: Duration = Duration::from_millis(5);

async fn accept_tls(listener: &TcpListener, config: &Arc<tls::rustls::ServerConfig>) -> Option<ServerStream> {
    let (socket, _) = within(listener.accept()).await.expect("accept");
    let socket = within(tls::accept(socket, config.clone())).await.ok()?;
    Some(within(accept_async(socket)).await.expect("handshake"))
}

type ServerStream = WebSocketStream<tls::server::TlsStream<TcpStream>>;

fn server_settings(identity: &tls::Identity) -> Arc<tls::rustls::ServerConfig> {
    tls::server_config(identity, &tls::Parameters::default(), tls::ClientAuth::None, &[]).expect("settings")
}

/// Goal: frames are encrypted. When the files of both sides change, the next connection uses the new ones without a
/// restart.
#[tokio::test]
async fn renewed_certificates_are_used_from_the_next_connection() {
    let (authority, stop) = (Authority::new(), CancellationToken::new());
    let identity = authority.identity(&stop).await;
    let config = server_settings(&identity);
    let (listener, address) = listen().await;
    let trust = authority.trust("stats", &stop).await;
    let (urls, client) = (vec![format!("wss://{address}")], Config { trust: Some(trust), ..Config::default() });
    let link = DurableSender::start(urls, Arc::new(Dns), client, stop.clone()).expect("valid URL");
    let mut server = accept_tls(&listener, &config).await.expect("a handshake");
    connected(&link, true).await;
    assert_eq!(within(link.send(Bytes::from_static(b"one"))).await, Ok(()));
    assert_eq!(received(&mut server).await, Message::binary(b"one".to_vec()));

    let before = identity.certificates();
    authority.renew();
    wait_until(|| identity.certificates() != before).await;
    drop(server);
    // Attempts fail until the client has also loaded the new CA.
    let mut server = loop {
        if let Some(server) = accept_tls(&listener, &config).await {
            break server;
        }
    };
    connected(&link, true).await;
    within(link.send(Bytes::from_static(b"two"))).await.expect("connected");
    assert_eq!(received(&mut server).await, Message::binary(b"two".to_vec()));
    stop.cancel();
}

/// Goal: a certificate of another CA, or for another name, is rejected, and the error states the requirement.
#[tokio::test]
async fn an_untrusted_certificate_is_rejected_with_the_requirement() {
    let (ours, theirs, stop) = (Authority::new(), Authority::new(), CancellationToken::new());
    let config = server_settings(&theirs.identity(&stop).await);
    for (authority, name, why) in [(&ours, "stats", "invalid peer certificate"), (&theirs, "other", "not valid for")] {
        let (listener, address) = listen().await;
        let trust = authority.trust(name, &stop).await;
        let connecting = async {
            let socket = TcpStream::connect(address).await.expect("connected");
            trust.connect(socket).await.map(drop).expect_err("refused").to_string()
        };
        let (error, refused) = tokio::join!(within(connecting), accept_tls(&listener, &config));
        assert!(refused.is_none());
        let file = authority.file("certificate").display().to_string();
        for part in [why, name, "must contain the name", &file] {
            assert!(error.contains(part), "{part:?} in {error}");
        }
    }
    let error =
        Trust::follow(ours.file("certificate"), "no name", CHECK_INTERVAL, stop.clone()).await.expect_err("no name");
    assert!(error.to_string().contains("\"no name\""), "{error}");
    stop.cancel();
}

/// Goal: TLS that only the URL or only the trust requires is rejected at the start.
#[tokio::test]
async fn a_url_and_a_trust_that_disagree_about_tls_are_rejected() {
    let (authority, stop) = (Authority::new(), CancellationToken::new());
    let trust = authority.trust("stats", &stop).await;
    for (url, trust, rule) in [("wss://a", None, "requires trusted CAs"), ("ws://a", Some(trust), "begin with wss://")]
    {
        let config = Config { trust, ..Config::default() };
        let started = DurableSender::start(vec![url.to_owned()], Arc::new(Dns), config, stop.clone());
        let error = started.map(drop).expect_err(url).to_string();
        assert!(error.contains(url) && error.contains(rule), "{error}");
    }
    stop.cancel();
}
