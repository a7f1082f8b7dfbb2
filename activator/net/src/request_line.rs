//! Recognizes the first line of an HTTP request, as the most lenient HTTP server would read it.
//!
//! A port that carries HTTP and other protocols must not relay a request as bytes: its client could forge fields such
//! as `X-Forwarded-For`. hyper accepts well-formed requests only. Other servers accept more: any bytes as a method
//! (wsgiref, gevent, waitress), any blank between words (http.server), any protocol name (Netty), or no version at all.
//!
//! # The rule
//!
//! Bytes are read up to the end of the first line, LF. No server acts on less.
//!
//! | the line | read as a request line by |
//! |---|---|
//! | three words, the last `HTTP/` and a number | http.server, wsgiref, waitress |
//! | three words, the last any name, `/` and a number with a point | Netty, which ignores case, and Node (RTSP, ICE) |
//! | the third word begins with `HTTP/`, and the first has no lower-case letter | cheroot |
//! | a later word begins with `HTTP/`, the first is all capitals, the second begins with `/` or has `:/` | nginx before 1.21 |
//! | `HTTP/` after a byte that is not ASCII, which may end a Unicode blank | aiohttp's parser in Python |
//! | `GET` and a word, and the next line is empty or begins like a field | http.server (HTTP/0.9) |
//! | two words, the first without a lower-case letter, CR LF, and the next line is empty or begins like a field | waitress |
//!
//! Words end at a blank ([`is_blank`]). waitress splits at spaces only, so both counts are kept. Leading lines are
//! skipped if they contain only blanks and control characters, including those of Latin-1 (Netty).
//!
//! Without an LF the result is undecided up to [`LENGTH_MAX`]; no server reads a longer line.
//!
//! # False positives
//!
//! A binary message may contain an LF by chance, but not CR LF after two words, followed by a field. RTSP, SIP, and a
//! line of three words that ends like `nginx/1.25` are taken for requests. Their ports must be declared `tcp`.

/// Maximum length of a line that any server reads: twice Undertow's limit.
const LENGTH_MAX: usize = 2 << 20;

/// Only method that needs no version.
const GET: &[u8] = b"GET";

/// Prefix of the version in a request line.
const HTTP: &[u8] = b"HTTP/";

/// Parser for the first bytes of a connection.
#[derive(Debug, Default)]
pub(crate) struct RequestLine {
    line: Line,
    /// Set if the line before may be a request without a version. If the current line begins like a field, it is one.
    field: Option<Field>,
    /// A complete line was read that has more than blanks.
    pub(crate) is_second: bool,
    length: usize,
}

#[derive(Debug, Default)]
struct Line {
    /// Number of words separated by blanks; `spaced` counts words separated by spaces.
    words: usize,
    spaced: usize,
    in_word: bool,
    after_space: bool,
    /// The line contains more than blanks and control characters.
    has_text: bool,
    /// The last byte is CR.
    ends_with_cr: bool,
    /// The first word, up to a space, has a lower-case letter.
    first_lower: bool,
    /// The first word has a byte that old nginx rejects in a method.
    first_other: bool,
    /// Number of bytes of [`GET`] that the first word matches; `None` if it differs.
    get: Option<usize>,
    word: Word,
    /// The second word begins with `/`, or has `:/`.
    has_target: bool,
    /// Index of the first word after the second that begins with [`HTTP`], or has it after a byte that is not ASCII.
    http_at: Option<usize>,
    /// `HTTP/` follows a byte that is not ASCII.
    http_behind_wide: bool,
}

#[derive(Debug, Default)]
struct Word {
    /// Number of bytes of [`HTTP`] that the word matches; `None` if it differs.
    http: Option<usize>,
    behind_wide: bool,
    /// The word begins with all of [`HTTP`].
    is_http: bool,
    version: Version,
    last: Option<u8>,
}

/// Progress of a word as `NAME/1.1`. Older Python versions accepted any digits and signs as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Version {
    #[default]
    Empty,
    Name,
    Slash,
    Number,
    /// The number has a digit, then a point.
    Pointed,
}

/// State of a line that may be a field. So far, only a part of the name was read.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// Number of bytes read.
    length: usize,
    /// They are the first bytes of `From`.
    is_from: bool,
}

impl RequestLine {
    /// Reads more bytes. Returns whether they begin a request, or `None` if that is undecided.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<bool> {
        for byte in bytes {
            if let Some(field) = self.field {
                match field.next(*byte) {
                    Some(Err(())) => self.field = None,
                    Some(Ok(next)) => self.field = Some(next),
                    None => return Some(true),
                }
            }
            if self.field.is_none() && self.is_second {
                return Some(false);
            }
            match byte {
                b'\n' if !self.is_second && self.line.is_request() => return Some(true),
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    self.field = line.may_lack_version().then_some(Field { length: 0, is_from: true });
                    self.is_second |= line.has_text;
                    if self.is_second && self.field.is_none() {
                        return Some(false);
                    }
                }
                byte => self.line.push(*byte),
            }
            self.length += usize::from(self.line.has_text || self.is_second);
        }
        (self.length > LENGTH_MAX).then_some(false)
    }
}

impl Line {
    fn push(&mut self, byte: u8) {
        self.has_text |= !(byte.is_ascii_control() || (0x80..=0x9f).contains(&byte) || is_blank(byte));
        self.ends_with_cr = byte == b'\r';
        if is_blank(byte) {
            self.in_word = false;
            self.after_space |= byte == b' ';
            return;
        }
        if !self.in_word {
            self.in_word = true;
            self.words += 1;
            self.spaced += usize::from(self.after_space || self.spaced == 0);
            self.after_space = false;
            self.word = Word { http: Some(0), ..Word::default() };
            self.get = if self.words == 1 { Some(0) } else { self.get };
        }
        self.first_lower |= self.spaced == 1 && byte.is_ascii_lowercase();
        if self.words == 1 {
            self.first_other |= !(byte.is_ascii_uppercase() || b"_-".contains(&byte));
            self.get = self.get.filter(|at| GET.get(*at) == Some(&byte)).map(|at| at + 1);
        }
        self.has_target |= self.words == 2 && byte == b'/' && self.word.last.is_none_or(|last| last == b':');
        if self.word.push(byte) {
            self.http_behind_wide |= self.word.behind_wide;
            self.http_at = self.http_at.or(Some(self.words).filter(|at| *at > 2));
        }
    }

    fn is_request(&self) -> bool {
        (self.word.is_version() && (self.words == 3 || self.spaced == 3))
            || (self.http_at == Some(3) && !self.first_lower)
            || (self.http_at.is_some() && !self.first_other && self.has_target)
            || self.http_behind_wide
    }

    fn may_lack_version(&self) -> bool {
        (self.words == 2 && self.get == Some(GET.len())) || (self.spaced == 2 && self.ends_with_cr && !self.first_lower)
    }
}

impl Word {
    /// Reads a byte. Returns whether it completes [`HTTP`].
    fn push(&mut self, byte: u8) -> bool {
        self.version = self.version.next(byte);
        self.last = Some(byte);
        if !byte.is_ascii() {
            (self.http, self.behind_wide) = (Some(0), true);
            return false;
        }
        self.http = self.http.filter(|at| HTTP.get(*at).is_some_and(|next| byte.eq_ignore_ascii_case(next)));
        self.http = self.http.map(|at| at + 1);
        let is_whole = self.http == Some(HTTP.len());
        self.is_http |= is_whole;
        is_whole
    }

    fn is_version(&self) -> bool {
        self.version == Version::Pointed || (self.version == Version::Number && self.is_http)
    }
}

impl Version {
    fn next(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Empty, _) => Self::Name,
            (_, b'/') => Self::Slash,
            (Self::Number, b'.') => Self::Pointed,
            (Self::Pointed, b'0'..=b'9') => Self::Pointed,
            (Self::Slash | Self::Number | Self::Pointed, b'0'..=b'9' | b'.' | b'_' | b'+' | b'-' | 0x80..) => {
                Self::Number
            }
            _ => Self::Name,
        }
    }
}

impl Field {
    /// Returns the state after one more byte, an error if the line is not a field, or `None` if it is one. A line that
    /// begins with a blank continues the field before it. Python's message parser skips lines that begin with `From`
    /// and a space.
    fn next(self, byte: u8) -> Option<Result<Self, ()>> {
        let Self { length, is_from } = self;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' if length == 0 => None,
            b':' => None,
            b' ' if is_from && length == 4 => None,
            b'!'..=b'~' => {
                Some(Ok(Self { length: length + 1, is_from: is_from && b"From".get(length) == Some(&byte) }))
            }
            _ => Some(Err(())),
        }
    }
}

/// Reports whether any server ends a word at this byte: the blanks that RFC 9112, 3, lists for lenient parsers, and
/// those of Python.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t' | 0x0b | 0x0c | b'\r' | 0x1c..=0x1f | b' ' | 0x85 | 0xa0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for bytes that are read in pieces of `size`.
    fn detected(bytes: &[u8], size: usize) -> Option<bool> {
        let mut line = RequestLine::default();
        bytes.chunks(size).find_map(|piece| line.read(piece))
    }

    /// Goal: a line that any known server accepts as a request line is recognized, however its bytes are split. The
    /// bytes of other protocols are not.
    #[test]
    fn request_lines_of_lenient_servers_are_recognized() {
        let rows: &[(&[u8], Option<bool>)] = &[
            (b"GET / HTTP/1.1\r\n", Some(true)),
            (b"GET ?\x01 HTTP/1.1\r\n", Some(true)),
            (b"G@T / HTTP/1.1\r\n", Some(true)),
            (b"G@T /\r\nConnection: keep-alive\r\n", Some(true)), // waitress
            (b"G@T /\r\n\r\n", Some(true)),
            (b"\x01 /\r\nX-Forwarded-For: 1\r\n", Some(true)),
            (b"GET key\r\nX-Forwarded-For: 1\r\n", Some(true)), // http.server: HTTP/0.9 with fields
            (b"GET key\r\n folded\r\n", Some(true)),
            (b"GET key\r\nFrom me\r\n", Some(true)),
            (b"GET /a\tb\r\nX:", Some(true)),
            (b"get / http/1.1\r\n", Some(true)),
            (b"\r\n\t\r\n \x00\nGET / HTTP/1.1\n", Some(true)),
            (b"\x80\nGET / HTTP/1.1\r\n", Some(true)), // Netty, which reads Latin-1
            (b"\x9f\x7f\r\nGET / FOO/1.1\r\n", Some(true)),
            (b"\x01\x02GET / HTTP/1.1\n", Some(true)),
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f / HTTP/1.1\r\n", Some(true)),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 / HTTP/1.1\r\n", Some(true)),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 /\r\nHost: a", Some(true)),
            (b"GET\t/\tHTTP/1.1\r\n", Some(true)),
            (b"GET\x1c/\x85HTTP/1.1\r\n", Some(true)),
            (b"GET\xe2\x80\x83/\xe2\x80\x83HTTP/1.1\r\n", Some(true)),
            (b"GET / HTTP/1.1 more\r\n", Some(true)),       // cheroot
            (b"GET /a b c HTTP/1.1\r\n", Some(true)),       // nginx before 1.21
            (b"GET / HTTP/1.1_1\r\n", Some(true)),          // http.server, once
            (b"GET http://a/b c HTTP/1.1\r\n", Some(true)), // the same
            (b"GET / FOO/1.1\r\n", Some(true)),             // Netty
            (b"get / foo/1.1\r\n", Some(true)),             // the same
            (b"\x01\x00GET / FOO/10.17\n", Some(true)),     // the same
            (b"SOURCE /a ICE/1.0\r\n", Some(true)),         // Node
            (b"DESCRIBE /a RTSP/1.0\r\n", Some(true)),      // Node
            (b"A\x0bB /\x0bc HTTP/1.1 \r\n", Some(true)),   // waitress: words end at spaces
            (b"A\x0bB /c\r\na:", Some(true)),
            // Undecided.
            (b"", None),
            (b"\r\n\0\x01\r\n", None),
            (b"GET / HTTP/1.1", None),
            (b"G@T /\r\n", None),
            (b"G@T /\r\nconnection", None),
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", None),
            // No request.
            (b"PING\r\n", Some(false)),
            (b"SET key value\r\n", Some(false)),
            (b"get a\r\nget b\r\n", Some(false)), // memcached
            (b"get a user/12\r\n", Some(false)),
            (b"set a 0 0 5\r\na:b", Some(false)),
            (b"PING a\r\nQUIT\r\n", Some(false)), // Redis, by hand
            (b"*1\r\n$4\r\nPING\r\n", Some(false)),
            (b"EHLO a\r\nMAIL FROM:<a@b>\r\n", Some(false)),
            (b"NICK a\r\nUSER a 0 * :A\r\n", Some(false)),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Some(false)),
            (b"a.b 17 1700000000\n", Some(false)),                    // Graphite
            (b"ERROR upstream answered HTTP/1.1 502\n", Some(false)), // a log's line
            (b"{\"log\":\"GET /x HTTP/1.1\"}\n", Some(false)),
            (b"<34>1 2026-01-01T00:00:00Z h - - - - \"GET / HTTP/1.1\" 200\n", Some(false)),
            (b"10.0.0.1 - - [1] \"GET / HTTP/1.1\" 200 5\n", Some(false)),
            (b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03 a\x0a:\x08http/1.1\x0a", Some(false)), // TLS
            (b"\x10\x20\x00\x04MQTT\x04\x02\x00\x3c\x00\x0aclient:id", Some(false)),
            (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", Some(false)), // HAProxy's PROXY
        ];
        for (bytes, expected) in rows {
            for size in 1..=bytes.len().max(1) {
                assert_eq!(detected(bytes, size), *expected, "{:?} by {size}", bytes.escape_ascii().to_string());
            }
        }
    }

    /// Goal: an endless line is given up, but any amount of skipped bytes before a line is not.
    #[test]
    fn a_line_beyond_the_limit_is_not_a_request() {
        let piece = [0; 64 * 1024];
        let mut line = RequestLine::default();
        assert!((0..LENGTH_MAX / piece.len() * 2).all(|_| line.read(&piece).is_none()));
        assert_eq!(line.read(b"GET / HTTP/1.1\n"), Some(true));
        let mut line = RequestLine::default();
        let given_up = (0..).find(|_| line.read(&[b'a'; 64 * 1024]).is_some());
        assert_eq!(given_up, Some(LENGTH_MAX / piece.len()));
    }
}
