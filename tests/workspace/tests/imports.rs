//! Tests the imports between the folders of each crate: they are those of the committed table `imports.txt`, and no
//! cycle of files crosses folders.
//!
//! The table is generated: `UPDATE_IMPORTS=1 cargo test -p workspace-tests --test imports` writes it again. A new entry
//! is a new dependency of a folder on another. Prefer to move the name to its user, or to pass a trait, a closure or an
//! argument to the folder. Commit the entry if the dependency is intended.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cargo_metadata::Package;
use workspace_tests::imports::{Edge, Imports};
use workspace_tests::metadata;

/// Path of the committed table.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/imports.txt");

fn imports(package: &Package) -> Imports {
    let src = package.manifest_path.parent().expect("a manifest lies in a folder").join("src");
    let read = |path: &str| std::fs::read_to_string(src.join(path)).ok();
    let roots: Vec<_> = ["lib.rs", "main.rs"].into_iter().filter(|root| src.join(root).exists()).collect();
    Imports::read(&roots, &read).unwrap_or_else(|error| panic!("{}: {error:#}", package.name))
}

fn lines(edges: &[Edge]) -> String {
    edges.iter().map(|edge| format!("\n    {edge}")).collect()
}

/// Returns the table: for each crate with at least two folders, a line per folder with the folders that it imports.
fn table() -> String {
    let metadata = metadata().no_deps().exec().expect("cargo metadata of the workspace");
    let mut packages: Vec<_> = metadata.packages.iter().collect();
    packages.sort_by_key(|package| package.name.as_str());
    let mut text = String::new();
    for package in packages {
        let imports = imports(package);
        let folders = imports.between_folders();
        if folders.len() < 2 {
            continue;
        }
        let _ = writeln!(text, "{}", package.name);
        for (folder, used) in folders {
            let used: Vec<&str> = used.into_iter().collect();
            let _ = writeln!(text, "  {folder} -> {}", if used.is_empty() { "-".into() } else { used.join(" ") });
        }
    }
    text
}

#[test]
fn imports_between_folders_match_the_table() {
    let found = table();
    if std::env::var_os("UPDATE_IMPORTS").is_some() {
        std::fs::write(TABLE, &found).expect("the table can be written");
    }
    let committed = std::fs::read_to_string(TABLE).expect("tests/workspace/imports.txt");
    let (found, committed) = (in_crates(&found), in_crates(&committed));
    let new: Vec<_> = found.difference(&committed).collect();
    let old: Vec<_> = committed.difference(&found).collect();
    assert!(
        new.is_empty() && old.is_empty(),
        "imports between folders differ from tests/workspace/imports.txt; new: {new:#?}, no longer: {old:#?}. Remove \
         the import, or write the table again: UPDATE_IMPORTS=1 cargo test -p workspace-tests --test imports"
    );
}

/// Returns each line of a table, prefixed with its crate.
fn in_crates(table: &str) -> BTreeSet<String> {
    let mut krate = "";
    let mut lines = BTreeSet::new();
    for line in table.lines() {
        match line.strip_prefix("  ") {
            Some(folder) => _ = lines.insert(format!("{krate}: {folder}")),
            None => krate = line,
        }
    }
    lines
}

#[test]
fn no_cycle_of_files_crosses_folders() {
    for package in &metadata().no_deps().exec().expect("cargo metadata of the workspace").packages {
        let cycles = imports(package).cycles();
        let listed: Vec<String> = cycles.iter().map(|cycle| lines(cycle)).collect();
        assert!(cycles.is_empty(), "{}: {} cycles:{}", package.name, cycles.len(), listed.join("\n  and"));
    }
}
