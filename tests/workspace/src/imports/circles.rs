//! Finds circles of imports that pass through more than one folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Edge, Imports};

/// Returns, for each import across folders that lies on a circle, the shortest such circle; each circle once.
pub(super) fn across_folders(imports: &Imports) -> Vec<Vec<Edge>> {
    let mut known = BTreeSet::new();
    let mut circles = Vec::new();
    for edge in imports.edges().filter(|edge| imports.apart(&edge.from, &edge.to)) {
        let Some(back) = way(imports, &edge.to, &edge.from) else { continue };
        let files: BTreeSet<_> = back.iter().map(|edge| edge.from.clone()).chain([edge.from.clone()]).collect();
        if known.insert(files) {
            circles.push([vec![edge], back].concat());
        }
    }
    circles
}

/// Returns the shortest path along imports from one file to another.
fn way(imports: &Imports, from: &str, to: &str) -> Option<Vec<Edge>> {
    let mut came: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(file) = open.pop_front() {
        if file == to {
            return Some(steps(imports, &came, from, file));
        }
        for next in imports.uses.get(file).into_iter().flat_map(BTreeMap::keys) {
            if next != from && !came.contains_key(next.as_str()) {
                came.insert(next, file);
                open.push_back(next);
            }
        }
    }
    None
}

fn steps(imports: &Imports, came: &BTreeMap<&str, &str>, from: &str, to: &str) -> Vec<Edge> {
    let mut steps = Vec::new();
    let mut file = to;
    while file != from {
        let previous = came[file];
        let names = imports.uses[previous][file].clone();
        steps.push(Edge { from: previous.into(), to: file.into(), names });
        file = previous;
    }
    steps.reverse();
    steps
}
