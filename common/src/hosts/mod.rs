//! Decides which workload owns a host if many namespaces share one port.
//!
//! 1. A Service's own names (`NAME.NS`, `NAME.NS.svc`, `NAME.NS.svc.DOMAIN`, `NAME.NS.localhost`) belong to its
//!    namespace. A bare `NAME` means a Service in the caller's namespace. No other namespace may claim these names:
//!    [`reserved`].
//! 2. Any other host belongs to one workload: to its current owner while that workload claims it, else to the oldest
//!    workload that claims it: [`claims`].
//! 3. Grants are recorded where no tenant can write: [`ledger`].
//! 4. The [`table`] looks hosts up in that order.
//!
//! The autoscaler does 2 and 3. Components that route by host do 4. Everything here is pure.

pub mod claims;
pub mod ledger;
pub mod reserved;
pub mod table;

#[cfg(test)]
mod tests;
