//! The autoscaler's rules, without I/O: windows, decider, bounds, scale to zero, path mode.

pub mod sample;
