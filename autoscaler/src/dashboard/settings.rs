//! Address, access and prices of the dashboard.

use anyhow::Context;
use common_runtime::credential::TokenFile;
use common_runtime::environment::{EnvironmentError, optional};
use common_runtime::listen::listen;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

/// Default port of the dashboard.
pub const PORT: u16 = 8090;

const ADDRESS: &str = "ZEROSCALE_DASHBOARD_ADDRESS";
const TOKEN_FILE: &str = "ZEROSCALE_DASHBOARD_TOKEN_FILE";
const PRICE: &str = "ZEROSCALE_POD_HOUR_PRICE";
const PRICE_RULE: &str = "must be an amount and a currency of three capital letters, such as `0.012 EUR`";

/// Settings of the dashboard.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to bind.
    pub listen: SocketAddr,
    /// Listener that is already bound, used instead of `listen`; several processes may share one.
    pub listener: Option<Arc<TcpListener>>,
    /// Required token of clients; must be set unless `listen` is a loopback address.
    pub token: Option<TokenFile>,
    /// Price of a pod.
    pub price: Option<Price>,
    /// Port at which a browser on this machine reaches each workload as `SERVICE.NAMESPACE.localhost`; none: by its
    /// hosts only.
    pub entry: Option<u16>,
}

/// Price of a pod per hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// Amount in units of the currency.
    pub amount: f64,
    /// ISO 4217 code, three letters.
    pub currency: String,
}

impl Settings {
    /// Returns settings for a loopback address, without a token.
    pub fn local(listen: SocketAddr) -> Self {
        Self { listen, listener: None, token: None, price: None, entry: None }
    }

    /// Reads `ZEROSCALE_DASHBOARD_ADDRESS` (default: port 8090 of `listen` if that is a loopback address, else of
    /// 127.0.0.1; empty: no dashboard), `ZEROSCALE_DASHBOARD_TOKEN_FILE` and `ZEROSCALE_POD_HOUR_PRICE` (such as
    /// `0.012 EUR`). Fails if a value cannot be parsed, or if there is no token and the address is not a loopback address.
    pub(crate) fn from_env(
        get: &impl Fn(&str) -> Option<String>,
        listen: IpAddr,
    ) -> Result<Option<Self>, EnvironmentError> {
        let given = |name: &str| optional(get, name);
        let own = if listen.is_loopback() { listen } else { Ipv4Addr::LOCALHOST.into() };
        let listen = match get(ADDRESS) {
            Some(text) if text.is_empty() => return Ok(None),
            Some(text) => text.parse().map_err(|_| {
                EnvironmentError::new(ADDRESS, &*text, "must be an IP address and a port, such as 127.0.0.1:8090")
            })?,
            None => SocketAddr::new(own, PORT),
        };
        let token = given(TOKEN_FILE).map(TokenFile::new);
        if token.is_none() && !listen.ip().is_loopback() {
            let rule = format!("is not a loopback address, so {TOKEN_FILE} must name a file that contains a token");
            return Err(EnvironmentError::new(ADDRESS, listen.to_string(), rule));
        }
        let price =
            given(PRICE).map(|text| text.parse::<Price>().map_err(|rule| EnvironmentError::new(PRICE, text, rule)));
        Ok(Some(Self { token, price: price.transpose()?, ..Self::local(listen) }))
    }

    /// Binds the address. Errors name it and the variable.
    pub(super) fn bind(&self) -> anyhow::Result<tokio::net::TcpListener> {
        let listener = match &self.listener {
            Some(bound) => bound.try_clone().and_then(|bound| {
                bound.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(bound)
            }),
            None => listen(self.listen),
        };
        listener.with_context(|| format!("the dashboard cannot bind its address {}; see {ADDRESS}", self.listen))
    }
}

impl std::str::FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (amount, currency) = text.trim().split_once(char::is_whitespace).ok_or(PRICE_RULE)?;
        let (amount, currency): (f64, _) = (amount.parse().map_err(|_| PRICE_RULE)?, currency.trim());
        let is_currency = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase());
        if !is_currency || !amount.is_finite() || amount < 0.0 {
            return Err(PRICE_RULE.to_owned());
        }
        Ok(Self { amount, currency: currency.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)], listen: [u8; 4]) -> Result<Option<Settings>, String> {
        let get = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Settings::from_env(&get, listen.into()).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_token_only_loopback_addresses_are_accepted() {
        let listens = |pairs: &[(&str, &str)], listen| {
            read(pairs, listen).map(|settings| settings.map(|settings| settings.listen.to_string()))
        };
        assert_eq!(listens(&[], [0, 0, 0, 0]), Ok(Some("127.0.0.1:8090".into())));
        assert_eq!(listens(&[], [127, 9, 0, 1]), Ok(Some("127.9.0.1:8090".into())), "planes that share a machine");
        assert_eq!(listens(&[(ADDRESS, "")], [0, 0, 0, 0]), Ok(None));
        assert_eq!(listens(&[(ADDRESS, "[::1]:9")], [0, 0, 0, 0]), Ok(Some("[::1]:9".into())));
        let open = [(ADDRESS, "0.0.0.0:8090"), (TOKEN_FILE, "/token")];
        assert_eq!(listens(&open, [0, 0, 0, 0]), Ok(Some("0.0.0.0:8090".into())));
        let refused = listens(&open[..1], [0, 0, 0, 0]).expect_err("no token");
        assert!([ADDRESS, "0.0.0.0:8090", TOKEN_FILE].iter().all(|part| refused.contains(part)), "{refused}");
        let refused = listens(&[(ADDRESS, "8090")], [0, 0, 0, 0]).expect_err("no address");
        assert!(refused.contains("8090") && refused.contains("127.0.0.1:8090"), "{refused}");
    }

    #[test]
    fn a_price_has_a_currency() {
        let price = |text| read(&[(PRICE, text)], [127, 0, 0, 1]).map(|settings| settings.and_then(|s| s.price));
        let euro = Price { amount: 0.012, currency: "EUR".into() };
        assert_eq!(price("0.012 EUR"), Ok(Some(euro)));
        assert_eq!(price(""), Ok(None));
        for wrong in ["0.012", "EUR 0.012", "-1 EUR", "inf EUR", "1 eur", "1 EURO"] {
            let refused = price(wrong).expect_err(wrong);
            assert!(refused.contains(PRICE) && refused.contains(wrong), "{refused}");
        }
    }
}
