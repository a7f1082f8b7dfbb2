//! Tests that the files, folders and link targets in documents exist, and that CONTRIBUTING names all crates.

use std::path::PathBuf;

use workspace_tests::{files, metadata, read, root};

/// Prefixes of words that are paths in the repository.
const PLACES: [&str; 8] = [".cargo/", ".ci/", ".github/", "activator/", "autoscaler/", "common/", "deploy/", "tests/"];

/// Returns every Markdown file of the repository.
fn documents() -> Vec<PathBuf> {
    let below = PLACES.iter().flat_map(|place| files(&root().join(place), "md"));
    below.chain([root().join("README.md")]).collect()
}

/// Returns the paths in a text, without patterns and placeholders like `NAME`.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "`(),;=\"'[]|#".contains(c));
    words.map(|word| word.trim_end_matches(['.', ':'])).filter(|word| {
        let placeholder = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
        let pattern = word.contains(['*', '{', '<', '$', '…']) || word.split('/').any(placeholder);
        PLACES.iter().any(|place| word.starts_with(place)) && !pattern
    })
}

/// Returns the link targets in a text, without their anchors, and without URLs.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split('#').next().unwrap_or_default()).filter(|target| !target.contains("://"))
}

#[test]
fn every_path_in_a_document_exists() {
    for document in documents() {
        let text = read(&document);
        for path in paths(&text) {
            assert!(root().join(path).exists(), "{} names {path}, which does not exist", document.display());
        }
        for target in links(&text) {
            let path = document.parent().expect("a folder").join(target);
            assert!(path.exists(), "{} links to {target}, which does not exist", document.display());
        }
    }
}

#[test]
fn contributing_names_every_crate() {
    let metadata = metadata().no_deps().exec().expect("cargo metadata");
    let map = read(".github/CONTRIBUTING.md");
    for package in &metadata.packages {
        let name = format!("`{}`", package.name);
        assert!(map.contains(&name), ".github/CONTRIBUTING.md does not name the crate {name}");
    }
}

#[test]
fn paths_and_links_are_found_in_text() {
    let text = "`common/` and `tests/sim/src/lib.rs`; see [how](deploy/x.md#part), `cargo test -p tests/gone`, \
                https://tests/no `tests/{a,b}` tests/vectors/NAME, deploy/images:";
    let found: Vec<_> = paths(text).collect();
    assert_eq!(found, ["common/", "tests/sim/src/lib.rs", "deploy/x.md", "tests/gone", "deploy/images"]);
    assert_eq!(links(text).collect::<Vec<_>>(), ["deploy/x.md"]);
}
