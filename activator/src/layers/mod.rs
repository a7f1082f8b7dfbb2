//! The chain that every request passes, outermost first:
//!
//! | layer | does | may answer |
//! |---|---|---|
//! | [`probe`] | kubelets, ingresses and autoscalers asking for the activator itself | yes |
//! | [`lookup`] | finds the revision | 404, 503 |
//! | [`relay`] | leads a request to the activator that holds the workload | 421, 502, 503 |
//! | [`request_log`] | writes a line when it is over, if that is asked for | |
//! | [`answers`] | what needs no pod: a page while it wakes, placeholders, static answers | yes |
//! | [`report`] | counts the request for the autoscaler, from here to the end of its body | |
//! | [`timeouts`] | the revision's three bounds of time, held time included | 504 |
//! | [`hold`] | waits for a pod, within bounds; sends; sends elsewhere what was not sent, to another Service what waits too long ([`fallback`]) | 503, 502 |
//!
//! What is no HTTP passes none of them: [`connect`] does for a connection what they do for a request.
//!
//! Each is a `tower` service that is always ready: waiting happens inside its future, where the time bounds see it.
//! Errors are [`Refusal`](crate::refusal::Refusal)s, turned into HTTP once, by [`error_responder`].

pub(crate) mod answers;
pub(crate) mod call;
mod charge;
mod compact;
pub(crate) mod connect;
pub(crate) mod error_responder;
pub(crate) mod fallback;
pub(crate) mod hold;
pub(crate) mod lookup;
pub(crate) mod probe;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod request_log;
mod send;
pub(crate) mod timeouts;
pub(crate) mod trace;
