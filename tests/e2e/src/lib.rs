//! The whole system over real sockets: shared parts of the tests in `tests/`.
//!
//! A [`TestEnv`] is one embedded cluster, or the cluster that `E2E_KUBECONFIG` names, with a namespace for one test.
//! Requests enter through the workload's Service, or go directly to an activator with only a Host header ([`Entry`]).
//! A [`Space`] is only the namespace, for tests that start the parts of a cluster as separate [`Process`]es. No test
//! sleeps until something should have happened: tests wait for the state itself, with a time limit. Unless stated
//! otherwise, fallible functions here fail if a request is rejected, or if a state is not reached in time.

pub mod accounts;
pub mod bare;
pub mod browser;
pub mod counting;
pub mod kubelet;
pub mod load;
pub mod multi_activator_cluster;
pub mod netns;
pub mod parts;
pub mod process;
pub mod relay;
pub mod server;
pub mod soak;
pub mod space;
pub mod stalls;
pub mod streams;
pub mod talk;
pub mod tap;
pub mod test_env;
pub mod up;
pub mod workload;

pub use counting::{CountGuard, CountingPods};
pub use load::{Answer, Clients, Load, LoadOutcome};
pub use multi_activator_cluster::MultiActivatorCluster;
pub use process::Process;
pub use space::Space;
pub use test_env::{Entry, TestEnv};
pub use workload::{Gate, Workload};
