//! What a client has to know.

use std::fmt;

/// A bearer token. It is neither printed nor kept: only its hash is.
#[derive(Clone)]
pub struct Token {
    hash: blake3::Hash,
}

/// Why a text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It could be guessed, or cannot be sent.
    #[error("a token has at least {MIN_TOKEN_LENGTH} characters, all of them printable ASCII without spaces")]
    Invalid,
    /// The machine has no randomness.
    #[error("no randomness: {0}")]
    Random(String),
}

/// Shorter ones could be guessed.
const MIN_TOKEN_LENGTH: usize = 16;

impl Token {
    /// The token that is written like this.
    pub fn new(text: &str) -> Result<Token, TokenError> {
        if text.len() < MIN_TOKEN_LENGTH || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Invalid);
        }
        Ok(Token { hash: blake3::hash(text.as_bytes()) })
    }

    /// A new one, and how it is written.
    pub fn generate() -> Result<(Token, String), TokenError> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|error| TokenError::Random(error.to_string()))?;
        let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Token::new(&text)?, text))
    }

    /// Whether this is it. Hashes are compared, in constant time: how long it takes says nothing about the token.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.hash == blake3::hash(text.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
