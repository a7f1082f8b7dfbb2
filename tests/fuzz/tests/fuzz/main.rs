//! Fuzz targets, one module each. See the crate documentation for longer runs.

mod config;
mod frames;
mod hosts;
mod requests;
mod scale_targets;
mod stats;
