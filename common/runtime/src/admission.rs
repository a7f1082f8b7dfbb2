//! Verifies that a peer is a plane: an activator, with its Pod, or an autoscaler.
//!
//! If enabled ([`Demand`]), a peer must present a ServiceAccount token for our audience, which the API server verifies
//! (TokenReview). An activator's token must be bound to a Pod, and its stats and attestations must carry that Pod's
//! name. So a compromised activator can misreport only its own load. An autoscaler's token may forward any stats. No
//! other process in the cluster can scale a workload up or down, share limits with activators, or ask them for their
//! bound ports.
//!
//! # Edge cases
//!
//! - Review results are cached: success for [`GOOD_FOR`], failure for [`BAD_FOR`]. So many activators that reconnect at
//!   once cost one review each, and a stranger that keeps trying costs one in ten seconds. At most [`REVIEWED_MAX`]
//!   results of each kind are cached, so failures displace no success.
//! - An address that makes up tokens gets reviews at the rate of [`review_limiter`], and 429 beyond it. Tokens with a
//!   cached success, and other addresses, are not affected.
//! - If the API server does not respond, the response is 503. No result is cached and no refusal counted, but the
//!   address has used up one review. The peer connects again. Existing connections continue.
//! - A token is checked when its connection begins and not again later. Expiry of the token, or deletion of its Pod,
//!   ends no connection, as with Kubernetes' own watches. Once its cached review is too old, it opens no new
//!   connection.
//! - Refusals are counted. Each reason is logged once a minute, however many peers cause it.

mod review_limiter;
#[cfg(test)]
mod tests;
mod token_review;

use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, UserInfo};
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use review_limiter::ReviewLimiter;
use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which an accepted token is accepted without another review.
pub const GOOD_FOR: Duration = Duration::from_secs(60);
/// Time for which a rejected token is rejected without another review.
pub const BAD_FOR: Duration = Duration::from_secs(10);
/// Maximum number of cached successes, and of cached failures. A cluster has fewer planes.
pub const REVIEWED_MAX: usize = 1024;
/// Time for which a logged reason is not repeated.
const QUIET: Duration = Duration::from_secs(60);
/// Longest token that is accepted.
const TOKEN_MAX: usize = 16 * 1024;
/// Key under which the API server names the Pod that a token is bound to.
const POD: &str = "authentication.kubernetes.io/pod-name";

/// ServiceAccount of the activators.
const ACTIVATOR: &str = "activator";

/// Requirements on peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Audience of the tokens.
    pub audience: String,
    /// Namespace of the ServiceAccounts.
    pub namespace: String,
    /// ServiceAccount of the autoscalers.
    pub autoscaler: String,
}

impl Demand {
    /// Requires tokens for `audience` from the planes in `namespace`; `autoscaler` is the autoscalers' account.
    pub fn of_planes(audience: &str, namespace: &str, autoscaler: &str) -> Self {
        let [audience, namespace, autoscaler] = [audience, namespace, autoscaler].map(str::to_owned);
        Self { audience, namespace, autoscaler }
    }

    fn peer(&self, user: &UserInfo) -> Result<Peer, TokenError> {
        match token_review::account(user, &self.namespace) {
            Some(account) if account == self.autoscaler => Ok(Peer::Autoscaler),
            Some(account) if account == ACTIVATOR => {
                let pod = user.extra.as_ref().and_then(|extra| extra.get(POD)).and_then(|pods| pods.first());
                pod.map(|pod| Peer::Activator(pod.as_str().into())).ok_or(TokenError::Unbound)
            }
            _ => Err(TokenError::Stranger(user.username.clone().unwrap_or_default())),
        }
    }
}

/// Verified identity of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An activator in this Pod.
    Activator(Arc<str>),
    /// An autoscaler.
    Autoscaler,
}

/// Reason why a handshake was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is no `Authorization: Bearer`.
    #[error("the peer presents no token")]
    NoToken,
    /// The API server does not know the token, or not for our audience.
    #[error("the API server does not accept the peer's token for audience {0}")]
    BadToken(String),
    /// The token belongs to another account.
    #[error("the peer's token belongs to {0}, which is neither an activator nor an autoscaler")]
    Stranger(String),
    /// The activator's token is not bound to a Pod.
    #[error("the activator's token is not bound to a Pod")]
    Unbound,
    /// An activator acts as an autoscaler.
    #[error("the peer is an activator, and only autoscalers may forward stats and send queries")]
    NoAutoscaler,
    /// Too many unknown tokens came from this address.
    #[error("too many unknown tokens came from the peer's address")]
    TooMany,
    /// The token could not be reviewed.
    #[error("the peer's token cannot be reviewed: {0}")]
    Unknown(String),
}

impl TokenError {
    /// Returns the status of the response, which reveals nothing about the cluster.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::BadToken(_) => StatusCode::UNAUTHORIZED,
            Self::Stranger(_) | Self::Unbound | Self::NoAutoscaler => StatusCode::FORBIDDEN,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unknown(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Result of a review, and the time until which it is cached.
type Reviewed = (Result<Peer, TokenError>, Instant);

/// Verifies planes.
pub struct Gate {
    demand: Demand,
    reviews: Api<TokenReview>,
    /// Cached successes and cached failures, by token.
    reviewed: Mutex<[HashMap<String, Reviewed>; 2]>,
    limiter: Mutex<ReviewLimiter>,
    refusals: Counter,
    /// Time at which each reason was last logged.
    logged: Mutex<HashMap<Discriminant<TokenError>, Instant>>,
}

impl Gate {
    /// Creates a gate that reviews tokens with the API server of `client`.
    pub fn new(demand: Demand, client: Client) -> Self {
        Self {
            demand,
            reviews: Api::all(client),
            reviewed: Mutex::default(),
            limiter: Mutex::default(),
            refusals: Counter::default(),
            logged: Mutex::default(),
        }
    }

    /// Returns the counter of refusals.
    pub fn refusals(&self) -> &Counter {
        &self.refusals
    }

    /// Verifies a peer by its token. With `is_autoscaler`, the peer must be an autoscaler. Fails if the peer is not a
    /// plane, or not an autoscaler although it must be one.
    pub async fn admit(&self, token: Option<&str>, is_autoscaler: bool, from: IpAddr) -> Result<Peer, TokenError> {
        let admitted = match token {
            Some(token) => self.identify(token, from).await,
            None => Err(TokenError::NoToken),
        };
        let admitted = match admitted {
            Ok(Peer::Activator(_)) if is_autoscaler => Err(TokenError::NoAutoscaler),
            other => other,
        };
        if let Err(refused) = &admitted {
            if !matches!(refused, TokenError::Unknown(_)) {
                self.refusals.inc();
            }
            if self.is_log_due(refused, Instant::now()) {
                tracing::warn!(%from, reason = %refused, "a peer was refused; check the token that is mounted in its pod");
            }
        }
        admitted
    }

    /// Reports whether a refusal must be logged now, and records that.
    fn is_log_due(&self, refused: &TokenError, now: Instant) -> bool {
        let mut logged = self.logged.lock();
        let last_report = logged.get(&discriminant(refused));
        let is_new = last_report.is_none_or(|at| now.duration_since(*at) >= QUIET);
        if is_new {
            logged.insert(discriminant(refused), now);
        }
        is_new
    }

    async fn identify(&self, token: &str, from: IpAddr) -> Result<Peer, TokenError> {
        let now = Instant::now();
        let is_valid = |(_, until): &&Reviewed| now < *until;
        let cached = self.reviewed.lock().iter().find_map(|results| results.get(token).filter(is_valid).cloned());
        if let Some((result, _)) = cached {
            return result;
        }
        if !self.limiter.lock().take(from, now) {
            return Err(TokenError::TooMany);
        }
        let user = token_review::review(&self.reviews, &self.demand.audience, token).await;
        let peer = user.and_then(|user| self.demand.peer(&user));
        let now = Instant::now();
        if peer.is_ok() {
            self.limiter.lock().give_back(from, now);
        }
        if !matches!(peer, Err(TokenError::Unknown(_))) {
            self.cache(token, &peer, now);
        }
        peer
    }

    fn cache(&self, token: &str, peer: &Result<Peer, TokenError>, now: Instant) {
        let mut reviewed = self.reviewed.lock();
        let [good, bad] = &mut *reviewed;
        let (results, valid_for) = if peer.is_ok() { (good, GOOD_FOR) } else { (bad, BAD_FOR) };
        if results.len() >= REVIEWED_MAX {
            results.retain(|_, (_, until)| now < *until);
        }
        if results.len() < REVIEWED_MAX {
            results.insert(token.to_owned(), (peer.clone(), now + valid_for));
        }
    }
}

/// Returns the bearer token in the headers.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let token = value.strip_prefix("Bearer ")?.trim();
    (!token.is_empty() && token.len() <= TOKEN_MAX).then_some(token)
}
