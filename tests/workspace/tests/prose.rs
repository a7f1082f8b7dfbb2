//! Tests of comments and names in Rust files.
//!
//! # Rules
//!
//! - At most 6 % of a crate's doc comments open with a word of [`OPENINGS`]. A doc comment opens with a verb, or with
//!   the name of the thing that it describes.
//! - No module or function has a name of [`VAGUE_NAMES`], and no type one of [`BARE_TYPES`]. Such a name means nothing
//!   to a reader who has not opened the file: `BreakerState` is allowed, `State` is not.
//!
//! # Not here
//!
//! The quality of sentences, which only a reader can judge.

use std::collections::BTreeMap;
use std::path::PathBuf;
use workspace_tests::{metadata, rust_files};

/// First words of a doc comment that do not name its subject.
const OPENINGS: [&str; 16] = [
    "As", "How", "It", "Of", "One that", "One who", "That", "Those", "What", "When", "Where", "Whether", "Who",
    "Whoever", "Whom", "Whose",
];

/// Largest share of a crate's doc comments that may open with one of [`OPENINGS`], in percent.
const OPENINGS_MAX_PERCENT: usize = 6;

/// Names that neither a module nor a function may have.
const VAGUE_NAMES: &str = "\
    asked asking beside_hyper calm carries departure escaped found greedy heard implied inbox keeper kept leaving \
    led lived of orders overdue references remedy roster said scoped seat seen shown spoken standing tally told \
    trim unfinished unread unsaid untold";

/// Names of types that need a qualifier.
const BARE_TYPES: [&str; 8] = ["Found", "Kept", "Outcome", "Seen", "Shared", "Standing", "State", "Way"];

/// Returns the Rust files of each crate, by its name.
fn crates() -> BTreeMap<String, Vec<PathBuf>> {
    let metadata = metadata().no_deps().exec().expect("metadata of the workspace");
    metadata.packages.iter().map(|package| (package.name.to_string(), rust_files(package))).collect()
}

/// Returns the first line of each doc comment in a text.
fn doc_openings(text: &str) -> Vec<&str> {
    let mut openings = Vec::new();
    let mut before = None;
    for line in text.lines().map(str::trim_start) {
        let kind = ["///", "//!"].into_iter().find(|kind| line.starts_with(kind) && !line.starts_with("////"));
        if let Some(kind) = kind
            && before != Some(kind)
        {
            openings.push(line[kind.len()..].trim_start());
        }
        before = kind;
    }
    openings
}

fn lacks_subject(opening: &&str) -> bool {
    OPENINGS.iter().any(|word| opening.strip_prefix(word).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)))
}

#[test]
fn doc_comments_open_with_a_verb_or_a_name() {
    for (name, files) in crates() {
        let texts: Vec<_> = files.iter().map(|file| std::fs::read_to_string(file).expect("readable")).collect();
        let openings: Vec<_> = texts.iter().flat_map(|text| doc_openings(text)).collect();
        let bad: Vec<_> = openings.iter().filter(|opening| lacks_subject(opening)).collect();
        let (count, all) = (bad.len(), openings.len());
        assert!(count * 100 <= all * OPENINGS_MAX_PERCENT, "{name}: {count} of {all}: {bad:#?}");
    }
}

/// Returns keyword and name of the function, module or type that a line of code defines.
fn definition(line: &str) -> Option<(&str, &str)> {
    if !line.starts_with(char::is_alphabetic) {
        return None; // A string or a comment.
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '#';
    let mut words = line.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    let prefixes = ["pub", "crate", "super", "in", "self", "async", "const", "unsafe"];
    let keyword = words.find(|word| !prefixes.contains(word))?;
    let is_definition = ["fn", "mod", "struct", "enum", "trait", "type"].contains(&keyword);
    is_definition.then(|| words.next()).flatten().map(|name| (keyword, name))
}

#[test]
fn no_name_is_vague() {
    let mut vague = Vec::new();
    for file in crates().into_values().flatten() {
        let text = std::fs::read_to_string(&file).expect("readable");
        for (number, line) in text.lines().enumerate() {
            let is_vague = match definition(line.trim_start()) {
                Some(("fn" | "mod", name)) => VAGUE_NAMES.split(' ').any(|vague| vague == name),
                Some(("struct" | "enum" | "trait" | "type", name)) => BARE_TYPES.contains(&name),
                _ => false,
            };
            if is_vague {
                vague.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(vague.is_empty(), "{} vague names:\n{}", vague.len(), vague.join("\n"));
}

#[test]
fn the_rules_find_what_they_forbid() {
    let text = "/// What it is.\nstruct A;\n/// Whatever.\n/// Whose.\nfn b() {}\n//! Name of it.\n";
    let openings = doc_openings(text);
    assert_eq!(openings, ["What it is.", "Whatever.", "Name of it."]);
    assert_eq!(openings.iter().map(lacks_subject).collect::<Vec<_>>(), [true, false, false]);
    let lines = [
        ("pub(crate) async fn told(&self) {", Some(("fn", "told"))),
        ("pub(super) struct State<T> {", Some(("struct", "State"))),
        ("mod kept;", Some(("mod", "kept"))),
        ("type Way = u8;", Some(("type", "Way"))),
        ("let fn_ = 1;", None),
    ];
    for (line, expected) in lines {
        assert_eq!(definition(line), expected, "{line}");
    }
}
