//! PodAutoscalers of a class that this controller does not serve.
//!
//! In a Knative install they are none of its business. In standalone class HPA is served unless `ZEROSCALE_HPA=off`
//! says otherwise; nobody else reconciles it there, so then its status says that it is not served, and what to do:
//! silence would look like a fault. Other foreign classes belong to controllers that
//! we do not know, and hear nothing from us.
//!
//! A PodAutoscaler that was taken up before its class was edited stays ours: the edit is refused, as any that breaks a
//! rule, and its former version stays in force ([`Context::accepted`]). Nobody else would take our mark off.

use crate::reconcile::context::Context;
use crate::reconcile::error::Error;
use autoscaler_core::history::{Action, Obstacle};
use common::RevisionKey as Key;
use common::annotations;
use common_api::PodAutoscaler;
use common_api::condition::{FALSE, READY};
use common_api::condition_set::HasConditions;
use common_controller::status as status_writer;
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
pub(crate) async fn reconcile(cx: &Context, key: &Key, object: &Arc<PodAutoscaler>) -> Result<(), Error> {
    cx.release(key);
    let hpa = annotations::is_hpa(object.annotations());
    if !cx.is_standalone() || !hpa || object.metadata.deletion_timestamp.is_some() {
        cx.ports.deciders.forget(key);
        return Ok(());
    }
    cx.ports.deciders.acted(key, Action::refused(Obstacle::ClassNotServed));
    let (now, generation) = (cx.clock.now(), object.metadata.generation.unwrap_or(0));
    let mut status = object.status.clone().unwrap_or_default();
    status.begin(generation, now);
    status.manage(now).set(READY, FALSE, CLASS_NOT_SERVED, &message());
    status.finish(object.status.as_ref(), generation, now);
    Ok(status_writer::write(cx.writer(), &cx.world.autoscalers, object, status).await?)
}

fn message() -> String {
    format!("{}: {} {NOT_SERVED}, and nothing is scaled", annotations::CLASS.name, annotations::CLASS_HPA)
}
