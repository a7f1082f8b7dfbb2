//! A small Kubernetes in one process: API server, controllers, node and both planes.

pub mod api;
pub mod controllers;
pub mod ending;
mod logs;
mod merge;
pub mod node;
mod pool;
mod private_file;
mod retry;
pub mod up;
pub mod usage;

pub use pool::Range;
