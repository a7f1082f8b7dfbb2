//! Which source file of a crate uses which other, and by which names.
//!
//! [`Imports::read`] walks the modules from the crate's roots, without those that are compiled for tests alone, and
//! notes each path that leads into another file: in a `use`, in code, in the arguments of a macro. A path that goes
//! through a re-export counts for the file that defines the name, and a re-export by itself for nothing, so a module
//! may gather its children's names without depending on them.
//!
//! A *circle* is a way along imports back to the file where it began, through more than one folder. A file `a.rs` beside
//! a folder `a/` belongs to both folders, as their go-between.
//!
//! # Not here
//!
//! What only a compiler sees: methods called on a value whose type is not named, names that a macro makes up.

mod circles;
mod resolve;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::Context as _;

/// The names by which one file uses another.
pub type Names = BTreeSet<String>;

/// Imports between the files of one crate. Files are named by their path below `src`.
#[derive(Debug, Default)]
pub struct Imports {
    /// Importing file, then imported file.
    uses: BTreeMap<String, BTreeMap<String, Names>>,
    /// All files of the crate.
    files: BTreeSet<String>,
}

/// One file that uses another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The file that imports.
    pub from: String,
    /// The file that is imported.
    pub to: String,
    /// What it imports.
    pub names: Names,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names.iter().map(String::as_str).collect();
        write!(f, "{} -> {}: {}", self.from, self.to, names.join(", "))
    }
}

impl Imports {
    /// Reads a crate. `read` gives the text of a file by its path below `src`, `None` where there is none; `roots` are
    /// files like `lib.rs` and `main.rs`.
    ///
    /// # Errors
    /// Names the file that is missing or is not Rust.
    pub fn read(roots: &[&str], read: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let mut imports = Self::default();
        for root in roots {
            let modules = scan::modules(root, read).with_context(|| format!("the modules of {root}"))?;
            imports.files.extend(modules.iter().map(|module| module.file.clone()));
            for (edge, name) in resolve::edges(&modules) {
                let (from, to) = edge;
                imports.uses.entry(from).or_default().entry(to).or_default().insert(name);
            }
        }
        Ok(imports)
    }

    /// All files that were read.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Every import from one file to another.
    pub fn edges(&self) -> impl Iterator<Item = Edge> {
        self.uses.iter().flat_map(|(from, to)| {
            to.iter().map(|(to, names)| Edge { from: from.clone(), to: to.clone(), names: names.clone() })
        })
    }

    /// Whether no folder holds both files.
    fn apart(&self, a: &str, b: &str) -> bool {
        self.folders(a).iter().all(|folder| !self.folders(b).contains(folder))
    }

    /// The folder that a file lies in, and the one that it is the head of, as `a.rs` is of `a/`.
    fn folders<'a>(&self, file: &'a str) -> Vec<&'a str> {
        let stem = file.strip_suffix(".rs").unwrap_or(file);
        let inside = stem.rsplit_once('/').map_or("", |(folder, _)| folder);
        let child = |name: &String| name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('/'));
        if self.files.iter().any(child) { vec![inside, stem] } else { vec![inside] }
    }

    /// For each import across folders that lies on a circle, the shortest such circle; each circle once.
    pub fn circles(&self) -> Vec<Vec<Edge>> {
        circles::across_folders(self)
    }

    /// For each folder directly below `src`, the other such folders that its files import. Files that lie in no folder
    /// are left out: they put the folders together.
    pub fn between_folders(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut table: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for folder in self.files.iter().filter_map(|file| self.top_folder(file)) {
            table.entry(folder).or_default();
        }
        for (from, imported) in &self.uses {
            let Some(from) = self.top_folder(from) else { continue };
            let others = imported.keys().filter_map(|to| self.top_folder(to)).filter(|to| *to != from);
            table.entry(from).or_default().extend(others);
        }
        table
    }

    /// The folder directly below `src` that holds a file, or whose head the file is, as `a.rs` is of `a/`.
    fn top_folder<'a>(&self, file: &'a str) -> Option<&'a str> {
        self.folders(file)
            .into_iter()
            .map(|folder| folder.split('/').next().unwrap_or_default())
            .find(|top| !top.is_empty())
    }
}
