//! An operator's installation: manifests that an API server accepts, exactly sufficient permissions, and a stat link
//! that only the planes can use.

mod chart;
mod components;
mod exposure;
mod faults;
mod images;
pub(crate) mod manifests;
mod manual;
mod names;
mod namespaced;
mod nginx;
mod releases;
pub(crate) mod rights;
mod sharing;
pub(crate) mod site;
mod tokens;
mod upgrade;
