//! Tests that the documents name only things that exist: files and folders, targets of links, crates.

use std::path::PathBuf;

use workspace_tests::{files, metadata, read, root};

/// Prefixes of words that name something in the repository.
const PLACES: [&str; 8] = [".cargo/", ".ci/", ".github/", "activator/", "autoscaler/", "common/", "deploy/", "tests/"];

/// Returns every Markdown file of the repository.
fn documents() -> Vec<PathBuf> {
    let below = PLACES.iter().flat_map(|place| files(&root().join(place), "md"));
    below.chain([root().join("README.md")]).collect()
}

/// Returns the places that a text names, without patterns and placeholders like `NAME`.
fn places(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "`(),;=\"'[]|#".contains(c));
    words.map(|word| word.trim_end_matches(['.', ':'])).filter(|word| {
        let placeholder = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
        let pattern = word.contains(['*', '{', '<', '$', '…']) || word.split('/').any(placeholder);
        PLACES.iter().any(|place| word.starts_with(place)) && !pattern
    })
}

/// Returns the targets of the links of a text, without anchors and other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split('#').next().unwrap_or_default()).filter(|target| !target.contains("://"))
}

#[test]
fn every_place_that_a_document_names_exists() {
    for document in documents() {
        let text = read(&document);
        for place in places(&text) {
            assert!(root().join(place).exists(), "{} names {place}, which does not exist", document.display());
        }
        for target in links(&text) {
            let path = document.parent().expect("a folder").join(target);
            assert!(path.exists(), "{} links to {target}, which does not exist", document.display());
        }
    }
}

#[test]
fn every_crate_is_on_the_map() {
    let metadata = metadata().no_deps().exec().expect("cargo metadata");
    let map = read(".github/CONTRIBUTING.md");
    for package in &metadata.packages {
        assert!(
            map.contains(&format!("`{}`", package.name)),
            ".github/CONTRIBUTING.md does not name the crate {}",
            package.name
        );
    }
}

/// Goal: both functions find what they should in a text.
#[test]
fn places_and_links_are_found_in_text() {
    let text = "`common/` and `tests/sim/src/lib.rs`; see [how](deploy/x.md#part), `cargo test -p tests/gone`, \
                https://tests/no `tests/{a,b}` tests/vectors/NAME, deploy/images:";
    let found: Vec<_> = places(text).collect();
    assert_eq!(found, ["common/", "tests/sim/src/lib.rs", "deploy/x.md", "tests/gone", "deploy/images"]);
    assert_eq!(links(text).collect::<Vec<_>>(), ["deploy/x.md"]);
}
