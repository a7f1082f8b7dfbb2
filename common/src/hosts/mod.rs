//! Whose a host is, where many namespaces share one port.
//!
//! 1. A Service's own names (`NAME.NS`, `NAME.NS.svc`, `NAME.NS.svc.DOMAIN`, `NAME.NS.localhost`) are its namespace's, and a bare `NAME` is one
//!    of the caller's namespace. Nobody claims them for another namespace: [`reserved`].
//! 2. Any other host belongs to one workload: to the one that has it, for as long as it asks for it, else to the oldest
//!    that asks: [`claims`].
//! 3. Who has what is written down where no workload's owner can write: [`ledger`].
//! 4. The [`table`] looks hosts up in that order.
//!
//! The autoscaler does 2 and 3, whoever routes by host 4. Everything here is pure.

pub mod claims;
pub mod ledger;
pub mod reserved;
pub mod table;

#[cfg(test)]
mod tests;
