//! Whose a request is, told by the number of the port that it came to.
//!
//! Each port of each workload has a TCP port number of its own on every activator. What both planes must agree on lies
//! here: where it is written down who has which number ([`ledger`]), what an activator listens on ([`listeners`]), and
//! what it answers to who asks there ([`answer`]). How numbers are given and taken back is the autoscaler's business.
//!
//! The ledger is the arbiter, and the only one. What an object's status says of its numbers is for people and tools to
//! read: whoever may edit a status, or puts an old one back from a backup, moves nobody's requests by it.

pub mod answer;
pub mod ledger;
pub mod listeners;

pub use ledger::{Block, Entry, Ledger, PortId, State};
