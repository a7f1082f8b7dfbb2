//! Writes the CustomResourceDefinitions to `deploy/kubernetes/crds`, and the manual's page about ZeroScalers.

use common_api::zeroscaler::manual;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("deploy/kubernetes/crds");
    for (name, text) in common_api::crds::manifests()? {
        std::fs::write(folder.join(name), text)?;
    }
    std::fs::write(root.join(manual::PAGE), manual::page())?;
    Ok(())
}
