//! Which workloads' ports an activator has bound, as it tells who asks. Without that answer its address stands in no
//! slice.
//!
//! # The question
//!
//! A GET of any path on a shared port of the address that is to stand in a slice, with `K-Network-Probe: activator`, by
//! which it is answered also while clients have all connections, and [`QUESTION`] with one of these values
//! ([`Question`]):
//!
//! | value | what it asks for |
//! |---|---|
//! | `all` | all numbers; takes a plane's token (`Authorization: Bearer`), where tokens are demanded |
//! | `20000,20017` | these numbers, at most [`NAMED_MAX`] |
//!
//! The answer is 200 and [`BoundPorts`] as JSON: a row for each number that was asked for and that the activator means to
//! listen on. It does not listen on one without a row. What is wrong with a question is answered with 400.
//!
//! # Why that is a proof
//!
//! - A row without an error is a socket that the kernel has taken as a listener, which this very process holds; it goes
//!   out of the table before it is closed. And the workload is known here, so that what comes is not refused.
//! - Whoever answers at an address has its ports: one process can bind a number there, and no second one beside it.
//! - The uid is the object's. One of the same name that came later, or another workload on that number, has another.
//! - A process that comes after this one says another `instance`, and what the former had bound says nothing of it.
//!
//! It is asked on a shared port because a `tcp` port has no protocol to answer in: what is said there is the
//! workload's. And one question covers ten thousand numbers. It does not show that the network lets the asker through to
//! the number itself; a connect that is closed again without a byte does, and wakes nobody.

use serde::{Deserialize, Serialize};

/// Header of a question.
pub const QUESTION: &str = "zeroscale-ports";

/// Most numbers that one question names. Who wants to know of more asks for all.
pub const NAMED_MAX: usize = 256;

const ALL: &str = "all";

/// Which numbers are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All.
    All,
    /// These.
    Numbers(Vec<u16>),
}

/// What an activator has bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundPorts {
    /// The process: chosen by chance at its start.
    pub instance: String,
    /// The name of its pod.
    pub pod: String,
    /// By number.
    pub ports: Vec<BoundPort>,
}

/// One number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundPort {
    /// The number.
    pub number: u16,
    /// Uid of the ZeroScaler whose it is here.
    pub uid: String,
    /// It was released: it is served for a while, and must not be written into slices any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// Another process listens there: it could not be bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
    /// Why nothing is served there; none: it is bound, and its workload known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Question {
    /// From a header's value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(value: &str) -> Result<Self, QuestionError> {
        if value == ALL {
            return Ok(Self::All);
        }
        let number = |text: &str| text.parse().map_err(|_| QuestionError::Number(text.to_owned()));
        let numbers: Vec<u16> = value.split(',').take(NAMED_MAX + 1).map(number).collect::<Result<_, _>>()?;
        if numbers.len() > NAMED_MAX { Err(QuestionError::TooMany) } else { Ok(Self::Numbers(numbers)) }
    }

    /// As a header's value.
    pub fn value(&self) -> String {
        match self {
            Self::All => ALL.to_owned(),
            Self::Numbers(numbers) => numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

/// What is wrong with a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// It names what is no port number.
    #[error("{QUESTION} names {0:?}: it takes `{ALL}`, or port numbers with commas between them")]
    Number(String),
    /// It names too many.
    #[error("{QUESTION} names more than {NAMED_MAX} numbers: `{ALL}` asks for all")]
    TooMany,
}

impl BoundPorts {
    /// Whether `number` is served for the object with this uid, and may stand in slices.
    pub fn has(&self, number: u16, uid: &str) -> bool {
        let serves = |port: &BoundPort| port.uid == uid && !port.closing && port.error.is_none();
        self.ports.iter().any(|port| port.number == number && serves(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for question in [Question::All, Question::Numbers(vec![20_000, 20_017]), Question::Numbers(vec![1])] {
            assert_eq!(Question::parse(&question.value()), Ok(question));
        }
        for wrong in ["x", "", "-1", "65536", "1 ", "all,1"] {
            let named = wrong.split(',').next().unwrap_or_default().to_owned();
            assert_eq!(Question::parse(wrong), Err(QuestionError::Number(named)));
        }
        let numbers = |number: usize| Question::Numbers(vec![1; number]).value();
        assert!(Question::parse(&numbers(NAMED_MAX)).is_ok());
        assert_eq!(Question::parse(&numbers(NAMED_MAX + 1)), Err(QuestionError::TooMany));
    }

    /// Goal: the text that both planes agree on; they may differ in version.
    #[test]
    fn an_answer_proves_a_number_for_one_object_alone() {
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
