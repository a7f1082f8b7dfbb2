//! Helpers of the tests of the workspace: files, metadata, and imports.
//!
//! The tests are in `tests/`. [`imports`] determines which file of a crate uses which other file.

pub mod imports;

use cargo_metadata::{MetadataCommand, Package};
use std::path::{Path, PathBuf};

// Dependencies only for their features: see Cargo.toml.
use {hpa as _, tokio as _, tower_test as _};

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a text file, by its path below the root or its whole path.
///
/// # Panics
/// Panics if the file cannot be read.
pub fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the files with this extension in a folder and the folders below it.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = entries.flat_map(|path| if path.is_dir() { files(&path, extension) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

/// Returns the Rust files of a package.
///
/// # Panics
/// Panics if the package has no folder.
pub fn rust_files(package: &Package) -> Vec<PathBuf> {
    let folder = package.manifest_path.parent().expect("a manifest lies in a folder").as_std_path();
    ["src", "tests", "examples"].iter().flat_map(|part| files(&folder.join(part), "rs")).collect()
}

/// Returns the command that reads the metadata of the workspace.
pub fn metadata() -> MetadataCommand {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml"));
    command
}
