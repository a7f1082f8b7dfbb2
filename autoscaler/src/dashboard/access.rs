//! Access control of the dashboard.
//!
//! | listens on | a client must present |
//! |---|---|
//! | loopback, no token | nothing; but its `Host` must be an address or localhost |
//! | anything with a token | the token: `Authorization: Bearer`, or the cookie that signing in sets, by the form or by `/?token=` |
//!
//! A browser without a token gets a sign-in form; a program gets an error. The parts of the form itself are public
//! ([`is_public`]).
//!
//! The rule about `Host` protects against DNS rebinding: a foreign page whose domain resolves to 127.0.0.1 could
//! otherwise read the dashboard. Its requests carry that domain as `Host`.

use common_runtime::credential::is_secret;
use http::{HeaderMap, StatusCode, Uri, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::net::{IpAddr, SocketAddr};

/// Cookie that carries the token.
const COOKIE: &str = "zeroscale-dashboard";
/// Characters of a token that are percent-encoded in the cookie.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Maximum size of a form.
pub(super) const FORM_BYTES_MAX: usize = 16 * 1024;

/// Returns whether a file is part of the sign-in form. Such files need no token.
pub(super) fn is_public(path: &str) -> bool {
    matches!(path, "/style.css" | "/icon.svg")
}

/// Result of the access check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Granted,
    /// The token was in the URL or the form: set this cookie, and redirect to the page.
    SignedIn(String),
    /// Access is refused, with a reason for people.
    Refused(StatusCode, &'static str),
}

/// Checks a request. `token`: the required token, if any.
pub(super) fn check(uri: &Uri, headers: &HeaderMap, token: Option<&str>) -> Access {
    let Some(token) = token else {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        return match host.or_else(|| uri.authority().map(|authority| authority.as_str())) {
            Some(host) if is_local(host) => Access::Granted,
            _ => Access::Refused(
                StatusCode::MISDIRECTED_REQUEST,
                "the dashboard responds only if the URL has an IP address or localhost as its host",
            ),
        };
    };
    let text = |name| headers.get_all(name).iter().filter_map(|value| str::from_utf8(value.as_bytes()).ok());
    let bearer = text(header::AUTHORIZATION).find_map(|value| value.strip_prefix("Bearer "));
    let cookies = text(header::COOKIE).flat_map(|value| value.split(';'));
    let cookie = cookies.filter_map(|pair| pair.trim().split_once('=')).find(|(name, _)| *name == COOKIE);
    if bearer.is_some_and(|value| is_secret(value.trim(), token))
        || cookie.is_some_and(|(_, value)| is_secret(&decoded(value), token))
    {
        return Access::Granted;
    }
    match uri.query().filter(|_| uri.path() == "/").and_then(field) {
        Some(value) => sign_in(&value, token, "The token in the URL is wrong."),
        None => Access::Refused(
            StatusCode::UNAUTHORIZED,
            "a token is required: send `Authorization: Bearer TOKEN`, or open / in a browser and sign in",
        ),
    }
}

pub(super) fn check_form(form: &[u8], token: &str) -> Access {
    let form = String::from_utf8_lossy(form).replace('+', " ");
    sign_in(field(&form).unwrap_or_default().trim(), token, "The token is wrong.")
}

/// Checks an entered token.
fn sign_in(value: &str, token: &str, refusal: &'static str) -> Access {
    if !is_secret(value, token) {
        return Access::Refused(StatusCode::UNAUTHORIZED, refusal);
    }
    let cookie = utf8_percent_encode(token, ENCODED);
    // Not Strict: a browser that follows another site's link to `/?token=` would not send it to `/`. The dashboard is
    // read-only, so a foreign link changes nothing.
    Access::SignedIn(format!("{COOKIE}={cookie}; HttpOnly; SameSite=Lax; Path=/"))
}

/// Returns the field `token` of a query or a form.
fn field(pairs: &str) -> Option<String> {
    let value = pairs.split('&').find_map(|pair| pair.strip_prefix("token="))?;
    Some(decoded(value))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns whether a `Host` is an address, or this machine's own name.
fn is_local(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn checked(uri: &str, headers: &[(&str, &str)], token: Option<&str>) -> Result<Option<String>, u16> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (HeaderName::try_from(*name).expect("a name"), HeaderValue::try_from(*value).expect("a value"))
            })
            .collect();
        match check(&uri.parse().expect("a target"), &headers, token) {
            Access::Granted => Ok(None),
            Access::SignedIn(cookie) => Ok(Some(cookie)),
            Access::Refused(status, _) => Err(status.as_u16()),
        }
    }

    /// Goal: without a token only this machine's own names are accepted, so no other site's script can read the
    /// dashboard.
    #[test]
    fn without_a_token_the_host_must_be_an_address_or_localhost() {
        let local = "127.0.0.1:8090 127.0.0.1 [::1]:8090 [::1] localhost localhost:1 a.localhost:1 LOCALHOST";
        for host in local.split(' ') {
            assert_eq!(checked("/", &[("host", host)], None), Ok(None), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8090", "127.0.0.1.evil.example", "localhost.evil.example", "", "xlocalhost"]
        {
            assert_eq!(checked("/api/v1/workloads", &[("host", host)], None), Err(421), "{host:?}");
        }
        assert_eq!(checked("/", &[], None), Err(421));
    }

    /// Goal: access needs the token, in one of three ways. A token in the URL becomes a cookie, only on the page
    /// itself, and browsers that come from another site send the cookie too.
    #[test]
    fn a_token_is_accepted_in_a_header_a_cookie_or_the_url() {
        let token = Some("s3cret.A-b_c");
        let set_cookie = "zeroscale-dashboard=s3cret.A-b_c; HttpOnly; SameSite=Lax; Path=/".to_owned();
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Result<Option<String>, u16>);
        let rows: [Row<'_>; 11] = [
            ("/", &[("authorization", "Bearer s3cret.A-b_c"), ("host", "any.example")], Ok(None)),
            ("/api/v1/stream", &[("cookie", "a=b; zeroscale-dashboard=s3cret.A-b_c")], Ok(None)),
            ("/?token=s3cret.A-b_c", &[], Ok(Some(set_cookie.clone()))),
            ("/?x=1&token=s3cret%2EA-b_c", &[], Ok(Some(set_cookie))),
            ("/api/v1/workloads?token=s3cret.A-b_c", &[], Err(401)),
            ("/?token=wrong", &[], Err(401)),
            ("/", &[], Err(401)),
            ("/", &[("authorization", "Bearer s3cret.A-b_d")], Err(401)),
            ("/", &[("authorization", "Bearer s3cret.A-b_c0")], Err(401)),
            ("/", &[("authorization", "Basic s3cret.A-b_c")], Err(401)),
            ("/", &[("cookie", "zeroscale-dashboard=")], Err(401)),
        ];
        for (uri, headers, expected) in rows {
            assert_eq!(checked(uri, headers, token), expected, "{uri} {headers:?}");
        }
    }

    /// Goal: a token of any characters can be typed into the form, and its cookie is accepted.
    #[test]
    fn a_token_of_any_characters_can_be_typed() {
        for (token, form) in [
            ("s3cret", "token=s3cret"),
            ("a+b/c==", "x=1&token=+a%2Bb%2Fc%3D%3D+"),
            ("a b;\"c\",é", "token=a+b%3B%22c%22%2C%C3%A9"),
        ] {
            let Access::SignedIn(cookie) = check_form(form.as_bytes(), token) else { panic!("{form}") };
            let cookie = cookie.split(';').next().expect("a pair");
            assert_eq!(checked("/", &[("cookie", cookie)], Some(token)), Ok(None), "{cookie}");
        }
        for form in ["", "token=", "token=s3creT", "xtoken=s3cret", "token=s3cret%00", "token=\u{fffd}"] {
            let access = check_form(form.as_bytes(), "s3cret");
            assert!(matches!(access, Access::Refused(StatusCode::UNAUTHORIZED, _)), "{form}");
        }
    }
}
