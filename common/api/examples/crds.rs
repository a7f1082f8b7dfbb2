//! Writes the CustomResourceDefinitions to `deploy/kubernetes/crds`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/crds");
    std::fs::create_dir_all(&folder)?;
    for (name, text) in common_api::crds::manifests()? {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
