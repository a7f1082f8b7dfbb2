//! The activator on real sockets: one program, so that it is linked once. See [`rig`] for what is around it.

mod bounds;
mod cold_start;
mod departure;
mod http;
mod kubernetes;
mod pods;
mod rig;
mod silence;
