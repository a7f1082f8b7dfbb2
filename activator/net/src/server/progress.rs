//! State of one client connection, shared by the parts that serve it.

use crate::client::connection_permit::ConnectionPermit;
use crate::server::memory::output::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// State of one connection. Over HTTP/1, one task changes all of it.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) reads: AtomicU32,
    /// Number of complete and valid heads.
    pub(super) heads: AtomicU64,
    /// The client detects the end of the last response only by the end of the connection.
    pub(super) closes_answer: AtomicBool,
    pub(super) permit: Arc<ConnectionPermit>,
    pub(super) output: Arc<Output>,
}

impl Progress {
    pub(super) fn new(permit: Arc<ConnectionPermit>) -> Self {
        let output = Arc::new(Output::new(permit.clone()));
        let (reads, heads, closes_answer) = Default::default();
        Self { reads, heads, closes_answer, permit, output }
    }
}
