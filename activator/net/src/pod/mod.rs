//! A connection to a pod, below HTTP: in plain, and encrypted.

pub(crate) mod stream;
pub(crate) mod tls;
