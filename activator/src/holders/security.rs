//! Authentication and encryption of sessions, with the same means as stats.
//!
//! The dialling side connects to a listed address and presents a token, if there is one. The accepting side lets the
//! API server verify the token. If stats use TLS, sessions do too, including the token. The accepting side presents a
//! certificate with the name of the activators' Service, signed by the authorities of stats.
//!
//! # Edge cases
//!
//! - A token is verified at the start of its session, and not again.
//! - If only one side has tokens or TLS, there is no session, and pods are divided.

use activator_core::holders::Peer;
use common_runtime::admission::{self, Gate};
use common_runtime::credential::TokenFile;
use common_runtime::tls::rustls::ServerConfig;
use common_runtime::tls::{TlsAcceptor, Trust};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

pub(super) type Io = Box<dyn Stream>;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Requirements and credentials of sessions. Default: none.
#[derive(Default)]
pub(crate) struct Security {
    /// Token presented to the accepting side.
    pub(crate) token: Option<TokenFile>,
    /// Check of the dialling side's token.
    pub(crate) demand: Option<Arc<Gate>>,
    /// Trust in the accepting side's certificate, and the certificate presented to the dialling side.
    pub(crate) tls: Option<(Trust, Arc<ServerConfig>)>,
}

impl Security {
    /// Prepares a connection that this side dialled.
    pub(super) async fn dialled<S: Stream + 'static>(&self, io: S) -> io::Result<Io> {
        Ok(match &self.tls {
            Some((trust, _)) => Box::new(trust.connect(io).await?),
            None => Box::new(io),
        })
    }

    /// Prepares a connection that this side accepted.
    pub(super) async fn accepted<S: Stream + 'static>(&self, io: S) -> io::Result<Io> {
        Ok(match &self.tls {
            Some((_, config)) => Box::new(TlsAcceptor::from(config.clone()).accept(io).await?),
            None => Box::new(io),
        })
    }

    pub(super) async fn token(&self) -> io::Result<Option<String>> {
        match &self.token {
            Some(file) => file.read().await.map(Some),
            None => Ok(None),
        }
    }

    /// Checks that the side that dialled from `peer` is an activator.
    pub(super) async fn prove(&self, peer: &Peer, token: Option<String>) -> anyhow::Result<()> {
        let Some(gate) = &self.demand else { return Ok(()) };
        match gate.admit(token.as_deref(), false, *peer).await? {
            admission::Peer::Activator(_) => Ok(()),
            admission::Peer::Autoscaler => anyhow::bail!("its token belongs to an autoscaler"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common_runtime::admission::Demand;
    use common_runtime::tls::files::Pair;
    use common_runtime::tls::{ClientAuth, Parameters, server_config};
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::convert::Infallible;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_util::sync::CancellationToken;

    /// Returns a `Security` whose API server knows the tokens `activator` and `autoscaler`.
    fn security() -> Security {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let review: Value = serde_json::from_slice(&body).expect("a review");
            let token = review["spec"]["token"].as_str().expect("a token");
            let known = ["activator", "autoscaler"].contains(&token) && review["spec"]["audiences"] == json!(["a"]);
            let user = json!({
                "username": format!("system:serviceaccount:sys:{token}"),
                "extra": {"authentication.kubernetes.io/pod-name": ["a-0"]},
            });
            let status = json!({"authenticated": known, "audiences": ["a"], "user": user});
            let answer = json!({"spec": {"token": token}, "status": status});
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(201).body(body).expect("a response"))
        });
        let demand = Demand::of_planes("a", "sys", "autoscaler");
        let gate = Gate::new(demand, Client::new(service, "default"));
        Security { demand: Some(Arc::new(gate)), ..Security::default() }
    }

    #[tokio::test]
    async fn only_an_activators_token_is_accepted() {
        let security = security();
        let prove = async |token: Option<&str>| {
            let proof = security.prove(&Peer::from([10, 1, 0, 1]), token.map(str::to_owned)).await;
            proof.map_err(|error| error.to_string())
        };
        assert_eq!(prove(Some("activator")).await, Ok(()));
        let rows = [
            (Some("autoscaler"), "belongs to an autoscaler"),
            (Some("x"), "does not accept the peer's token for audience a"),
            (None, "no token"),
        ];
        for (token, why) in rows {
            let proof = prove(token).await;
            assert!(proof.clone().is_err_and(|error| error.contains(why)), "{token:?}: {proof:?}");
        }
    }

    /// Goal: TLS works with the name of the activators' Service and its authorities only; a side without TLS cannot
    /// connect.
    #[tokio::test]
    async fn tls_requires_the_activators_service_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["activator-service.sys.svc".to_owned()]).expect("a name");
        let certificate = params.self_signed(&own).expect("signed");
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let authorities = write("ca", certificate.pem());
        let pair = Pair { certificate: write("cert", certificate.pem()), key: write("key", own.serialize_pem()) };
        let until = CancellationToken::new();
        let identity = pair.follow(Duration::from_secs(60), until.clone()).await.expect("a pair");
        let config = server_config(&identity, &Parameters::default(), ClientAuth::None, &[]).expect("TLS");
        let secured = async |name: &str| {
            let trust = Trust::follow(authorities.clone(), name, Duration::from_secs(60), until.clone()).await;
            Security { tls: Some((trust.expect("authorities"), config.clone())), ..Security::default() }
        };
        let (good, other) = (secured("activator-service.sys.svc").await, secured("autoscaler.sys.svc").await);
        let talk = async |dialling: &Security, answering: &Security| -> io::Result<[u8; 2]> {
            let (one, two) = tokio::io::duplex(16 * 1024);
            let dialled = async {
                let mut io = dialling.dialled(one).await?;
                io.write_all(b"hi").await?;
                io.flush().await?;
                Ok::<_, io::Error>(io) // Open until the other side has read.
            };
            let answered = async {
                let mut read = [0; 2];
                answering.accepted(two).await?.read_exact(&mut read).await?;
                Ok(read)
            };
            let (dialled, answered) = tokio::join!(dialled, answered);
            dialled.and(answered)
        };
        assert_eq!(talk(&good, &good).await.expect("both use TLS"), *b"hi");
        let error = talk(&other, &good).await.expect_err("another name").to_string();
        assert!(error.contains("autoscaler.sys.svc"), "{error}");
        assert!(talk(&Security::default(), &good).await.is_err(), "without TLS");
        assert_eq!(talk(&Security::default(), &Security::default()).await.expect("neither uses TLS"), *b"hi");
    }
}
