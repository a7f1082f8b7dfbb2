//! Connections to pods below HTTP: plain and TLS.

pub(crate) mod stream;
pub(crate) mod tls;
mod turn;
