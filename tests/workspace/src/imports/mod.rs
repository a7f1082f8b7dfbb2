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

    /// Imports against `order`, a line like `main > discovery registry > net`: what stands further left may use what
    /// stands further right, and what stands side by side may use each other. Names are those of files and folders
    /// directly below `src`.
    ///
    /// # Errors
    /// If a file has no place in the line, or a place has no file.
    pub fn against(&self, order: &str) -> anyhow::Result<Vec<Edge>> {
        let places: BTreeMap<&str, usize> = order
            .split('>')
            .enumerate()
            .flat_map(|(level, names)| names.split_whitespace().map(move |name| (name, level)))
            .collect();
        let top = |file: &str| file.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
        let found: BTreeSet<String> = self.files().map(top).collect();
        for name in &found {
            anyhow::ensure!(places.contains_key(name.as_str()), "{name} has no place in the order: {order}");
        }
        for name in places.keys() {
            anyhow::ensure!(found.contains(*name), "there is no {name}, yet it has a place in the order: {order}");
        }
        let level = |file: &str| places.get(top(file).as_str()).copied();
        Ok(self.edges().filter(|edge| level(&edge.from) > level(&edge.to)).collect())
    }
}
