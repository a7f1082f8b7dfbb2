//! The activator on real sockets: one program, so that it is linked once. See [`rig`] for what is around it.

mod bounds;
mod clients;
mod cold_start;
mod expect;
mod full_queue;
mod grpc;
mod hostile;
mod hostile_pods;
mod http;
mod kubernetes;
mod pods;
mod pressure;
mod protocols;
mod requeue;
mod rig;
mod shares;
mod silence;
mod terminating_pods;
mod tls;
mod tls_life;
mod tools;
mod tracing;
mod uploads;
mod waking;
