//! What an operator installs: manifests that an API server takes, and rights that are enough and no more.

mod manifests;
mod rights;
