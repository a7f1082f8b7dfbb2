//! PodAutoscalers of a class that this process does not serve.
//!
//! Class HPA is served unless `ZEROSCALE_HPA=off` says otherwise. Nobody else reconciles it here, so then its status
//! says that it is not served, and what to do: silence would look like a fault. Other foreign classes belong to
//! controllers that we do not know, and hear nothing from us.
//!
//! A PodAutoscaler that was taken up before its class was edited stays ours: the edit is refused, as any that breaks a
//! rule, and its former version stays in force ([`super::validation`]). Nobody else would remove our finalizer.

use crate::reconcile::error::Error;
use crate::reconcile::records::Subjects;
use crate::scale::Deciders;
use autoscaler_core::history::{Action, Obstacle};
use common::RevisionKey as Key;
use common::annotations;
use common_api::PodAutoscaler;
use common_api::condition::{FALSE, READY};
use common_api::condition_set::HasConditions;
use common_runtime::clock::Clock;
use kube::ResourceExt;
use std::sync::Arc;

/// What is wrong with a class, and what to do.
pub(crate) const NOT_SERVED: &str = "is not served here (ZEROSCALE_HPA=off): use kpa.autoscaling.knative.dev, or a \
                                     HorizontalPodAutoscaler of your own without a PodAutoscaler";
/// Reason: nobody reconciles this class here.
pub(crate) const CLASS_NOT_SERVED: &str = "ClassNotServed";

/// One pass over one PodAutoscaler of another class that this process leads.
///
/// # Errors
/// The API server's.
pub(super) async fn decline(
    subjects: &dyn Subjects,
    clock: &Clock,
    deciders: &dyn Deciders,
    key: &Key,
    object: &Arc<PodAutoscaler>,
) -> Result<(), Error> {
    if !annotations::is_hpa(object.annotations()) || object.metadata.deletion_timestamp.is_some() {
        deciders.forget(key);
        return Ok(());
    }
    deciders.acted(key, Action::refused(Obstacle::ClassNotServed));
    let (now, generation) = (clock.now(), object.metadata.generation.unwrap_or(0));
    let mut said = object.status.clone().unwrap_or_default();
    said.begin(generation, now);
    said.manage(now).set(READY, FALSE, CLASS_NOT_SERVED, &message());
    said.finish(object.status.as_ref(), generation, now);
    Ok(subjects.write(object, said).await?)
}

fn message() -> String {
    format!("{}: {} {NOT_SERVED}, and nothing is scaled", annotations::CLASS.name, annotations::CLASS_HPA)
}
