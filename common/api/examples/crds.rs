//! Writes the CustomResourceDefinitions to `deploy/kubernetes/crds`, and the manual's page about ZeroScalers.

use common_api::zeroscaler::manual;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("deploy/kubernetes/crds");
    std::fs::create_dir_all(&folder)?;
    for (name, text) in common_api::crds::manifests()? {
        std::fs::write(folder.join(name), text)?;
    }
    let page = root.join(manual::PAGE);
    std::fs::create_dir_all(page.parent().unwrap_or(&root))?;
    std::fs::write(page, manual::page())?;
    Ok(())
}
