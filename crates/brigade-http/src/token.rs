//! Bearer token of a server.

use std::fmt;

/// A bearer token. Only its hash is kept, and it is never printed.
#[derive(Clone)]
pub struct Token {
    hash: blake3::Hash,
}

/// Reason why a text is not a valid token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Too short, or contains characters that cannot be sent in a header.
    #[error("a token must have at least {MIN_TOKEN_LENGTH} characters, all printable ASCII without spaces")]
    Invalid,
    /// The system provides no random bytes.
    #[error("cannot generate a token: {0}")]
    Random(String),
}

/// Minimum length of a token. Shorter ones could be guessed.
const MIN_TOKEN_LENGTH: usize = 16;

impl Token {
    /// Creates a token from its text.
    pub fn new(text: &str) -> Result<Token, TokenError> {
        if text.len() < MIN_TOKEN_LENGTH || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Invalid);
        }
        Ok(Token { hash: blake3::hash(text.as_bytes()) })
    }

    /// Generates a token and returns it with its text.
    pub fn generate() -> Result<(Token, String), TokenError> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| TokenError::Random(error.to_string()))?;
        let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Token::new(&text)?, text))
    }

    /// Whether the text is this token. The hashes are compared in constant time, so timing reveals nothing.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.hash == blake3::hash(text.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
