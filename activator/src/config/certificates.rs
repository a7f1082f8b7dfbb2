//! System-internal TLS: the activator's certificate and the trusted authorities, from the system namespace.
//!
//! | object | key | use |
//! |---|---|---|
//! | Secret `routing-serving-certs` | `tls.crt`, `tls.key` | certificate on the TLS port, for every server name |
//! | Secret `routing-serving-certs` | `ca.crt` | authority of queue-proxies |
//! | every ConfigMap labelled `networking.knative.dev/trust-bundle` | each | more authorities |
//!
//! The Secret must exist at start. After that, the activator follows Secret and ConfigMaps. A handshake uses the
//! versions in force at that moment; established connections stay. An unusable part is rejected with the name of its
//! object and key, and the former version of that part stays in force.
//!
//! # Better than Knative
//!
//! All certificates of a `ca.crt` count, not only the first, and an invalid PEM does not end the process. If a part
//! becomes invalid, its former version stays, while Knative drops it.
//!
//! # Not here
//!
//! Rules for a queue-proxy's certificate: `activator_net`.

use anyhow::Context;
use common::names::{ROUTING_CERTIFICATE, TRUST_BUNDLE};
use common_runtime::tls::rustls::RootCertStore;
use common_runtime::tls::rustls::sign::CertifiedKey;
use common_runtime::tls::{Identity, PemError, Roots, add_roots, pem};
use common_runtime::watching;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Certificate and authorities of system-internal TLS. Both may change while in use.
#[derive(Clone, Debug)]
pub struct InternalTls {
    /// Certificate for incoming connections.
    pub identity: Identity,
    /// Authorities of queue-proxies' certificates.
    pub roots: Roots,
}

impl InternalTls {
    /// Reads the Secret and the trust bundles of `namespace`, and follows them until `shutdown`. Fails without a usable
    /// Secret.
    pub(crate) async fn watch(client: Client, namespace: &str, shutdown: CancellationToken) -> anyhow::Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let bundles: Api<ConfigMap> = Api::namespaced(client, namespace);
        let secret = secrets.get(ROUTING_CERTIFICATE).await.with_context(|| {
            format!(
                "system-internal-tls is enabled in config-network and needs secret {namespace}/{ROUTING_CERTIFICATE}"
            )
        })?;
        let mut trusted = Trusted::default();
        let pair = key_pair(&secret)?;
        trusted.set_secret(&secret);
        let by_label = watcher::Config::default().labels(TRUST_BUNDLE);
        let list = kube::api::ListParams::default().labels(TRUST_BUNDLE);
        match bundles.list(&list).await {
            Ok(list) => list.iter().for_each(|bundle| trusted.set_bundle(bundle)),
            Err(error) => tracing::warn!(%error, "the trust bundles could not be read; the activator tries again"),
        }
        let tls = Self { identity: Identity::new(pair), roots: Roots::new(trusted.roots())? };
        let by_name = watcher::Config::default().fields(&format!("metadata.name={ROUTING_CERTIFICATE}"));
        let (secrets, bundles) = (watching::watch(secrets, by_name), watching::watch(bundles, by_label));
        let followed = tls.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = followed.follow(trusted, secrets, bundles) => {}
                () = shutdown.cancelled() => {}
            }
        });
        Ok(tls)
    }

    async fn follow(
        &self,
        mut trusted: Trusted,
        mut secrets: BoxStream<'static, Event<Secret>>,
        mut bundles: BoxStream<'static, Event<ConfigMap>>,
    ) {
        let mut listed = BTreeSet::new();
        loop {
            let former = trusted.parts.clone();
            tokio::select! {
                Some(event) = secrets.next() => match event {
                    Event::Apply(secret) | Event::InitApply(secret) => {
                        match key_pair(&secret) {
                            Ok(pair) => self.identity.replace(pair),
                            Err(error) => log_invalid(&error),
                        }
                        trusted.set_secret(&secret);
                    }
                    Event::Delete(_) => {
                        tracing::warn!(secret = ROUTING_CERTIFICATE, "the Secret was deleted; its last version stays")
                    }
                    Event::Init | Event::InitDone => {}
                },
                Some(event) = bundles.next() => match event {
                    Event::Init => listed.clear(),
                    Event::InitApply(bundle) | Event::Apply(bundle) => {
                        listed.insert(bundle.name_any());
                        trusted.set_bundle(&bundle);
                    }
                    Event::Delete(bundle) => {
                        let name = Some(bundle.name_any());
                        trusted.parts.retain(|(map, _), _| *map != name);
                    }
                    Event::InitDone => trusted.retain(&listed),
                },
                else => return,
            }
            if trusted.parts != former {
                match self.roots.replace(trusted.roots()) {
                    Ok(()) => tracing::info!(parts = trusted.parts.len(), "authorities of queue-proxies replaced"),
                    Err(error) => {
                        tracing::error!(%error, "authorities of queue-proxies are invalid; the former ones stay")
                    }
                }
            }
        }
    }
}

/// Authorities by origin and key, each in its last good version. The origin is a ConfigMap's name, or `None` for the
/// Secret.
#[derive(Debug, Default)]
struct Trusted {
    parts: BTreeMap<(Option<String>, String), Vec<u8>>,
}

impl Trusted {
    fn set_secret(&mut self, secret: &Secret) {
        let authority = secret.data.as_ref().and_then(|data| data.get("ca.crt"));
        match authority {
            Some(pem) => self.set_part((None, "ca.crt".to_owned()), &origin_of(secret, "ca.crt"), &pem.0),
            None => drop(self.parts.remove(&(None, "ca.crt".to_owned()))),
        }
    }

    fn set_bundle(&mut self, bundle: &ConfigMap) {
        let name = bundle.name_any();
        let data = bundle.data.clone().unwrap_or_default();
        self.parts.retain(|(map, key), _| map.as_ref() != Some(&name) || data.contains_key(key));
        for (key, pem) in data {
            let origin = format!("config map {}/{name}, key {key}", bundle.namespace().unwrap_or_default());
            self.set_part((Some(name.clone()), key), &origin, pem.as_bytes());
        }
    }

    fn retain(&mut self, listed: &BTreeSet<String>) {
        self.parts.retain(|(map, _), _| map.as_ref().is_none_or(|name| listed.contains(name)));
    }

    /// Sets one part, unless `pem` is invalid.
    fn set_part(&mut self, part: (Option<String>, String), origin: &str, pem: &[u8]) {
        match add_roots(&mut RootCertStore::empty(), origin, pem) {
            Ok(()) => drop(self.parts.insert(part, pem.to_vec())),
            Err(error) => log_invalid(&error),
        }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for ((name, key), pem) in &self.parts {
            // All parts were parsed before, so an error is unexpected. It must not affect the other authorities.
            if let Err(error) = add_roots(&mut roots, &format!("{name:?} {key}"), pem) {
                log_invalid(&error);
            }
        }
        roots
    }
}

fn key_pair(secret: &Secret) -> Result<Arc<CertifiedKey>, PemError> {
    let part = |key: &str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        value.map(|value| value.0.as_slice()).ok_or_else(|| PemError::new(origin_of(secret, key), "is missing"))
    };
    let (certificate, key) = (origin_of(secret, "tls.crt"), origin_of(secret, "tls.key"));
    pem::key_pair((&certificate, part("tls.crt")?), (&key, part("tls.key")?))
}

fn origin_of(secret: &Secret, key: &str) -> String {
    format!("secret {}/{}, key {key}", secret.namespace().unwrap_or_default(), secret.name_any())
}

fn log_invalid(error: &PemError) {
    tracing::error!(%error, "a certificate, key or authority is invalid; its former version stays in force");
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full, StreamBody};
    use k8s_openapi::ByteString;
    use serde_json::{Value, from_value, json};

    fn authority(name: &str) -> String {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("valid");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("signed").pem()
    }

    fn bundle(name: &str, values: &[(&str, &str)]) -> ConfigMap {
        let data: BTreeMap<_, _> = values.iter().copied().collect();
        from_value(json!({"metadata": {"name": name}, "data": data})).expect("a ConfigMap")
    }

    fn secret(values: &[(&str, &str)]) -> Secret {
        let data: BTreeMap<_, _> = values.iter().map(|(key, value)| (*key, ByteString((*value).into()))).collect();
        let metadata = json!({"name": ROUTING_CERTIFICATE, "namespace": "sys"});
        from_value(json!({"metadata": metadata, "data": data})).expect("a Secret")
    }

    /// Returns a self-signed certificate and its key.
    fn pair(name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("valid");
        (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
    }

    #[test]
    fn every_authority_is_trusted_and_an_invalid_part_keeps_its_former_version() {
        let (one, two, three) = (authority("one"), authority("two"), authority("three"));
        let mut trusted = Trusted::default();
        trusted.set_secret(&secret(&[("ca.crt", &format!("{one}{two}"))]));
        assert_eq!(trusted.roots().len(), 2);
        trusted.set_bundle(&bundle("b", &[("x", &three), ("y", "nonsense")]));
        assert_eq!(trusted.roots().len(), 3, "an invalid key of a bundle does not affect the others");
        trusted.set_bundle(&bundle("b", &[("x", "nonsense"), ("y", &one)]));
        assert_eq!(trusted.roots().len(), 4);
        trusted.set_bundle(&bundle("b", &[("y", &one)]));
        assert_eq!(trusted.roots().len(), 3);
        trusted.set_secret(&secret(&[("ca.crt", "not PEM")]));
        assert_eq!(trusted.roots().len(), 3);
        trusted.set_secret(&secret(&[]));
        assert_eq!(trusted.roots().len(), 1);
        trusted.retain(&BTreeSet::new());
        assert_eq!(trusted.roots().len(), 0);
    }

    #[test]
    fn an_unusable_secret_is_named_with_its_key() {
        let ((certificate, key), (_, other)) = (pair("a"), pair("a"));
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str);
        let rows: [Row<'_>; 5] = [
            (&[], "secret sys/routing-serving-certs, key tls.crt: is missing"),
            (&[("tls.crt", &certificate)], "secret sys/routing-serving-certs, key tls.key: is missing"),
            (&[("tls.crt", "x"), ("tls.key", &key)], "key tls.crt: contains no certificate in PEM"),
            (&[("tls.crt", &certificate), ("tls.key", "x")], "key tls.key: contains no private key in PEM"),
            (&[("tls.crt", &certificate), ("tls.key", &other)], "key tls.crt: the certificate does not belong"),
        ];
        for (data, expected) in rows {
            let error = key_pair(&secret(data)).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(key_pair(&secret(&[("tls.crt", &certificate), ("tls.key", &key)])).is_ok());
    }

    /// Returns a client of a fake API server that holds one Secret and sends `later` to its watchers.
    fn server(first: Secret, later: tokio::sync::mpsc::UnboundedReceiver<Value>) -> Client {
        let later = Arc::new(parking_lot::Mutex::new(Some(later)));
        let answer = move |request: http::Request<kube::client::Body>| {
            let (uri, first, later) = (request.uri().clone(), first.clone(), later.clone());
            async move {
                let is_watch = uri.query().is_some_and(|query| query.contains("watch=true"));
                let secrets = uri.path().ends_with("/secrets");
                let items = if secrets { json!([first]) } else { json!([]) };
                let whole = |value: Value| Full::new(Bytes::from(value.to_string())).boxed_unsync();
                let body = if uri.path().ends_with(ROUTING_CERTIFICATE) {
                    whole(json!(first))
                } else if !is_watch {
                    whole(json!({"metadata": {"resourceVersion": "1"}, "items": items}))
                } else {
                    let events = if secrets { later.lock().take() } else { None };
                    let lines = futures::stream::unfold(events, |events| async move {
                        let Some(mut events) = events else { return std::future::pending().await };
                        let line = format!("{}\n", events.recv().await?);
                        let frame = http_body::Frame::data(Bytes::from(line));
                        Some((Ok::<_, std::convert::Infallible>(frame), Some(events)))
                    });
                    StreamBody::new(lines).boxed_unsync()
                };
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        };
        Client::new(tower::service_fn(answer), "sys")
    }

    /// Goal: the presented certificate and the trusted authorities follow the Secret; an unusable version changes
    /// nothing.
    #[tokio::test]
    async fn a_rotation_is_applied_live() {
        let version = |(certificate, key): &(String, String), authorities: &str| {
            let mut secret = secret(&[("tls.crt", certificate), ("tls.key", key), ("ca.crt", authorities)]);
            secret.metadata.resource_version = Some("2".to_owned());
            secret
        };
        let (first, second, third) = (pair("first"), pair("second"), pair("third"));
        let (one, two) = (authority("one"), authority("two"));
        let (send, later) = tokio::sync::mpsc::unbounded_channel();
        let shutdown = CancellationToken::new();
        let client = server(version(&first, &one), later);
        let tls = InternalTls::watch(client, "sys", shutdown.clone()).await.expect("a usable Secret");
        let before = tls.roots.config();
        let presents = |pair: &(String, String)| {
            let expected = pem::certificates("c", pair.0.as_bytes()).expect("PEM");
            tls.identity.certificates() == expected
        };
        assert!(presents(&first));
        let modified = |secret: &Secret| json!({"type": "MODIFIED", "object": secret});
        let until = async |state: &dyn Fn() -> bool| {
            let reached = async {
                while !state() {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(20), reached).await.expect("the change is applied");
        };
        send.send(modified(&version(&second, &format!("{one}{two}")))).expect("watched");
        until(&|| presents(&second) && !Arc::ptr_eq(&before, &tls.roots.config())).await;

        let both = tls.roots.config();
        send.send(modified(&version(&("nonsense".to_owned(), second.1.clone()), "nonsense"))).expect("watched");
        send.send(modified(&version(&third, &format!("{one}{two}")))).expect("watched");
        until(&|| presents(&third)).await;
        assert!(Arc::ptr_eq(&both, &tls.roots.config()), "an invalid version changes nothing");
        shutdown.cancel();
    }
}
