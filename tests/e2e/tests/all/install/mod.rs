//! What an operator installs: manifests that an API server takes, rights that are enough and no more, and a stat link
//! that only the planes can use.

mod chart;
mod components;
mod exposure;
mod faults;
mod images;
mod kustomize;
mod manifests;
mod manual;
mod names;
mod namespaced;
mod nginx;
mod releases;
pub(crate) mod rights;
mod sharing;
mod site;
mod tokens;
mod upgrade;
