//! Parses a selector's tokens into requirements.

use std::collections::BTreeSet;

use super::lexer::{Token, TokenKind, tokens};
use super::{Requirement, Test};

/// Parses a whole selector.
///
/// # Errors
/// Texts are those of Kubernetes.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        let token = parser.peek();
        if token.kind == TokenKind::End {
            return Ok(requirements);
        }
        if !starts_requirement(token) {
            return Err(format!("found '{}', expected: !, identifier, or 'end of string'", token.text));
        }
        let requirement = parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
        requirements.push(requirement);
        let token = parser.next();
        if token.is(",") {
            let after = parser.peek();
            if !starts_requirement(after) {
                return Err(format!("found '{}', expected: identifier after ','", after.text));
            }
        } else if token.kind != TokenKind::End {
            return Err(format!("found '{}', expected: ',' or 'end of string'", token.text));
        }
    }
}

fn starts_requirement(token: Token<'_>) -> bool {
    token.kind == TokenKind::Word || token.is("!")
}

struct Parser<'a> {
    /// Tokens; the last one is [`TokenKind::End`].
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token { kind: TokenKind::End, text: "" })
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token.is("!");
        if negated {
            token = self.next();
        }
        if token.kind != TokenKind::Word {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        let key = token.text.to_owned();
        check_key(&key)?;
        let next = self.peek();
        if negated || next.kind == TokenKind::End || next.is(",") {
            return Ok(Requirement { key, test: if negated { Test::Absent } else { Test::Exists } });
        }
        let test = self.test(&key)?;
        Ok(Requirement { key, test })
    }

    fn test(&mut self, key: &str) -> Result<Test, String> {
        let operator = self.next();
        match operator.text {
            "in" => Ok(Test::In(self.values(key)?)),
            "notin" => Ok(Test::NotIn(self.values(key)?)),
            "=" | "==" => Ok(Test::In([self.value(key)?].into())),
            "!=" => Ok(Test::NotIn([self.value(key)?].into())),
            ">" => Ok(Test::Above(self.number(key)?)),
            "<" => Ok(Test::Below(self.number(key)?)),
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// Parses one value; nothing means the empty value.
    fn value(&mut self, key: &str) -> Result<String, String> {
        let token = self.peek();
        if token.kind == TokenKind::End || token.is(",") {
            return Ok(String::new());
        }
        self.at += 1;
        if token.kind != TokenKind::Word {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        check_value(key, token.text)?;
        Ok(token.text.to_owned())
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value(key)?;
        value.parse().map_err(|_| {
            format!(
                "values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    /// Parses `(a,b)`. A missing value between two commas, or next to a comma at either end, is the empty value.
    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if !open.is("(") {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let first = self.peek();
        if first.is(")") {
            return Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into());
        }
        if first.kind != TokenKind::Word && !first.is(",") {
            return Err(format!("found '{}', expected: ',', ')' or identifier", first.text));
        }
        let mut values = BTreeSet::new();
        loop {
            // A value, or the empty value before a comma or the closing parenthesis.
            let token = self.peek();
            if token.kind == TokenKind::Word {
                check_value(key, token.text)?;
                self.at += 1;
                values.insert(token.text.to_owned());
            } else {
                values.insert(String::new());
            }
            let after = self.next();
            if after.is(")") {
                return Ok(values);
            }
            if !after.is(",") {
                return Err(format!("found '{}', expected: ',' or ')'", after.text));
            }
        }
    }
}

/// Checks a key of the form `[prefix/]name`: name at most 63 characters, prefix at most 253.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_fits = prefix.is_none_or(|p| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        p.len() <= 253
            && p.split('.').all(|part| {
                !part.is_empty() && part.chars().all(plain) && !part.starts_with('-') && !part.ends_with('-')
            })
    });
    if prefix_fits && is_name(name) {
        return Ok(());
    }
    Err(format!("key: Invalid value: {key:?}: a qualified name is expected, like 'MyName' or 'example.com/MyName'"))
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!(
        "values[0][{key}]: Invalid value: {value:?}: a valid label must be an empty string or consist of \
                 alphanumeric characters, '-', '_' or '.', at most 63, the first and last of them alphanumeric"
    ))
}

fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}
