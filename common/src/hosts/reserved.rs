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
    let services = match pattern {
        HostPattern::Exact(_) if is_bare => {
            return Covered::Unclaimable("a name without a dot is a Service in the namespace of the client");
        }
        HostPattern::Exact(_) => {
            below(&in_domain).or(below(SVC).or(below(LOCALHOST)).filter(|rest| rest.contains('.')))
        }
        // `svc.DOMAIN`, or a suffix of it.
        HostPattern::Wildcard(_)
            if [SVC, LOCALHOST, &in_domain].contains(&name.as_str()) || ends_below(&in_domain, name) =>
        {
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

fn ends_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_are_distinguished_from_public_hosts() {
        use Covered::{Free, OfNamespace, OfNamespaceIfAny};
        let rows = [
            ("shop.example.com", Free),
            ("svc.example.com", Free),
            ("shop.cluster.local", Free),
            ("*.example.com", Free),
            ("*.hello.prod", Free),
            ("hello.prod", OfNamespaceIfAny("prod")),
            ("example.com", OfNamespaceIfAny("com")),
            ("prod.svc", OfNamespaceIfAny("svc")),
            ("*.prod", OfNamespaceIfAny("prod")),
            ("*.com", OfNamespaceIfAny("com")),
            ("hello.prod.svc", OfNamespace("prod")),
            ("pod.hello.prod.svc", OfNamespace("prod")),
            ("hello.prod.svc.cluster.local", OfNamespace("prod")),
            ("pod.hello.prod.svc.cluster.local", OfNamespace("prod")),
            ("prod.svc.cluster.local", OfNamespace("prod")),
            ("hello.prod.localhost", OfNamespace("prod")),
            ("prod.localhost", OfNamespaceIfAny("localhost")),
            ("*.prod.localhost", OfNamespace("prod")),
            ("10.0.0.1", Covered::Address),
            ("*.0.0.1", Covered::Address),
            ("*.1", Covered::Address),
            ("*.prod.svc", OfNamespace("prod")),
            ("*.hello.prod.svc", OfNamespace("prod")),
            ("*.prod.svc.cluster.local", OfNamespace("prod")),
        ];
        for (text, expected) in rows {
            let pattern = HostPattern::parse(text).expect(text);
            assert_eq!(covered(&pattern, "cluster.local"), expected, "{text}");
        }
        for text in ["hello", "*.svc", "*.localhost", "*.local", "*.cluster.local", "*.svc.cluster.local", "7"] {
            let pattern = HostPattern::parse(text).expect(text);
            assert!(matches!(covered(&pattern, "cluster.local"), Covered::Unclaimable(_)), "{text}");
        }
        let wide = HostPattern::parse("*.example.com").expect("a wildcard");
        assert!(matches!(covered(&wide, "k8s.example.com"), Covered::Unclaimable(_)), "another cluster domain");
    }
}
