//! Lookup of the revision for a `Host`: consistency of the functions that parse any text, and protection of Service
//! names against claims of other namespaces.

use common::host::{self, HostPattern};
use common::hosts::table::HostTable;
use fuzz::{INPUTS, Piece, TIME, render_text};
use std::sync::LazyLock;

static FRAGMENTS: LazyLock<Vec<&str>> = LazyLock::new(|| FRAGMENT_LIST.split('|').collect());
/// Fragments, separated by `|`.
const FRAGMENT_LIST: &str = "\
    a|app|ns|svc|.|..|*|*.|:80|:|[::1]|::1|cluster.local|example.com|-|_|10.0.0.1|%2e|@| |A|é";

#[test]
fn parsers_of_any_host_agree() {
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<(Vec<Piece>, Vec<Piece>)>().for_each(
        |(host, pattern)| {
            let (text, pattern) = (render_text(host, &FRAGMENTS), render_text(pattern, &FRAGMENTS));
            let pattern = HostPattern::parse(&pattern);
            if let Some(pattern) = &pattern {
                let again = HostPattern::parse(&pattern.to_string());
                assert_eq!(again.as_ref(), Some(pattern), "a displayed pattern is parsed again");
            }
            let Some(normal) = host::normalize(&text) else { return };
            assert_eq!(host::normalize(&normal).as_deref(), Some(normal.as_str()), "{text:?}");
            assert_eq!(normal, normal.to_ascii_lowercase());
            assert!(!normal.contains(['/', '@', '\r', '\n', ' ', '\0']), "{normal:?}");
            let keys: Vec<String> = host::lookup_keys(&normal).collect();
            assert_eq!(keys.first(), Some(&normal));
            assert!(keys.windows(2).all(|pair| pair[1].len() <= pair[0].len() + 1), "most specific first: {keys:?}");
            if let Some(pattern) = &pattern {
                // A table of hosts finds a pattern if and only if it matches.
                assert_eq!(pattern.matches(&normal), keys.contains(&pattern.to_string()), "{pattern} {normal:?}");
            }
            let claim = pattern.as_ref().map(|host| ("example", host, "example"));
            let table: HostTable<&str> = HostTable::new("cluster.local", [("ns", "app", "ns")], claim);
            let found = table.get(&text, || Some("ns")).copied();
            if let Some(service) = host::service_name(&normal, "cluster.local") {
                let full_name = (service.name, service.namespace.unwrap_or("ns"));
                let is_reserved = service.namespace.is_none() || normal.matches('.').count() > 1;
                if full_name == ("app", "ns") {
                    assert_eq!(found, Some("ns"), "{normal:?}");
                } else if is_reserved && full_name.1 != "example" {
                    assert_eq!(found, None, "{normal:?} by {pattern:?}");
                }
                assert!(!service.name.is_empty() && !service.name.contains('.'), "{normal:?}");
                assert!(service.namespace.is_none_or(|ns| !ns.is_empty() && !ns.contains('.')), "{normal:?}");
            }
        },
    );
}
