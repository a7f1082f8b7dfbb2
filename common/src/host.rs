//! Parses, normalizes and matches host names. Pure.
//!
//! Hosts are compared without case, port and trailing dot. A table of hosts contains [`HostPattern`]s. A pattern is a
//! name, or `*.` and a domain; the latter matches every name below that domain at any depth, but not the domain itself.
//! [`lookup_keys`] returns the keys of all possible matches, best first: the name itself, then wildcards from the
//! longest to the shortest. A bare `NAME` means a Service in the caller's namespace.
//!
//! Not here: the table and the ownership of hosts ([`crate::hosts`]); addresses of pods.

use std::fmt;
use std::net::Ipv6Addr;

/// Longest host name (RFC 1035).
const HOST_LENGTH_MAX: usize = 253;
/// Longest label of a host name.
const LABEL_LENGTH_MAX: usize = 63;

/// Entry in a table of hosts, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// Matches this name only.
    Exact(String),
    /// Matches every name that ends in `.` and this domain.
    Wildcard(String),
}

impl HostPattern {
    /// Parses `name` or `*.domain`, ignoring case and a trailing dot. Returns `None` if the text is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        match name.strip_prefix("*.") {
            Some(domain) => is_name(domain).then(|| Self::Wildcard(domain.to_owned())),
            None => is_name(&name).then_some(Self::Exact(name)),
        }
    }

    /// Reports whether a normalized host matches.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Wildcard(domain) => {
                host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }
}

/// Formats as `name` or `*.domain`, the same text that [`lookup_keys`] yields.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// Normalizes a `Host` header or authority: no port, no trailing dot, lower case. Returns `None` if nothing is left or
/// the text is not a host. An IPv6 address is returned without its brackets.
pub fn normalize(host: &str) -> Option<String> {
    let name = if let Some(bracketed) = host.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let has_valid_port = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return (has_valid_port && address.parse::<Ipv6Addr>().is_ok()).then(|| address.to_ascii_lowercase());
    } else if host.parse::<Ipv6Addr>().is_ok() {
        return Some(host.to_ascii_lowercase());
    } else {
        match host.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return None,
            None => host,
        }
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let printable = name.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b'@' | b'[' | b']'));
    let ends_well = !name.is_empty() && !name.ends_with('.');
    (ends_well && name.len() <= HOST_LENGTH_MAX && printable).then(|| name.to_ascii_lowercase())
}

/// Returns the keys of all entries that could match a normalized host, best first: `a.b.c`, `*.b.c`, `*.c`.
pub fn lookup_keys(host: &str) -> impl Iterator<Item = String> {
    let domains = host.match_indices('.').map(|(at, _)| format!("*{}", &host[at..]));
    std::iter::once(host.to_owned()).chain(domains)
}

/// Name of a Service in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceName<'a> {
    /// Name of the Service.
    pub name: &'a str,
    /// Namespace of the Service; `None` for a bare name, which means the caller's namespace.
    pub namespace: Option<&'a str>,
}

/// Parses a normalized host as `NAME`, `NAME.NS`, `NAME.NS.svc`, `NAME.NS.svc.DOMAIN` or `NAME.NS.localhost`. Returns
/// `None` for anything else: too many labels, another domain, or an address.
///
/// Browsers, curl and some resolvers send every name below `localhost` to the local machine (RFC 6761). With such a
/// name, a plain URL can call a Service if a shared port is reachable on loopback.
pub fn service_name<'a>(host: &'a str, cluster_domain: &str) -> Option<ServiceName<'a>> {
    if !is_name(host) {
        return None;
    }
    let Some((name, rest)) = host.split_once('.') else { return Some(ServiceName { name: host, namespace: None }) };
    let (namespace, rest) = match rest.split_once('.') {
        Some((namespace, rest)) => (namespace, Some(rest)),
        None => (rest, None),
    };
    let in_cluster = match rest {
        None | Some("svc" | "localhost") => true,
        Some(rest) => rest.strip_prefix("svc.").is_some_and(|domain| domain.eq_ignore_ascii_case(cluster_domain)),
    };
    (in_cluster && !ends_with_number(host)).then_some(ServiceName { name, namespace: Some(namespace) })
}

/// Reports whether the last label is a number, as in the address `10.0.0.1`. No name ends like this.
pub fn ends_with_number(host: &str) -> bool {
    host.rsplit('.').next().is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit()))
}

/// Reports whether the text is a single lower-case label, as the name of a Service is.
pub fn is_label(text: &str) -> bool {
    is_name(text) && !text.contains('.')
}

/// Reports whether the text is a lower-case DNS name: non-empty labels of letters, digits, `-` and `_` within the
/// length limits.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_LENGTH_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    name.len() <= HOST_LENGTH_MAX && name.split('.').all(is_label)
}

/// Reports whether the text after a colon is a port: up to five digits, or nothing.
fn is_port(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_port_and_trailing_dot_do_not_matter() {
        let rows = [
            ("hello.example.com", "Hello.Example.com hello.example.com. hello.example.com.:8080"),
            ("hello", "hello:"),
            ("10.0.0.1", "10.0.0.1:80"),
            ("::1", "[::1]:8080 ::1"),
            ("2001:db8::1", "[2001:DB8::1]"),
        ];
        for (name, spellings) in rows {
            for host in spellings.split(' ') {
                assert_eq!(normalize(host).as_deref(), Some(name), "{host:?}");
            }
        }
        for host in ["", ".", ":80", "a:b", "a:80:80", "[::1", "[::1]x", "[zz]", "a/b", "user@a", "a b"] {
            assert_eq!(normalize(host), None, "{host:?}");
        }
        assert_eq!(normalize(&"a".repeat(254)), None);
    }

    #[test]
    fn services_are_found_in_all_spellings_of_their_name() {
        let rows = [
            ("hello", Some(("hello", None))),
            ("hello.ns hello.ns.svc hello.ns.svc.cluster.local hello.ns.localhost", Some(("hello", Some("ns")))),
            ("hello.localhost", Some(("hello", Some("localhost")))), // A namespace may be called `localhost`.
            ("ns.svc.localhost", Some(("ns", Some("svc")))),
            ("a.hello.ns.localhost hello.ns.svc.cluster hello.ns.svc.example.com hello.ns.example.com", None),
            ("hello..svc .ns 10.0.0.1 10.1 ::1", None),
        ];
        for (host, expected) in
            rows.iter().flat_map(|(hosts, expected)| hosts.split(' ').map(move |host| (host, expected)))
        {
            let found = service_name(host, "cluster.local").map(|service| (service.name, service.namespace));
            assert_eq!(found, *expected, "{host}");
        }
    }

    #[test]
    fn the_longest_wildcard_wins_and_an_exact_name_beats_it() {
        let patterns = ["*.com", "*.example.com", "a.example.com", "*.b.example.com"].map(HostPattern::parse);
        let rows = [
            ("a.example.com", Some("a.example.com")),
            ("x.example.com", Some("*.example.com")),
            ("x.b.example.com", Some("*.b.example.com")),
            ("example.com", Some("*.com")),
            ("com", None),
            ("badexample.com", Some("*.com")),
            ("example.org", None),
        ];
        for (host, expected) in rows {
            let by_key = lookup_keys(host).find(|key| patterns.iter().flatten().any(|p| p.to_string() == *key));
            assert_eq!(by_key.as_deref(), expected, "{host}");
        }
    }

    #[test]
    fn patterns_are_names_or_wildcards_and_nothing_else() {
        for text in ["", "*", "*.", "a.*.b", "**.a", "a..b", "-a.b", "a:80", "http://a", "*a.b", "é.com"] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
        let wildcard = HostPattern::Wildcard("example.com".into());
        assert!(wildcard.matches("a.example.com") && !wildcard.matches(".example.com"), "a label is needed");
        assert_eq!(HostPattern::parse("*.Example.com."), Some(HostPattern::Wildcard("example.com".into())));
    }
}
