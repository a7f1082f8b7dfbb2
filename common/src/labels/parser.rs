//! Parses a selector's text into requirements.
//!
//! A token is a sign, or a word: a key, a value, or an operator in words. Spaces separate tokens and are dropped. The
//! token at the end of the text is empty.

use std::collections::BTreeSet;

use super::{Requirement, Test};

const SIGNS: [&str; 9] = ["!=", "==", "!", "=", ">", "<", "(", ")", ","];

/// Parses a whole selector. Error texts are those of Kubernetes.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { rest: text };
    let mut requirements = Vec::new();
    loop {
        let token = parser.peek();
        if token.is_empty() {
            return Ok(requirements);
        }
        if !starts_requirement(token) {
            return Err(format!("found '{token}', expected: !, identifier, or 'end of string'"));
        }
        let requirement = parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
        requirements.push(requirement);
        let token = parser.next();
        if token == "," {
            let after = parser.peek();
            if !starts_requirement(after) {
                return Err(format!("found '{after}', expected: identifier after ','"));
            }
        } else if !token.is_empty() {
            return Err(format!("found '{token}', expected: ',' or 'end of string'"));
        }
    }
}

fn starts_requirement(token: &str) -> bool {
    is_word(token) || token == "!"
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !SIGNS.contains(&token)
}

struct Parser<'a> {
    /// Text that is not parsed yet.
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a str {
        let rest = self.rest.trim_start();
        let length = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => sign.len(),
            None => rest.find(|c: char| c.is_whitespace() || "!=><(),".contains(c)).unwrap_or(rest.len()),
        };
        &rest[..length]
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.rest = &self.rest.trim_start()[token.len()..];
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token == "!";
        if negated {
            token = self.next();
        }
        if !is_word(token) {
            return Err(format!("found '{token}', expected: identifier"));
        }
        let key = token.to_owned();
        check_key(&key)?;
        let next = self.peek();
        if negated || next.is_empty() || next == "," {
            return Ok(Requirement { key, test: if negated { Test::Absent } else { Test::Exists } });
        }
        let test = self.test(&key)?;
        Ok(Requirement { key, test })
    }

    fn test(&mut self, key: &str) -> Result<Test, String> {
        match self.next() {
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
        if token.is_empty() || token == "," {
            return Ok(String::new());
        }
        if !is_word(token) {
            return Err(format!("found '{token}', expected: identifier"));
        }
        check_value(key, token)?;
        Ok(self.next().to_owned())
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
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let first = self.peek();
        if first == ")" {
            return Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into());
        }
        if !is_word(first) && first != "," {
            return Err(format!("found '{first}', expected: ',', ')' or identifier"));
        }
        let mut values = BTreeSet::new();
        loop {
            // A value, or the empty value before a comma or the closing parenthesis.
            let value = if is_word(self.peek()) { self.next() } else { "" };
            check_value(key, value)?;
            values.insert(value.to_owned());
            match self.next() {
                ")" => return Ok(values),
                "," => {}
                other => return Err(format!("found '{other}', expected: ',' or ')'")),
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
