//! Resolves paths to the files that define them.

use super::scan::{Module, Path};

/// Maximum number of re-exports that a path may go through. A `use` of a crate under its own name refers to itself.
const DEPTH: usize = 16;

/// Target of a path.
enum Resolved {
    /// A module.
    Module(usize),
    /// An item in a module.
    Item { module: usize, name: String },
    /// Another crate, through a `use` in this one.
    Outside,
}

/// Returns all uses of one file by another: importing and imported file, and the name.
pub(super) fn edges(modules: &[Module]) -> Vec<((String, String), String)> {
    let mut edges = Vec::new();
    for (number, module) in modules.iter().enumerate() {
        let mut add = |to: usize, name: String| {
            let (from, to) = (module.file.clone(), modules[to].file.clone());
            if from != to {
                edges.push(((from, to), name));
            }
        };
        for path in module.imports.iter().chain(&module.mentions) {
            match resolve(modules, number, path, DEPTH) {
                Some(Resolved::Item { module, name }) => add(module, name),
                // The name of a module alone does not count. Paths through it do.
                Some(Resolved::Module(_) | Resolved::Outside) | None => {}
            }
        }
        for path in &module.globs {
            if let Some(Resolved::Module(to)) = resolve(modules, number, path, DEPTH) {
                add(to, "*".into());
            }
        }
    }
    edges
}

/// Resolves a path from a module. Returns `None` for a path into another crate, and for a local name.
fn resolve(modules: &[Module], from: usize, path: &Path, depth: usize) -> Option<Resolved> {
    let depth = depth.checked_sub(1)?;
    let (first, rest) = path.split_first()?;
    let mut place = match first.as_str() {
        "crate" => Resolved::Module(0),
        "self" => Resolved::Module(from),
        "super" => Resolved::Module(modules[from].parent?),
        name => member(modules, from, name, depth)?,
    };
    for name in rest {
        let Resolved::Module(module) = place else { break };
        place = match name.as_str() {
            "self" => Resolved::Module(module),
            "super" => Resolved::Module(modules[module].parent?),
            name => {
                member(modules, module, name, depth).unwrap_or_else(|| Resolved::Item { module, name: name.to_owned() })
            }
        };
    }
    Some(place)
}

/// Resolves a name in a module.
fn member(modules: &[Module], number: usize, name: &str, depth: usize) -> Option<Resolved> {
    let module = &modules[number];
    if let Some(child) = module.children.get(name) {
        return Some(Resolved::Module(*child));
    }
    if module.items.contains(name) {
        return Some(Resolved::Item { module: number, name: name.to_owned() });
    }
    if let Some(path) = module.bindings.get(name) {
        return Some(resolve(modules, number, path, depth).unwrap_or(Resolved::Outside));
    }
    let depth = depth.checked_sub(1)?;
    module.globs.iter().chain(&module.reexported).find_map(|path| match resolve(modules, number, path, depth)? {
        Resolved::Module(other) if other != number => member(modules, other, name, depth),
        _ => None,
    })
}
