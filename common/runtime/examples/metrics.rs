//! Writes the manual's page about metrics.

use common_runtime::telemetry::manual;
use std::path::Path;

fn main() -> std::io::Result<()> {
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(manual::PAGE), manual::page())
}
