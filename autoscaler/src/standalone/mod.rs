//! Beside ordinary Deployments: PodAutoscalers that users write, and the Services that are looked after for them.

pub(crate) mod admission;
pub(crate) mod conflict_guard;
pub(crate) mod retire;
pub(crate) mod serverless;
pub(crate) mod unserved;
