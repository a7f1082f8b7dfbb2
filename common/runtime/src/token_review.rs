//! Identifies the owner of a token by asking the API server (TokenReview).

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use tokio::time::timeout;

/// Time for which an accepted token is accepted without another review.
pub const GOOD_FOR: Duration = Duration::from_secs(60);
/// Time for which a rejected token is rejected without another review.
pub const BAD_FOR: Duration = Duration::from_secs(10);
/// Longest wait for a review; a peer that connects waits 3 s.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// Reason why the owner of a token is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The API server does not know the token, or not for the audience.
    #[error("its token is not good for audience {0}")]
    Bad(String),
    /// The API server could not be asked. Implies nothing about the token.
    #[error("tokens cannot be reviewed: {0}")]
    Unknown(String),
}

/// Returns the owner of `token`, if it is a token for `audience`.
///
/// # Errors
/// See [`ReviewError`].
pub async fn review(reviews: &Api<TokenReview>, audience: &str, token: &str) -> Result<UserInfo, ReviewError> {
    let spec = TokenReviewSpec { audiences: Some(vec![audience.to_owned()]), token: token.to_owned() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let params = PostParams::default();
    let status = match timeout(TIMEOUT, reviews.create(&params, &review)).await {
        Ok(Ok(review)) => review.status.unwrap_or_default(),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            let why = "this process has no right to create tokenreviews (authentication.k8s.io)";
            return Err(ReviewError::Unknown(why.into()));
        }
        Ok(Err(error)) => return Err(ReviewError::Unknown(error.to_string())),
        Err(_) => return Err(ReviewError::Unknown("the API server does not answer".into())),
    };
    let ours = status.audiences.iter().flatten().any(|known| known == audience);
    match status.authenticated == Some(true) && ours {
        true => Ok(status.user.unwrap_or_default()),
        false => Err(ReviewError::Bad(audience.to_owned())),
    }
}

/// Returns the name of the user's ServiceAccount, if the user is one of `namespace`.
pub fn account<'a>(user: &'a UserInfo, namespace: &str) -> Option<&'a str> {
    let name = user.username.as_deref()?.strip_prefix("system:serviceaccount:")?;
    name.split_once(':').filter(|(of, _)| *of == namespace).map(|(_, account)| account)
}
