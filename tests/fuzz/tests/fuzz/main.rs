//! Fuzz targets, one module each. See the crate documentation for longer runs.

mod config;
mod frames;
mod hosts;
mod references;
mod requests;
mod stats;
