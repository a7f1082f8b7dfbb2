//! Mark of a relayed request: its client, and a key that proves that an activator sent it.
//!
//! Each activator creates a key at start and sends it to its siblings in their sessions ([`super::security`] controls
//! access). A mark without the key is ignored. Marks are removed from every request before it goes any further.

use common::RevisionKey;
use common_runtime::credential::is_secret;
use http::{HeaderName, HeaderValue};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const FIELD: HeaderName = HeaderName::from_static("zeroscale-relayed");

/// Facts about a relayed request from the activator that received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) client: SocketAddr,
    pub(crate) tls: bool,
    /// Time since the request arrived.
    pub(crate) age: Duration,
    pub(crate) expects_continue: bool,
    pub(crate) workload: RevisionKey,
    /// The request asks whether the pods speak first.
    pub(crate) asks_speaker: bool,
}

impl Mark {
    pub(crate) fn text(&self, key: &str) -> String {
        let Self { client, tls, age, expects_continue, workload, asks_speaker } = self;
        let flags = [tls, expects_continue, asks_speaker].map(|flag| if *flag { '1' } else { '0' });
        let flags = String::from_iter(flags);
        format!("{key} {client} {flags} {} {}", age.as_millis(), workload.as_str())
    }

    pub(crate) fn value(&self, key: &str) -> HeaderValue {
        HeaderValue::try_from(self.text(key)).unwrap_or(HeaderValue::from_static(""))
    }

    /// Parses a mark; `None` if it is malformed or has another key.
    pub(super) fn read(text: &str, key: &str) -> Option<Self> {
        let mut words = text.split(' ');
        if !is_secret(words.next()?, key) {
            return None;
        }
        let client = words.next()?.parse().ok()?;
        let mut flags = words.next()?.bytes().map(|flag| flag == b'1');
        let [tls, expects_continue, asks_speaker] = [(); 3].map(|()| flags.next().unwrap_or(false));
        let age = Duration::from_millis(words.next()?.parse().ok()?);
        let (namespace, name) = words.next()?.split_once('/')?;
        let workload = RevisionKey::new(namespace, name);
        Some(Self { client, tls, age, expects_continue, workload, asks_speaker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a mark survives a round trip. Another key and malformed marks are rejected.
    #[test]
    fn a_mark_is_read_only_with_its_key() {
        let mark = Mark {
            client: "[2001:db8::1]:5000".parse().expect("an address"),
            tls: true,
            age: Duration::from_millis(1200),
            expects_continue: false,
            workload: RevisionKey::new("ns", "app"),
            asks_speaker: true,
        };
        let text = mark.text("secret");
        assert_eq!(Mark::read(&text, "secret"), Some(mark.clone()));
        assert_eq!(mark.value("secret"), text);
        for (text, key) in [(text.as_str(), "other"), ("secret", "secret"), ("", "secret"), ("", "")] {
            assert_eq!(Mark::read(text, key), None, "{text:?} {key:?}");
        }
    }
}
