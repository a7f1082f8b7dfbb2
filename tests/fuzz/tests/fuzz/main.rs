//! The fuzz targets, one module each. See the crate's text for how to run them longer.

mod config;
mod hosts;
mod requests;
mod stats;
