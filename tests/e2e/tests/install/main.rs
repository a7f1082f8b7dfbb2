//! What an operator installs: manifests that an API server takes, rights that are enough and no more, and a stat link that
//! only the planes can use.

mod images;
mod manifests;
mod rights;
mod tokens;
