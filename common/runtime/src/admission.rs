//! Proves that a peer is a plane: an activator, in its Pod, or an autoscaler.
//!
//! Where it is asked for ([`Demand`]), a peer must show a ServiceAccount's token for our audience, which the API server is
//! asked about (TokenReview). An activator's token must be bound to a Pod. Stats and attestations must carry that Pod's
//! name: an activator that was taken over can lie about its own load and nobody else's. An autoscaler's token may forward
//! anybody's. Nobody else in the cluster can make a workload grow or fall asleep, keep a limit together with activators,
//! or ask them which ports they have bound.
//!
//! # Odd cases
//!
//! - What a review said is kept, a good word for [`GOOD_FOR`] and a bad one for [`BAD_FOR`], so that activators that
//!   come back all at once cost one review each, and a stranger who keeps knocking costs one in ten seconds. At most
//!   [`REVIEWED_MAX`] of either sort, so that bad words push out no good one.
//! - A stranger who makes up new tokens is asked about at the pace of [`review_limiter`], and refused with 429
//!   beyond it. Tokens that are known to be good, and other addresses, do not wait for that.
//! - The API server does not answer: 503, and nothing is kept or counted but the review, which its address has used up;
//!   the peer dials again. Connections that stand go on.
//! - A token is looked at when its connection begins, and not again while that lasts: one that expires, or whose Pod
//!   goes, ends nothing that stands, as with Kubernetes' own watches. It opens no new connection, once its review is
//!   too old.
//! - A refusal is counted, and each reason is said once a minute, however many peers take turns at it.

mod review_limiter;
#[cfg(test)]
mod tests;

pub use crate::token_review::{BAD_FOR, GOOD_FOR};

use crate::token_review::{self, ReviewError};
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

/// Good words kept at most, and bad ones. A cluster has fewer planes.
pub const REVIEWED_MAX: usize = 1024;
/// How long a reason is not said again.
const QUIET: Duration = Duration::from_secs(60);
/// Longest token that is looked at.
const TOKEN_MAX: usize = 16 * 1024;
/// Where the API server says which Pod a token is bound to.
const POD: &str = "authentication.kubernetes.io/pod-name";

/// What is asked of peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The audience that tokens must be for.
    pub audience: String,
    /// Namespace of the ServiceAccounts.
    pub namespace: String,
    /// The activators' ServiceAccount.
    pub activator: String,
    /// The autoscalers'.
    pub autoscaler: String,
}

impl Demand {
    /// Tokens for `audience` of `namespace`'s planes; `autoscaler` is the account of the autoscalers.
    pub fn of_planes(audience: &str, namespace: &str, autoscaler: &str) -> Self {
        let [audience, namespace, activator, autoscaler] =
            [audience, namespace, "activator", autoscaler].map(str::to_owned);
        Self { audience, namespace, activator, autoscaler }
    }
}

/// Who a peer has proven to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An activator, in this Pod.
    Activator(Arc<str>),
    /// An autoscaler.
    Autoscaler,
}

/// Why a handshake was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No `Authorization: Bearer`.
    #[error("it carries no token")]
    NoToken,
    /// The API server does not know the token, or not for our audience.
    #[error("its token is not good for audience {0}")]
    BadToken(String),
    /// A token of somebody else.
    #[error("its token is that of {0}, who has no part in this")]
    Stranger(String),
    /// An activator whose token is not bound to a Pod.
    #[error("its token is not bound to a Pod")]
    Unbound,
    /// An activator that acts as an autoscaler.
    #[error("it is an activator, and only autoscalers forward and ask")]
    NoAutoscaler,
    /// Too many unknown tokens have come from its address.
    #[error("too many unknown tokens have come from its address")]
    TooMany,
    /// Nobody could be asked.
    #[error("tokens cannot be reviewed: {0}")]
    Unknown(String),
}

impl TokenError {
    /// What the peer is answered; it learns nothing about the cluster.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::BadToken(_) => StatusCode::UNAUTHORIZED,
            Self::Stranger(_) | Self::Unbound | Self::NoAutoscaler => StatusCode::FORBIDDEN,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unknown(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// What is known of a token, and until when.
#[derive(Clone)]
struct Reviewed {
    peer: Result<Peer, TokenError>,
    until: Instant,
}

/// Decides who is a plane.
pub struct Gate {
    demand: Demand,
    reviews: Api<TokenReview>,
    /// Good words, and bad ones.
    reviewed: Mutex<[HashMap<String, Reviewed>; 2]>,
    limiter: Mutex<ReviewLimiter>,
    refusals: Counter,
    /// When each reason was said last.
    logged: Mutex<HashMap<Discriminant<TokenError>, Instant>>,
}

impl Gate {
    /// Reviews tokens at the API server of `client`.
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

    /// Number of refusals.
    pub fn refusals(&self) -> &Counter {
        &self.refusals
    }

    /// Proves a peer by this token; with `is_autoscaler`, it acts as an autoscaler.
    ///
    /// # Errors
    /// It is no plane, or another one.
    pub async fn admit(&self, token: Option<&str>, is_autoscaler: bool, from: IpAddr) -> Result<Peer, TokenError> {
        let admitted = match token {
            Some(token) => self.known(token, from).await,
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
            if self.is_worth_saying(refused, Instant::now()) {
                tracing::warn!(%from, reason = %refused, "a peer was refused; see the token that it is given");
            }
        }
        admitted
    }

    fn is_worth_saying(&self, refused: &TokenError, now: Instant) -> bool {
        let mut logged = self.logged.lock();
        let said = logged.get(&discriminant(refused));
        let is_new = said.is_none_or(|at| now.duration_since(*at) >= QUIET);
        if is_new {
            logged.insert(discriminant(refused), now);
        }
        is_new
    }

    async fn known(&self, token: &str, from: IpAddr) -> Result<Peer, TokenError> {
        let now = Instant::now();
        if let Some(reviewed) = self.kept(token, now) {
            return reviewed.peer;
        }
        if !self.limiter.lock().take(from, now) {
            return Err(TokenError::TooMany);
        }
        let peer = self.review(token).await;
        let now = Instant::now();
        if peer.is_ok() {
            self.limiter.lock().give_back(from, now);
        }
        if !matches!(peer, Err(TokenError::Unknown(_))) {
            self.keep(token, &peer, now);
        }
        peer
    }

    fn kept(&self, token: &str, now: Instant) -> Option<Reviewed> {
        let reviewed = self.reviewed.lock();
        let known = reviewed.iter().find_map(|known| known.get(token).filter(|reviewed| now < reviewed.until));
        known.cloned()
    }

    fn keep(&self, token: &str, peer: &Result<Peer, TokenError>, now: Instant) {
        let mut reviewed = self.reviewed.lock();
        let [good, bad] = &mut *reviewed;
        let (known, lasts) = if peer.is_ok() { (good, GOOD_FOR) } else { (bad, BAD_FOR) };
        if known.len() >= REVIEWED_MAX {
            known.retain(|_, reviewed| now < reviewed.until);
        }
        if known.len() < REVIEWED_MAX {
            known.insert(token.to_owned(), Reviewed { peer: peer.clone(), until: now + lasts });
        }
    }

    async fn review(&self, token: &str) -> Result<Peer, TokenError> {
        match token_review::review(&self.reviews, &self.demand.audience, token).await {
            Ok(user) => self.demand.peer(&user),
            Err(ReviewError::Bad(audience)) => Err(TokenError::BadToken(audience)),
            Err(ReviewError::Unknown(why)) => Err(TokenError::Unknown(why)),
        }
    }
}

impl Demand {
    fn peer(&self, user: &UserInfo) -> Result<Peer, TokenError> {
        match token_review::account(user, &self.namespace) {
            Some(account) if account == self.autoscaler => Ok(Peer::Autoscaler),
            Some(account) if account == self.activator => {
                let pod = user.extra.as_ref().and_then(|extra| extra.get(POD)).and_then(|pods| pods.first());
                pod.map(|pod| Peer::Activator(pod.as_str().into())).ok_or(TokenError::Unbound)
            }
            _ => Err(TokenError::Stranger(user.username.clone().unwrap_or_default())),
        }
    }
}

/// The token that headers carry.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let token = value.strip_prefix("Bearer ")?.trim();
    (!token.is_empty() && token.len() <= TOKEN_MAX).then_some(token)
}
