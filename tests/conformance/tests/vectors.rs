//! Recorded decisions of the real systems as a test of the cores, also of their mutants (`.cargo/mutants.toml`).
//! `.ci/run` runs the same files with the command, and the scenarios of the API server besides.

use conformance::run::{Options, run};
use std::path::Path;

#[test]
fn recorded_decisions_are_reproduced() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let files = ["knative", "kpa", "hpa"].map(|name| vectors.join(format!("{name}.jsonl.gz")));
    let mut output = Vec::new();
    let score = run(&Options::default(), &files, &mut output).expect("memory can be written");
    assert_eq!(score.failed, 0, "{}", String::from_utf8_lossy(&output));
    assert!(score.passed > 1000, "{score:?}");
}
