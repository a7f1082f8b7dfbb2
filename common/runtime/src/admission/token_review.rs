//! Identifies the owner of a token by asking the API server (TokenReview).

use super::TokenError;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for a review; a peer that connects waits 3 s.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the owner of `token`, if it is a token for `audience`. Fails if the token is unknown or not for `audience`,
/// or if the API server cannot be asked.
pub(super) async fn review(reviews: &Api<TokenReview>, audience: &str, token: &str) -> Result<UserInfo, TokenError> {
    let spec = TokenReviewSpec { audiences: Some(vec![audience.to_owned()]), token: token.to_owned() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let params = PostParams::default();
    let status = match timeout(TIMEOUT, reviews.create(&params, &review)).await {
        Ok(Ok(review)) => review.status.unwrap_or_default(),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            let why = "this process lacks the permission to create tokenreviews (authentication.k8s.io)";
            return Err(TokenError::Unknown(why.into()));
        }
        Ok(Err(error)) => return Err(TokenError::Unknown(error.to_string())),
        Err(_) => return Err(TokenError::Unknown("the API server does not respond".into())),
    };
    let is_for_us = status.audiences.iter().flatten().any(|known| known == audience);
    let is_good = status.authenticated == Some(true) && is_for_us;
    if is_good { Ok(status.user.unwrap_or_default()) } else { Err(TokenError::BadToken(audience.to_owned())) }
}

/// Returns the name of the user's ServiceAccount, if the user is one of `namespace`.
pub(super) fn account<'a>(user: &'a UserInfo, namespace: &str) -> Option<&'a str> {
    let name = user.username.as_deref()?.strip_prefix("system:serviceaccount:")?;
    name.split_once(':').filter(|(owner, _)| *owner == namespace).map(|(_, account)| account)
}
