//! Admission of requests: they must name the server by a loopback address, and may carry a token.
//!
//! A web page can make a browser send requests to loopback under a name that the page's owner points there (DNS
//! rebinding). So `Host` must be a loopback address or `localhost`, and an `Origin`, which browsers add, must be the
//! server itself. After that, the token is checked. [`super::rbac`] decides what the caller may do.

use std::net::IpAddr;

use http::Request;
use http::header::{AUTHORIZATION, HOST, ORIGIN};

use super::identity::{Caller, Tokens};
use super::status::ApiError;
use super::store::Store;

/// Identifies the caller. Rejects requests from foreign pages and with unknown tokens.
pub(crate) fn admit<B>(request: &Request<B>, tokens: &Tokens, store: &Store) -> Result<Caller, ApiError> {
    let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = request.uri().authority().map(|authority| authority.as_str()).or_else(|| header(HOST));
    let host = host.unwrap_or_default();
    if !is_loopback(host) {
        return Err(ApiError::forbidden(format!("Host \"{host}\" is not a loopback address of this server")));
    }
    if let Some(origin) = header(ORIGIN)
        && origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) != Some(host)
    {
        return Err(ApiError::forbidden(format!("Origin \"{origin}\" is not the address of this server")));
    }
    if request.headers().keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(ApiError::bad_request("this server does not support impersonation; omit --as and --as-group"));
    }
    match header(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")) {
        None => Ok(Caller::anonymous()),
        Some(token) => {
            tokens.review(store, token.trim(), &[]).map(|(caller, _)| caller).ok_or_else(ApiError::unauthorized)
        }
    }
}

/// Reports whether `host` or `host:port` is a loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_loopback_names_are_local() {
        for host in ["127.0.0.1:80", "127.9.8.7", "localhost:1", "LOCALHOST", "[::1]:80", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.com", "127.0.0.1.example.com", "10.0.0.1:80", "localhost.example.com:80", "[::2]:80"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
