//! What goes with a relayed request: who its client is, and a key that proves that an activator says so.
//!
//! Each activator makes a key when it starts, and tells it to its siblings on their sessions ([`super::security`] says who
//! gets one). A mark without that key counts for nothing; it is taken out of every request before anybody else sees it.

use common::RevisionKey;
use common_runtime::credential::is_secret;
use http::{HeaderName, HeaderValue};
use std::net::SocketAddr;
use std::time::Duration;

/// The field that a relayed request carries.
pub(crate) const FIELD: HeaderName = HeaderName::from_static("zeroscale-relayed");

/// A relayed request, as the activator says that it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) client: SocketAddr,
    pub(crate) tls: bool,
    /// Since it came.
    pub(crate) age: Duration,
    /// The client itself waits for a 100.
    pub(crate) expects: bool,
    pub(crate) workload: RevisionKey,
    /// A question: whether pods speak first.
    pub(crate) asks: bool,
}

impl Mark {
    /// Its text.
    pub(super) fn text(&self, key: &str) -> String {
        let Self { client, tls, age, expects, workload, asks } = self;
        let flags = [tls, expects, asks].map(|flag| if *flag { '1' } else { '0' });
        let [tls, expects, asks] = flags;
        format!("{key} {client} {tls}{expects}{asks} {} {}", age.as_millis(), workload.as_str())
    }

    /// The same as a field's value.
    pub(super) fn value(&self, key: &str) -> HeaderValue {
        HeaderValue::try_from(self.text(key)).unwrap_or(HeaderValue::from_static(""))
    }

    /// Reads one with this key; none: it is no mark, or nobody's who has the key.
    pub(super) fn read(text: &str, key: &str) -> Option<Self> {
        let mut words = text.split(' ');
        if !is_secret(words.next()?, key) {
            return None;
        }
        let client = words.next()?.parse().ok()?;
        let mut flags = words.next()?.bytes().map(|flag| flag == b'1');
        let [tls, expects, asks] = [(); 3].map(|()| flags.next().unwrap_or(false));
        let age = Duration::from_millis(words.next()?.parse().ok()?);
        let (namespace, name) = words.next()?.split_once('/')?;
        Some(Self { client, tls, age, expects, workload: RevisionKey::new(namespace, name), asks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is written is read, by whoever has the key alone.
    #[test]
    fn a_mark_counts_with_its_key() {
        let mark = Mark {
            client: "[2001:db8::1]:5000".parse().expect("an address"),
            tls: true,
            age: Duration::from_millis(1200),
            expects: false,
            workload: RevisionKey::new("ns", "app"),
            asks: true,
        };
        let text = mark.text("secret");
        assert_eq!(Mark::read(&text, "secret"), Some(mark.clone()));
        assert_eq!(mark.value("secret"), text);
        for (text, key) in [(text.as_str(), "other"), ("secret", "secret"), ("", "secret"), ("", "")] {
            assert_eq!(Mark::read(text, key), None, "{text:?} {key:?}");
        }
    }
}
