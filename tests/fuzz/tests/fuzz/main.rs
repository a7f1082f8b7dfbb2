//! The fuzz targets, one module each. See the crate's text for how to run them longer.

mod config;
mod frames;
mod hosts;
mod references;
mod requests;
mod stats;
