//! How stats come in, and to whom they go.

pub mod attest;
pub mod stat_server;
