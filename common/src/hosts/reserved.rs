//! Decides which Service names a pattern covers.
//!
//! A name of two labels is ambiguous: `shop.com` is a public host, and the name of the Service `shop` if there is a
//! namespace `com`. Such names, and wildcards of one label, are reserved only if that namespace exists
//! ([`Covered::OfNamespaceIfAny`]). Names that end in `.svc`, in `.svc` and the cluster's domain, or in `.localhost`
//! are always reserved, however many labels they have.

use crate::host::HostPattern;

const SVC: &str = "svc";
const LOCALHOST: &str = "localhost";

/// Names that a pattern covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered<'a> {
    /// No Service name.
    Free,
    /// Names of Services in this namespace.
    OfNamespace(&'a str),
    /// Names of Services in this namespace, if it exists.
    OfNamespaceIfAny(&'a str),
    /// An IP address, which belongs to the process that listens there.
    Address,
    /// Names that no namespace may claim, with the rule.
    Unclaimable(&'static str),
}

/// Returns the names that `pattern` covers in a cluster with this DNS domain.
pub fn covered<'a>(pattern: &'a HostPattern, cluster_domain: &str) -> Covered<'a> {
    let (HostPattern::Exact(name) | HostPattern::Wildcard(name)) = pattern;
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_bare = matches!(pattern, HostPattern::Exact(_)) && !name.contains('.');
    if !is_bare && last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Covered::Address;
    }
    let below = |suffix: &str| name.strip_suffix(suffix).and_then(|rest| rest.strip_suffix('.'));
    let in_domain = format!("{SVC}.{cluster_domain}");
    let ends_in_domain = in_domain.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
    let services = match pattern {
        HostPattern::Exact(_) if is_bare => {
            return Covered::Unclaimable("a name without a dot is a Service in the namespace of the client");
        }
        HostPattern::Exact(_) => {
            below(&in_domain).or(below(SVC).or(below(LOCALHOST)).filter(|rest| rest.contains('.')))
        }
        // `svc.DOMAIN`, or a suffix of it.
        HostPattern::Wildcard(_) if [SVC, LOCALHOST, &in_domain].contains(&name.as_str()) || ends_in_domain => {
            return Covered::Unclaimable("it matches the names of Services in all namespaces");
        }
        HostPattern::Wildcard(_) => below(&in_domain).or(below(SVC)).or(below(LOCALHOST)),
    };
    match (services, pattern) {
        (Some(services), _) => Covered::OfNamespace(services.rsplit('.').next().unwrap_or_default()),
        (None, HostPattern::Exact(_)) => match name.split_once('.') {
            Some((_, namespace)) if !namespace.contains('.') => Covered::OfNamespaceIfAny(namespace),
            _ => Covered::Free,
        },
        (None, HostPattern::Wildcard(_)) if !name.contains('.') => Covered::OfNamespaceIfAny(name),
        (None, HostPattern::Wildcard(_)) => Covered::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_are_distinguished_from_public_hosts() {
        use Covered::{Address, Free, OfNamespace, OfNamespaceIfAny};
        let rows = [
            (Free, "shop.example.com svc.example.com shop.cluster.local *.example.com *.hello.prod"),
            (OfNamespaceIfAny("prod"), "hello.prod *.prod"),
            (OfNamespaceIfAny("com"), "example.com *.com"),
            (OfNamespaceIfAny("svc"), "prod.svc"),
            (OfNamespaceIfAny("localhost"), "prod.localhost"),
            (OfNamespace("prod"), "hello.prod.svc pod.hello.prod.svc prod.svc.cluster.local"),
            (OfNamespace("prod"), "hello.prod.svc.cluster.local pod.hello.prod.svc.cluster.local"),
            (OfNamespace("prod"), "hello.prod.localhost *.prod.localhost"),
            (OfNamespace("prod"), "*.prod.svc *.hello.prod.svc *.prod.svc.cluster.local"),
            (Address, "10.0.0.1 *.0.0.1 *.1"),
        ];
        let pattern = |text: &str| HostPattern::parse(text).expect("a pattern");
        for (expected, texts) in rows {
            for text in texts.split(' ') {
                assert_eq!(covered(&pattern(text), "cluster.local"), expected, "{text}");
            }
        }
        for text in ["hello", "*.svc", "*.localhost", "*.local", "*.cluster.local", "*.svc.cluster.local", "7"] {
            assert!(matches!(covered(&pattern(text), "cluster.local"), Covered::Unclaimable(_)), "{text}");
        }
        let wide = pattern("*.example.com");
        assert!(matches!(covered(&wide, "k8s.example.com"), Covered::Unclaimable(_)), "another cluster domain");
    }
}
