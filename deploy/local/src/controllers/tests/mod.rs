//! Shared parts of the tests of controllers.

pub(crate) mod fixture;
