//! Checks the heads of requests, and where their messages end.

pub(crate) mod field_repetition;
pub(crate) mod framing;
pub(crate) mod head_check;
