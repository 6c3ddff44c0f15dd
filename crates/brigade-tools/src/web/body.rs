//! Reads response bodies under a limit and decodes them to text.

use std::io::{self, Write};

use encoding_rs::Encoding;
use flate2::write::MultiGzDecoder;
use reqwest::{Response, header};

use super::error::{FetchFailure, root_cause, sanitize_line};

/// Number of bytes of a page that are searched for its charset declaration.
const META_SCAN_BYTES: usize = 1024;

/// Body of a response.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether the body was longer than the limit.
    pub(super) is_truncated: bool,
}

/// Supported content formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentFormat {
    Html,
    Text,
}

/// Reads at most `limit` bytes, both before and after decompression.
pub(super) async fn read(mut response: Response, limit: usize) -> Result<Body, FetchFailure> {
    let encoding = header(&response, header::CONTENT_ENCODING);
    let mut decoder = match encoding.as_str() {
        "" | "identity" => BodyDecoder::Plain(LimitedBuffer::new(limit)),
        "gzip" | "x-gzip" => BodyDecoder::Gzip(MultiGzDecoder::new(LimitedBuffer::new(limit))),
        other => return Err(FetchFailure::UnsupportedEncoding(format!("`{}`", sanitize_line(other)))),
    };
    let mut received = 0;
    while let Some(chunk) =
        response.chunk().await.map_err(|error| FetchFailure::BrokenResponse(root_cause(&error)))?
    {
        received += chunk.len();
        let result = decoder.write(&chunk);
        if decoder.buffer().is_full || received > limit {
            return Ok(decoder.truncated());
        }
        result.map_err(|error| FetchFailure::BrokenResponse(error.to_string()))?;
    }
    decoder.finish().map_err(|error| FetchFailure::BrokenResponse(error.to_string()))
}

enum BodyDecoder {
    Plain(LimitedBuffer),
    Gzip(MultiGzDecoder<LimitedBuffer>),
}

impl BodyDecoder {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            BodyDecoder::Plain(buffer) => buffer.write_all(chunk),
            BodyDecoder::Gzip(decoder) => decoder.write_all(chunk),
        }
    }

    fn buffer(&mut self) -> &mut LimitedBuffer {
        match self {
            BodyDecoder::Plain(buffer) => buffer,
            BodyDecoder::Gzip(decoder) => decoder.get_mut(),
        }
    }

    /// Takes the bytes so far as a truncated body.
    fn truncated(&mut self) -> Body {
        Body { bytes: std::mem::take(&mut self.buffer().bytes), is_truncated: true }
    }

    fn finish(mut self) -> io::Result<Body> {
        if let BodyDecoder::Gzip(decoder) = &mut self
            && let Err(error) = decoder.try_finish()
            && !self.buffer().is_full
        {
            return Err(error);
        }
        let is_truncated = self.buffer().is_full;
        Ok(Body { is_truncated, ..self.truncated() })
    }
}

/// Buffer that accepts bytes up to a limit and then fails, which stops the writer.
struct LimitedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    is_full: bool,
}

impl LimitedBuffer {
    fn new(limit: usize) -> LimitedBuffer {
        LimitedBuffer { bytes: Vec::new(), limit, is_full: false }
    }
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.bytes.len());
        let (taken, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.bytes.extend_from_slice(taken);
        if !rest.is_empty() {
            self.is_full = true;
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the response exceeds the size limit"));
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a header as lower-case text.
fn header(response: &Response, name: header::HeaderName) -> String {
    let value = response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    value.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the content type that the server declares.
pub(super) fn content_type(response: &Response) -> String {
    header(response, header::CONTENT_TYPE)
}

/// Returns the format of a content type, or an error if it is not supported; `None` if the server declares none.
pub(super) fn content_format(content_type: &str) -> Result<Option<ContentFormat>, FetchFailure> {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let (kind, form) = essence.split_once('/').unwrap_or((essence, ""));
    let readable = ["json", "xml", "yaml", "x-yaml", "toml", "x-ndjson", "jsonl", "markdown", "javascript"];
    match (kind, form) {
        ("", _) => Ok(None),
        ("text", "html") | ("application", "xhtml+xml") => Ok(Some(ContentFormat::Html)),
        ("text", _) => Ok(Some(ContentFormat::Text)),
        ("application", form)
            if readable.contains(&form) || form.ends_with("+json") || form.ends_with("+xml") =>
        {
            Ok(Some(ContentFormat::Text))
        }
        _ => Err(FetchFailure::UnsupportedType(format!("`{}`", sanitize_line(essence)))),
    }
}

/// Decodes a body to text and determines its format.
pub(super) fn decode(
    bytes: &[u8],
    content_type: &str,
    format: Option<ContentFormat>,
) -> Result<(String, ContentFormat), FetchFailure> {
    let encoding = encoding(bytes, content_type);
    let is_wide = encoding == encoding_rs::UTF_16LE || encoding == encoding_rs::UTF_16BE;
    if !is_wide && bytes.contains(&0) {
        return Err(FetchFailure::UnsupportedType(
            "binary, despite the type that the server reports".to_owned(),
        ));
    }
    let (text, _, _) = encoding.decode(bytes);
    let start: String = text.trim_start().chars().take(16).collect::<String>().to_ascii_lowercase();
    let is_html = ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| start.starts_with(tag));
    let found = if is_html { ContentFormat::Html } else { ContentFormat::Text };
    Ok((text.into_owned(), format.unwrap_or(found)))
}

/// Detects the encoding from the byte order mark, the server's header, the page's declaration or the bytes, in that
/// order.
fn encoding(bytes: &[u8], content_type: &str) -> &'static Encoding {
    if let Some((encoding, _)) = Encoding::for_bom(bytes) {
        return encoding;
    }
    let head = String::from_utf8_lossy(bytes.get(..META_SCAN_BYTES).unwrap_or(bytes)).to_ascii_lowercase();
    let by_page = || {
        let (_, tail) = head.split_once("<meta")?;
        charset(tail)
    };
    charset(content_type).or_else(by_page).unwrap_or_else(|| match std::str::from_utf8(bytes) {
        Ok(_) => encoding_rs::UTF_8,
        // The last character may have been cut while the others are complete.
        Err(error)
            if error.error_len().is_none()
                && bytes.get(..error.valid_up_to()).is_some_and(|valid| !valid.is_ascii()) =>
        {
            encoding_rs::UTF_8
        }
        Err(_) => encoding_rs::WINDOWS_1252,
    })
}

fn charset(text: &str) -> Option<&'static Encoding> {
    let (_, tail) = text.split_once("charset=")?;
    let tail = tail.trim_start_matches(['"', '\'', ' ']);
    let end = tail.find(|c: char| c == ';' || c == '"' || c == '\'' || c == '>' || c.is_whitespace());
    Encoding::for_label(tail.get(..end.unwrap_or(tail.len()))?.as_bytes())
}

/// Removes invisible characters: control characters, and characters that hide or reorder others.
pub(super) fn strip_invisible(text: &str) -> String {
    let shown = |letter: &char| match letter {
        '\n' | '\t' => true,
        '\u{ad}' | '\u{200b}' | '\u{feff}' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => false,
        letter => !letter.is_control(),
    };
    text.chars().filter(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_format_is_read_from_the_content_type() {
        for (text, expected) in [
            ("text/html; charset=x", Some(ContentFormat::Html)),
            ("application/xhtml+xml", Some(ContentFormat::Html)),
            ("text/plain", Some(ContentFormat::Text)),
            ("application/ld+json", Some(ContentFormat::Text)),
            ("application/rss+xml", Some(ContentFormat::Text)),
            ("", None),
        ] {
            assert_eq!(content_format(text).unwrap(), expected, "{text}");
        }
        for text in ["image/png", "application/pdf", "application/octet-stream", "video/mp4", "x"] {
            assert!(content_format(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn charset_is_detected_from_bom_header_or_meta() {
        let read = |bytes: &[u8], content_type| decode(bytes, content_type, None).unwrap().0;
        assert_eq!(read(b"caf\xe9", "text/plain; charset=ISO-8859-1"), "café");
        assert_eq!(read(b"caf\xe9", ""), "café");
        assert_eq!(read("café".as_bytes(), ""), "café");
        assert_eq!(read(b"<meta charset='shift_jis'>\x93\xfa", "text/html"), "<meta charset='shift_jis'>日");
        assert_eq!(read(b"\xef\xbb\xbfx", "text/plain; charset=latin1"), "x");
        assert_eq!(read(b"\xff\xfea\0", ""), "a");
        assert_eq!(read(b"a", "text/plain; charset=nothing"), "a");
        assert!(decode(b"a\0b", "text/plain", Some(ContentFormat::Text)).is_err());
        assert_eq!(decode(b" <!DOCTYPE HTML><p>", "", None).unwrap().1, ContentFormat::Html);
        assert_eq!(strip_invisible("a\u{202e}b\u{e0041}\u{7}\r\n\tc"), "ab\n\tc");
    }
}
