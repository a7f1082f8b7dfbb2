//! What is done with a TCP socket below HTTP.

pub(crate) mod coalesced_write;
pub(crate) mod connect;
pub(crate) mod rebind;
pub(crate) mod state;
pub(crate) mod user_timeout;
