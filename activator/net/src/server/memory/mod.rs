//! Memory of clients' connections, within the limit of the process.

pub(crate) mod connection_memory;
pub(crate) mod output;
