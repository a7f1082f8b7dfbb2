//! Finds import cycles through more than one folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Edge, Imports};

/// Returns the shortest cycle of each import across folders that is part of one. Each cycle is returned once.
pub(super) fn across_folders(imports: &Imports) -> Vec<Vec<Edge>> {
    let mut known = BTreeSet::new();
    let mut cycles = Vec::new();
    for edge in imports.edges().filter(|edge| imports.are_in_different_folders(&edge.from, &edge.to)) {
        let Some(back) = shortest_path(imports, &edge.to, &edge.from) else { continue };
        let files: BTreeSet<_> = back.iter().map(|edge| edge.from.clone()).chain([edge.from.clone()]).collect();
        if known.insert(files) {
            cycles.push([vec![edge], back].concat());
        }
    }
    cycles
}

/// Returns the shortest path along imports from one file to another.
fn shortest_path(imports: &Imports, from: &str, to: &str) -> Option<Vec<Edge>> {
    let mut previous: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(file) = queue.pop_front() {
        if file == to {
            return Some(steps(imports, &previous, from, file));
        }
        for next in imports.uses.get(file).into_iter().flat_map(BTreeMap::keys) {
            if next != from && !previous.contains_key(next.as_str()) {
                previous.insert(next, file);
                queue.push_back(next);
            }
        }
    }
    None
}

fn steps(imports: &Imports, previous: &BTreeMap<&str, &str>, from: &str, to: &str) -> Vec<Edge> {
    let mut steps = Vec::new();
    let mut file = to;
    while file != from {
        let importer = previous[file];
        let names = imports.uses[importer][file].clone();
        steps.push(Edge { from: importer.into(), to: file.into(), names });
        file = importer;
    }
    steps.reverse();
    steps
}
