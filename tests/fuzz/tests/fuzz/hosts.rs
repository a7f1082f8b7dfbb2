//! Lookup of the revision for a `Host`: any text, the rules between the functions that parse it, and the protection of
//! Service names against claims of other namespaces.

use common::host::{self, HostPattern};
use common::hosts::table::{Claimed, HostTable, Named};
use fuzz::{INPUTS, Piece, TIME, render_text};

const FRAGMENTS: [&str; 22] = [
    "a",
    "app",
    "ns",
    "svc",
    ".",
    "..",
    "*",
    "*.",
    ":80",
    ":",
    "[::1]",
    "::1",
    "cluster.local",
    "example.com",
    "-",
    "_",
    "10.0.0.1",
    "%2e",
    "@",
    " ",
    "A",
    "é",
];

#[test]
fn any_host_means_one_thing() {
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<(Vec<Piece>, Vec<Piece>)>().for_each(
        |(host, pattern)| {
            let (text, pattern) = (render_text(host, &FRAGMENTS), render_text(pattern, &FRAGMENTS));
            let pattern = HostPattern::parse(&pattern);
            if let Some(pattern) = &pattern {
                assert_eq!(
                    HostPattern::parse(&pattern.to_string()).as_ref(),
                    Some(pattern),
                    "what is shown reads the same"
                );
            }
            let Some(normal) = host::normalize(&text) else { return };
            assert_eq!(host::normalize(&normal).as_deref(), Some(normal.as_str()), "{text:?}");
            assert_eq!(normal, normal.to_ascii_lowercase());
            assert!(!normal.contains(['/', '@', '\r', '\n', ' ', '\0']), "{normal:?}");
            let keys: Vec<String> = host::lookup_keys(&normal).collect();
            assert_eq!(keys.first(), Some(&normal));
            assert!(keys.windows(2).all(|pair| pair[1].len() <= pair[0].len() + 1), "best first: {keys:?}");
            if let Some(pattern) = &pattern {
                // A table of hosts finds an entry exactly if the entry matches.
                assert_eq!(pattern.matches(&normal), keys.contains(&pattern.to_string()), "{pattern} {normal:?}");
            }
            let app = Named { namespace: "ns", service: "app", means: "ns" };
            let claim = pattern.as_ref().map(|host| Claimed { namespace: "example", host, means: "example" });
            let table: HostTable<&str> = HostTable::new("cluster.local", [app], claim);
            let meant = table.get(&text, || Some("ns")).copied();
            if let Some(service) = host::service_name(&normal, "cluster.local") {
                let whole = (service.name, service.namespace.unwrap_or("ns"));
                let is_reserved = service.namespace.is_none() || normal.matches('.').count() > 1;
                if whole == ("app", "ns") {
                    assert_eq!(meant, Some("ns"), "{normal:?}");
                } else if is_reserved && whole.1 != "example" {
                    assert_eq!(meant, None, "{normal:?} by {pattern:?}");
                }
                assert!(!service.name.is_empty() && !service.name.contains('.'), "{normal:?}");
                assert!(service.namespace.is_none_or(|ns| !ns.is_empty() && !ns.contains('.')), "{normal:?}");
            }
        },
    );
}
