//! Reads the modules of a crate: their items, the names that they bring into scope, and the paths in their code.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, Meta, Token, UseTree, Visibility};

/// Segments of a path.
pub(super) type Path = Vec<String>;

/// Module, in its own file or inline.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Path of its file below `src`.
    pub(super) file: String,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    /// Names that the module defines.
    pub(super) items: BTreeSet<String>,
    /// Names that a `use` brings into scope, with their paths.
    pub(super) bindings: BTreeMap<String, Path>,
    /// Paths of private `use`s. They count even if the code does not contain the name, since it may call a trait's
    /// methods.
    pub(super) imports: BTreeSet<Path>,
    /// Modules that are imported as a whole, privately.
    pub(super) globs: BTreeSet<Path>,
    /// Modules that are re-exported as a whole.
    pub(super) reexported: BTreeSet<Path>,
    /// Paths in code.
    pub(super) mentions: BTreeSet<Path>,
}

/// Reads all modules below a root, the root first, without those that are compiled only for tests.
pub(super) fn modules(root: &str, read: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Vec<Module>> {
    let mut reader = Reader { read, modules: Vec::new() };
    reader.file(root.to_owned(), "", None)?;
    Ok(reader.modules)
}

struct Reader<'a> {
    read: &'a dyn Fn(&str) -> Option<String>,
    modules: Vec<Module>,
}

impl Reader<'_> {
    /// Reads a file as a module whose children are in `folder`, which is empty or ends with a slash.
    fn file(&mut self, file: String, folder: &str, parent: Option<usize>) -> anyhow::Result<usize> {
        let text = (self.read)(&file).with_context(|| format!("{file} does not exist"))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{file} is not Rust"))?;
        self.module(&file, folder, parent, &parsed.items)
    }

    fn module(&mut self, file: &str, folder: &str, parent: Option<usize>, items: &[Item]) -> anyhow::Result<usize> {
        let number = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        for item in items.iter().filter(|item| !is_test_only(attributes(item))) {
            if let Item::Mod(child) = item {
                let child_number = self.child(file, folder, number, child)?;
                self.modules[number].children.insert(child.ident.to_string(), child_number);
            } else {
                let module = &mut self.modules[number];
                module.items.extend(name(item));
                Collector { module }.visit_item(item);
            }
        }
        Ok(number)
    }

    fn child(&mut self, file: &str, folder: &str, parent: usize, child: &ItemMod) -> anyhow::Result<usize> {
        let below = format!("{folder}{}/", child.ident);
        if let Some((_, items)) = &child.content {
            return self.module(file, &below, Some(parent), items);
        }
        let beside = format!("{folder}{}.rs", child.ident);
        let inside = format!("{below}mod.rs");
        let found = if (self.read)(&beside).is_some() { beside } else { inside };
        self.file(found, &below, Some(parent))
    }
}

/// Visitor that records the uses in one module.
struct Collector<'a> {
    module: &'a mut Module,
}

impl Collector<'_> {
    /// Records the names that a `use` brings into scope.
    fn collect_use(&mut self, tree: &UseTree, before: &[String], public: bool) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.collect_use(&path.tree, &with(path.ident.to_string()), public),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.collect_use(tree, before, public)),
            UseTree::Glob(_) if public => drop(self.module.reexported.insert(before.to_vec())),
            UseTree::Glob(_) => drop(self.module.globs.insert(before.to_vec())),
            UseTree::Name(name) if name.ident == "self" => {
                self.bind(before.last().cloned().unwrap_or_default(), before.to_vec(), public);
            }
            UseTree::Name(name) => self.bind(name.ident.to_string(), with(name.ident.to_string()), public),
            UseTree::Rename(rename) if rename.ident == "self" => {
                self.bind(rename.rename.to_string(), before.to_vec(), public);
            }
            UseTree::Rename(rename) => self.bind(rename.rename.to_string(), with(rename.ident.to_string()), public),
        }
    }

    fn bind(&mut self, name: String, path: Path, public: bool) {
        if !public {
            self.module.imports.insert(path.clone());
        }
        if name != "_" {
            self.module.bindings.insert(name, path);
        }
    }

    /// Records paths among the tokens of a macro's arguments.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Path::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.mention(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.mention(path);
    }

    fn mention(&mut self, path: Path) {
        if !path.is_empty() {
            self.module.mentions.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            item if is_test_only(attributes(item)) => {}
            Item::Use(item) if item.leading_colon.is_none() => {
                self.collect_use(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
            }
            Item::Use(_) => {}
            item => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        if !is_test_only(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.mention(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }

    /// Skips attributes: they name helpers of derives, not modules.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// Returns true if code with these attributes is compiled only for tests.
fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let meta = attribute.parse_args::<Meta>();
        meta.is_ok_and(|meta| needs_test(&meta))
    })
}

/// Returns true if a condition holds only in tests.
fn needs_test(condition: &Meta) -> bool {
    let parts = || match condition {
        Meta::List(list) => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .map(|parts| parts.into_iter().collect::<Vec<_>>())
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    match condition.path().get_ident().map(ToString::to_string).as_deref() {
        Some("test") => true,
        Some("all") => parts().iter().any(needs_test),
        Some("any") => parts().iter().all(needs_test) && !parts().is_empty(),
        _ => false,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the name that an item defines.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
