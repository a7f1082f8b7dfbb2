//! Tests of the import reader on small crates written inline.

use super::*;

/// Reads a crate with these files, of which the first is the root.
fn imports(files: &[(&str, &str)]) -> Imports {
    let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
    Imports::read(&[files[0].0], &read).expect("a crate that can be read")
}

fn edges(files: &[(&str, &str)]) -> Vec<String> {
    imports(files).edges().map(|edge| edge.to_string()).collect()
}

fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let text = |cycle: Vec<Edge>| cycle.iter().map(ToString::to_string).collect();
    imports(files).cycles().into_iter().map(text).collect()
}

const ROOT: (&str, &str) = ("lib.rs", "mod door; mod house; pub use std::rc::Rc as Elsewhere;");
const HOUSE: (&str, &str) = ("house/mod.rs", "mod stove; pub use stove::Stove; pub(crate) fn plan() {}");
const STOVE: (&str, &str) = ("house/stove.rs", "pub struct Stove; pub fn light() {}");

/// Goal: a cycle is found. A door that uses the stove is fine. A stove that also uses the door completes a cycle.
#[test]
fn a_cycle_across_folders_is_reported_edge_by_edge() {
    let door = ("door/mod.rs", "use crate::house::Stove; pub struct Door(Stove);");
    assert_eq!(cycles(&[ROOT, HOUSE, STOVE, door]), Vec::<Vec<String>>::new());
    let stove = ("house/stove.rs", "pub struct Stove; fn open(_: &crate::door::Door) {}");
    let expected = [vec!["door/mod.rs -> house/stove.rs: Stove", "house/stove.rs -> door/mod.rs: Door"]];
    assert_eq!(cycles(&[ROOT, HOUSE, stove, door]), expected);
}

/// Goal: a longer cycle is found as well, and only once.
#[test]
fn a_cycle_through_several_files_is_found_once() {
    let door = ("door/mod.rs", "use crate::house::Stove;");
    let stove = ("house/stove.rs", "pub struct Stove; use super::pipe::Pipe;");
    let house = ("house/mod.rs", "mod stove; mod pipe; pub use stove::Stove;");
    let pipe = ("house/pipe.rs", "pub struct Pipe; use crate::door::knock as _;");
    let found = cycles(&[ROOT, house, stove, pipe, door]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].len(), 3);
}

#[test]
fn a_cycle_within_one_folder_is_allowed() {
    let house = ("house/mod.rs", "mod stove; pub use stove::Stove; pub fn plan(_: Stove) {}");
    let stove = ("house/stove.rs", "pub struct Stove; use super::plan;");
    let found = imports(&[ROOT, house, stove, ("door/mod.rs", "")]);
    assert_eq!(found.edges().count(), 2);
    assert!(found.cycles().is_empty());
}

/// Goal: `house.rs` may form a cycle with files of `house/`, but does not hide a cycle of these with another folder.
#[test]
fn a_file_beside_its_folder_belongs_to_both_folders() {
    let house = ("house.rs", "mod stove; pub fn plan(_: stove::Stove) {}");
    let back = ("house/stove.rs", "pub struct Stove; use super::plan;");
    assert!(cycles(&[ROOT, house, back, ("door.rs", "")]).is_empty());
    let out = ("house/stove.rs", "pub struct Stove; use crate::door::Door;");
    assert!(!cycles(&[ROOT, house, out, ("door.rs", "pub struct Door; use crate::house::plan;")]).is_empty());
}

#[test]
fn paths_are_found_in_every_notation() {
    let light = ["door/mod.rs -> house/stove.rs: light"];
    for text in [
        "use crate::house::stove::light;",
        "use crate::house::stove::{self, light as fire};",
        "use super::house::stove; fn f() { stove::light() }",
        "use crate::{house::{stove}}; fn f() { stove::light() }",
        "fn f() { crate::house::stove::light() }",
        "fn f() { println!(\"{:?}\", g(crate::house::stove::light())) }",
        "mod inner { fn f() { crate::house::stove::light() } }",
        "mod inner { pub(super) use super::super::house::stove; } fn f() { inner::stove::light() }",
        "fn f() { use crate::house::stove as s; s::light() }",
        "#[cfg(not(test))] use crate::house::stove::light;",
        "#[cfg(any(test, loom))] use crate::house::stove::light;",
    ] {
        assert_eq!(edges(&[ROOT, HOUSE, STOVE, ("door/mod.rs", text)]), light, "{text}");
    }
    let glob = edges(&[ROOT, HOUSE, STOVE, ("door/mod.rs", "use crate::house::stove::*;")]);
    assert_eq!(glob, ["door/mod.rs -> house/stove.rs: *"]);
}

#[test]
fn tests_other_crates_and_module_names_do_not_count() {
    for text in [
        "#[cfg(test)] use crate::house::stove::light;",
        "#[cfg(test)] mod tests { use crate::house::stove::light; }",
        "#[cfg(test)] mod tests;",
        "#[cfg(all(test, not(loom)))] mod tests { use crate::house::stove::light; }",
        "struct D; impl D { #[cfg(test)] fn f() { crate::house::stove::light() } }",
        "use house::stove::light; use ::house::plan;",
        "use crate::house::stove;",
        "pub use crate::house::stove::light;",
        "pub(in crate::house) fn f() {}",
        "mod inner { pub use std::sync::Arc as Shared; } use inner::Shared; fn f(_: crate::Elsewhere) {}",
    ] {
        assert_eq!(edges(&[ROOT, HOUSE, STOVE, ("door/mod.rs", text)]), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_re_export_counts_for_the_file_that_defines_the_name() {
    let house = ("house/mod.rs", "mod stove; pub use self::stove::*; pub fn plan() {}");
    let door = ("door/mod.rs", "use crate::house::{Stove, plan, macro_made};");
    let found = edges(&[ROOT, house, STOVE, door]);
    assert_eq!(found, ["door/mod.rs -> house/mod.rs: macro_made, plan", "door/mod.rs -> house/stove.rs: Stove"]);
}

#[test]
fn folders_are_listed_with_the_folders_they_import() {
    let root = ("lib.rs", "mod door; mod house; mod roof; use door::knock;");
    let door = ("door/mod.rs", "use crate::house::Stove; use crate::roof::Tile; pub fn knock() {}");
    let roof = ("roof.rs", "pub struct Tile; use crate::house::plan;");
    let found = imports(&[root, HOUSE, STOVE, door, roof]);
    let expected = [("door", BTreeSet::from(["house"])), ("house", BTreeSet::new())];
    assert_eq!(found.between_folders(), BTreeMap::from(expected));
    let head = ("roof.rs", "mod tile; use crate::house::plan;");
    let found = imports(&[root, HOUSE, STOVE, door, head, ("roof/tile.rs", "pub struct Tile;")]);
    assert_eq!(found.between_folders()["roof"], BTreeSet::from(["house"]));
}

#[test]
fn an_error_names_the_unreadable_file() {
    for (text, expected) in [("mod gone;", "gone/mod.rs does not exist"), ("fn {", "lib.rs is not Rust")] {
        let read = |path: &str| (path == "lib.rs").then(|| text.to_owned());
        let error = format!("{:#}", Imports::read(&["lib.rs"], &read).expect_err("a broken crate"));
        assert!(error.contains(expected), "{error}");
    }
}
