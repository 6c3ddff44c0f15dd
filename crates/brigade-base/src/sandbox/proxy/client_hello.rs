//! Server name of a TLS handshake. Everything but a well-formed first message of a client is refused.

/// Maximum size of the first message with its framing.
const MAX_HELLO_BYTES: usize = 20 << 10;
/// Maximum length of a record (RFC 8446, 5.1).
const MAX_RECORD_BYTES: usize = 1 << 14;

const RECORD_HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
/// Encrypted Client Hello: the server name that counts is not visible.
const EXTENSION_ENCRYPTED_HELLO: u16 = 0xfe0d;
const NAME_TYPE_HOST: u8 = 0;

/// Result of looking for the server name in the first bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// More bytes are needed.
    Incomplete,
    /// The message is complete.
    Complete {
        /// The server name that it contains.
        server_name: Option<String>,
    },
}

/// Reason why the bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelloError {
    /// They are not TLS.
    NotTls,
    /// They are not a well-formed first message, or hide the server name.
    Malformed,
}

use HelloError::Malformed;

/// Whether a connection that starts with this byte is TLS.
pub(super) fn is_tls(first: u8) -> bool {
    first == RECORD_HANDSHAKE
}

/// Looks for the server name in the first bytes of a connection.
pub(super) fn parse(bytes: &[u8]) -> Result<Hello, HelloError> {
    let mut records = Reader(bytes);
    let mut message = Vec::new();
    loop {
        if let Some(body) = handshake_body(&message)? {
            let server_name = server_name(body)?;
            return Ok(Hello::Complete { server_name });
        }
        match next_record(&mut records)? {
            Some(fragment) => message.extend_from_slice(fragment),
            None if bytes.len() >= MAX_HELLO_BYTES => return Err(Malformed),
            None => return Ok(Hello::Incomplete),
        }
    }
}

/// The fragment of the next record, once it is complete. Its header is checked as early as possible.
fn next_record<'a>(records: &mut Reader<'a>) -> Result<Option<&'a [u8]>, HelloError> {
    if let Some(kind) = records.0.first()
        && !is_tls(*kind)
    {
        return Err(HelloError::NotTls);
    }
    if let Some(major) = records.0.get(1)
        && *major != 3
    {
        return Err(HelloError::NotTls);
    }
    let Some([_, _, _, high, low]) = records.0.first_chunk::<5>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length == 0 || length > MAX_RECORD_BYTES {
        return Err(Malformed);
    }
    let (header, fragment) = (5, 5 + length);
    let Some(content) = records.0.get(header..fragment) else { return Ok(None) };
    records.0 = records.0.get(fragment..).unwrap_or_default();
    Ok(Some(content))
}

/// The body of the message, once it is complete. Nothing may follow it before the server has answered.
fn handshake_body(message: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Malformed);
    }
    let Some((header, body)) = message.split_first_chunk::<4>() else { return Ok(None) };
    let [_, high, middle, low] = *header;
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    match body.len().cmp(&length) {
        _ if length > MAX_HELLO_BYTES => Err(Malformed),
        std::cmp::Ordering::Less => Ok(None),
        std::cmp::Ordering::Equal => Ok(Some(body)),
        std::cmp::Ordering::Greater => Err(Malformed),
    }
}

/// The server name in the body of the message (RFC 8446, 4.1.2, and RFC 6066, 3).
fn server_name(body: &[u8]) -> Result<Option<String>, HelloError> {
    let mut body = Reader(body);
    // The version and the random bytes.
    body.take(2 + 32)?;
    if body.list_u8()?.0.len() > 32 {
        return Err(Malformed);
    }
    let cipher_suites = body.list_u16()?.0.len();
    if cipher_suites == 0 || cipher_suites % 2 != 0 || body.list_u8()?.0.is_empty() {
        return Err(Malformed);
    }
    if body.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = body.list_u16()?;
    if !body.0.is_empty() {
        return Err(Malformed);
    }
    let mut seen = Vec::new();
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.list_u16()?;
        if seen.contains(&kind) {
            return Err(Malformed);
        }
        seen.push(kind);
        match kind {
            EXTENSION_SERVER_NAME => name = Some(only_host(content)?),
            EXTENSION_ENCRYPTED_HELLO => return Err(Malformed),
            _ => {}
        }
    }
    Ok(name)
}

/// The only entry of a list of server names, which must be a plain host name.
fn only_host(mut extension: Reader<'_>) -> Result<String, HelloError> {
    let mut names = extension.list_u16()?;
    if names.u8()? != NAME_TYPE_HOST {
        return Err(Malformed);
    }
    let name = names.list_u16()?.0;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if !extension.0.is_empty() || !names.0.is_empty() || name.is_empty() || !name.iter().all(is_plain) {
        return Err(Malformed);
    }
    String::from_utf8(name.to_vec()).map_err(|_| Malformed)
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, HelloError> {
        self.take(1)?.first().copied().ok_or(Malformed)
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    /// Content of a list whose length takes one byte.
    fn list_u8(&mut self) -> Result<Reader<'a>, HelloError> {
        let length = self.u8()?;
        self.take(usize::from(length)).map(Reader)
    }

    /// Content of a list whose length takes two bytes.
    fn list_u16(&mut self) -> Result<Reader<'a>, HelloError> {
        let length = self.u16()?;
        self.take(usize::from(length)).map(Reader)
    }
}
