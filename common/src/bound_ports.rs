//! Asks an activator which workload ports it has bound. An activator's address enters an EndpointSlice only with this
//! proof.
//!
//! # The query
//!
//! A GET of any path on a shared port of the address that is to enter the slice, with `K-Network-Probe: activator`.
//! That header gets a response even if clients use up all connections. The header [`QUESTION`] has one of these values
//! ([`Question`]):
//!
//! | value | asks for |
//! |---|---|
//! | `all` | all numbers; requires a plane's token (`Authorization: Bearer`) if tokens are enforced |
//! | `20000,20017` | these numbers, at most [`NAMED_MAX`] |
//!
//! The response is 200 and [`BoundPorts`] as JSON: a row for each requested number on which the activator intends to
//! listen. The activator does not listen on a number without a row. The response to a malformed query is 400.
//!
//! # Why the response is proof
//!
//! - A row without an error is a listening socket that this very process holds. The row disappears before the socket is
//!   closed. The process also knows the workload, so it does not reject the workload's connections.
//! - The process that responds at an address also owns the ports of that address: only one process can bind a number
//!   there.
//! - The uid identifies the object. A later object of the same name, or another workload on that number, has another
//!   uid.
//! - A restarted process has another `instance`. Rows of the former process prove nothing about the new one.
//!
//! The query uses a shared port because a `tcp` port has no protocol for it: every byte there belongs to the workload.
//! One query also covers ten thousand numbers. It does not show that the network lets the caller reach the number
//! itself. A connection that is closed again without a byte does show that, and does not wake the workload.

use serde::{Deserialize, Serialize};

/// Request header of a query.
pub const QUESTION: &str = "zeroscale-ports";

/// Maximum number of ports that one query names. Callers that need more ask for all.
pub const NAMED_MAX: usize = 256;

const ALL: &str = "all";

/// Numbers that a query asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All numbers.
    All,
    /// These numbers.
    Numbers(Vec<u16>),
}

/// Ports that an activator has bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundPorts {
    /// Random identifier of the process, chosen when it starts.
    pub instance: String,
    /// Name of the activator's pod.
    pub pod: String,
    /// Rows, one per number.
    pub ports: Vec<BoundPort>,
}

/// State of one number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundPort {
    /// The port number.
    pub number: u16,
    /// Uid of the ZeroScaler that owns the number on this activator.
    pub uid: String,
    /// The number was released: the activator serves it for a while, but its address must not be written into slices
    /// any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// The number could not be bound because another process listens on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
    /// Reason why the number is not served; `None`: it is bound and its workload is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Question {
    /// Parses a header value. The error describes the invalid part of the value.
    pub fn parse(value: &str) -> Result<Self, String> {
        if value == ALL {
            return Ok(Self::All);
        }
        let number = |text: &str| {
            let rule = format!("is not a port number; the value must be `{ALL}`, or port numbers separated by commas");
            text.parse().map_err(|_| format!("header {QUESTION}: {text:?} {rule}"))
        };
        let numbers: Vec<u16> = value.split(',').take(NAMED_MAX + 1).map(number).collect::<Result<_, _>>()?;
        if numbers.len() > NAMED_MAX {
            let rule = format!("the value has more than {NAMED_MAX} numbers; use `{ALL}` for all numbers");
            return Err(format!("header {QUESTION}: {rule}"));
        }
        Ok(Self::Numbers(numbers))
    }

    /// Formats the query as a header value.
    pub fn value(&self) -> String {
        match self {
            Self::All => ALL.to_owned(),
            Self::Numbers(numbers) => numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

impl BoundPorts {
    /// Reports whether `number` is served for the object with this uid and may be written into slices.
    pub fn has(&self, number: u16, uid: &str) -> bool {
        let serves = |port: &BoundPort| port.uid == uid && !port.closing && port.error.is_none();
        self.ports.iter().any(|port| port.number == number && serves(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_it_was_written() {
        for question in [Question::All, Question::Numbers(vec![20_000, 20_017]), Question::Numbers(vec![1])] {
            assert_eq!(Question::parse(&question.value()), Ok(question));
        }
        for wrong in ["x", "", "-1", "65536", "1 ", "all,1"] {
            let named = wrong.split(',').next().unwrap_or_default().to_owned();
            let error = Question::parse(wrong).expect_err(wrong);
            assert!(error.contains(&format!("{named:?} is not a port number")), "{error}");
        }
        let numbers = |number: usize| Question::Numbers(vec![1; number]).value();
        assert!(Question::parse(&numbers(NAMED_MAX)).is_ok());
        assert!(Question::parse(&numbers(NAMED_MAX + 1)).is_err_and(|error| error.contains("more than 256")));
    }

    /// The text is fixed because the two planes may differ in version.
    #[test]
    fn a_response_proves_a_number_for_one_object_only() {
        let text = r#"{"instance":"i","pod":"activator-0","ports":[
            {"number":20000,"uid":"u"},{"number":20001,"uid":"u","error":"in use","new":1},
            {"number":20002,"uid":"u","closing":true}]}"#;
        let answer: BoundPorts = serde_json::from_str(text).expect("readable");
        assert!(answer.has(20_000, "u"));
        for (number, uid) in [(20_000, "v"), (20_001, "u"), (20_002, "u"), (1, "u")] {
            assert!(!answer.has(number, uid), "{number} {uid}");
        }
        let written = serde_json::to_string(&answer).expect("serializable");
        assert_eq!(serde_json::from_str::<BoundPorts>(&written).expect("readable"), answer);
    }
}
