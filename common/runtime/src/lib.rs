//! I/O that both planes need. Each module has one purpose and depends on neither plane.

pub mod admin;
pub mod admin_tls;
pub mod admission;
pub mod api_server;
pub mod api_version;
pub mod bounded_accept;
pub mod clock;
pub mod config_map;
pub mod credential;
pub mod descriptor;
pub mod environment;
pub mod exchange;
pub mod failure_log;
pub mod lease;
pub mod listen;
pub mod namespaces;
pub mod observe;
pub mod process;
pub mod resolve;
pub mod shutdown;
pub mod stat_tls;
pub mod telemetry;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod watching;
pub mod websocket;
