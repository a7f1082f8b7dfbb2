//! Splits a selector's text into tokens. Spaces separate tokens and are dropped. The end is a token with empty text.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A key, a value or an operator in words.
    Word,
    /// One of the signs `! = == != > < ( ) ,`.
    Sign,
    /// End of the text.
    End,
}

/// One word or sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
}

impl Token<'_> {
    /// Reports whether the token is that sign.
    pub(super) fn is(self, sign: &str) -> bool {
        self.kind == TokenKind::Sign && self.text == sign
    }
}

const SIGNS: [&str; 9] = ["!=", "==", "!", "=", ">", "<", "(", ")", ","];

/// Splits the text into tokens; the last one is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let (kind, length) = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => (TokenKind::Sign, sign.len()),
            None => {
                (TokenKind::Word, rest.find(|c: char| c.is_whitespace() || "!=><(),".contains(c)).unwrap_or(rest.len()))
            }
        };
        let (token, after) = rest.split_at(length);
        tokens.push(Token { kind, text: token });
        rest = after.trim_start();
    }
    tokens.push(Token { kind: TokenKind::End, text: "" });
    tokens
}
