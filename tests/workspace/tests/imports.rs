//! The direction of imports within each crate: an order between its folders, and no circle of files across them.
//!
//! A failure names the edge: the file that imports, the file that is imported, and by which names. Usually the name
//! lies in the wrong place (move it down to whoever is used), or the lower file should be told by a trait, a closure or
//! an argument what it now looks up.

use std::collections::BTreeMap;
use std::path::Path;

use cargo_metadata::{Metadata, MetadataCommand, Package};
use workspace_tests::imports::{Edge, Imports};

/// What stands further left may use what stands further right, and what stands side by side may use each other. Each
/// name is a file or folder directly below the crate's `src`; a new crate is a line here.
const ORDERS: &[(&str, &str)] = &[
    (
        "common",
        "lib > backend bound_ports election headers hosts key ownership pod_names ports time wire write_rate > annotations stat > \
         config field host labels scaling > golang names",
    ),
    (
        "common-controller",
        "lib > changes objects pass shares workers > recorder status > writer > leadership limiter > tally > \
         error > queue > cache store > packed relist repeats",
    ),
    (
        "common-runtime",
        "lib > observe > config_map credential descriptor lease process profiling resolve shutdown stat_tls token_review watching websocket > \
         admin admin_tls api_version clock namespaces > api_server telemetry > tls > environment failure_log listen",
    ),
    (
        "activator-core",
        "lib > accounting backends hold throttler > holders breaker contract destination fallback own_index > sync",
    ),
    (
        "activator-net",
        "lib > server probe > forward > pool > http1 http2 > pod client tunnel relay > liveness body duplex error alarm > tcp > hop_by_hop limits worker > scoped",
    ),
    (
        "activator",
        "main lib > run > config departure ports > layers > registry > answers holders > metrics > discovery > refusal",
    ),
    (
        "autoscaler",
        "main lib > install > release run > dashboard explain options > api_rate front_end > knative standalone > decisions > reconcile > \
         engine > cluster metric_engine > collect ingest pods scale > stateful_set",
    ),
    (
        "autoscaler-core",
        "lib > cause forwarding history metrics multiscaler num_activators orders pod_counts ports sample scale_conflict scale_status schedules > \
         decider scale_to_zero > active bounds engine path_mode > max_window window",
    ),
    (
        "hpa-core",
        "lib > reconcile validate > behavior combine selectors > decision defaults measure memory > \
         request status totals > calculator condition > groups tolerance > options spec usage > pod > \
         error quantity",
    ),
    ("hpa", "main lib > run > delegate fixture native > evaluate explain options > object > pods > sources"),
    (
        "cli",
        "main > lib > documents > arguments > check giving_back import orders top ui why > status > gather > dashboard > forward > cluster model text",
    ),
    ("local", "main lib > ending > up > api controllers node > merge range usage"),
    (
        "bench",
        "main > activator autoscaler stand > fleet idle load proxy stalls > cluster report role tools > client process settings",
    ),
    (
        "e2e",
        "lib > several soak test_env up > bare gate grpc kubelet load parts relay space streams talk > accounts browser counting process workload",
    ),
    (
        "sim",
        "main > lib holders many ports > activator autoscaler cluster events faults invariants lease links metrics model \
         pass plan probe process reconcile simulation stats summary write_queue writers",
    ),
    ("monitoring", "main > board made > promql rules > lib"),
    ("conformance", "main lib > run > worker > kinds > api > compare suite"),
];

fn metadata() -> Metadata {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    MetadataCommand::new().manifest_path(manifest).no_deps().exec().expect("cargo metadata of the workspace")
}

fn imports(package: &Package) -> Imports {
    let src = package.manifest_path.parent().expect("a manifest lies in a folder").join("src");
    let read = |path: &str| std::fs::read_to_string(src.join(path)).ok();
    let roots: Vec<_> = ["lib.rs", "main.rs"].into_iter().filter(|root| src.join(root).exists()).collect();
    Imports::read(&roots, &read).unwrap_or_else(|error| panic!("{}: {error:#}", package.name))
}

fn lines(edges: &[Edge]) -> String {
    edges.iter().map(|edge| format!("\n    {edge}")).collect()
}

#[test]
fn folders_import_in_one_direction() {
    let metadata = metadata();
    let packages: BTreeMap<_, _> = metadata.packages.iter().map(|p| (p.name.as_str(), p)).collect();
    for (name, order) in ORDERS {
        let package = packages.get(name).unwrap_or_else(|| panic!("{name} has an order and does not exist"));
        let against = imports(package).against(order).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert!(against.is_empty(), "{name}: imports against the order {order}:{}", lines(&against));
    }
}

#[test]
fn no_circle_of_files_runs_across_folders() {
    for package in &metadata().packages {
        let circles = imports(package).circles();
        let told: Vec<String> = circles.iter().map(|circle| lines(circle)).collect();
        assert!(circles.is_empty(), "{}: {} circles:{}", package.name, circles.len(), told.join("\n  and"));
    }
}

/// A crate with folders has an order between them.
#[test]
fn every_crate_with_folders_has_an_order() {
    for package in &metadata().packages {
        let src = Path::new(package.manifest_path.as_str()).parent().expect("a folder").join("src");
        let folders = std::fs::read_dir(&src).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
        let listed = ORDERS.iter().any(|(name, _)| *name == package.name.as_str());
        assert!(listed || folders.count() < 2, "{} has folders and no order between them", package.name);
    }
}
