//! Custom resources: types, conditions, validation, CRDs.
//!
//! [`zeroscaler`] is Zeroscale's own resource and the only one that standalone uses. The others are shared with Knative
//! Serving, one file for each kind; their groups, names and serialized forms are Knative's.

#![allow(
    clippy::duplicated_attributes,
    reason = "each printer column is an attribute `printcolumn` with the same keys"
)]

pub mod condition;
pub mod condition_set;
pub mod crds;
pub mod metric;
pub mod metric_status;
pub mod numbers;
pub mod podautoscaler;
pub mod podautoscaler_status;
pub mod revision;
pub mod serverlessservice;
pub mod serverlessservice_status;
pub mod validation;
pub mod zeroscaler;

pub use condition::Condition;
pub use condition_set::HasConditions;
pub use crds::crds;
pub use metric::{Metric, MetricSpec, MetricStatus};
pub use podautoscaler::{PodAutoscaler, PodAutoscalerSpec, PodAutoscalerStatus, Reachability};
pub use revision::{Revision, RevisionSpec};
pub use serverlessservice::{Mode, ServerlessService, ServerlessServiceSpec, ServerlessServiceStatus};
pub use zeroscaler::{ZeroScaler, ZeroScalerSpec, ZeroScalerStatus};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reference to the scaled object, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group and version, such as `apps/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind, such as `Deployment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
