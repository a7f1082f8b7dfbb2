//! Checks the heads of requests, and where their messages end.

pub(crate) mod framing;
pub(crate) mod head_check;
pub(crate) mod references;
