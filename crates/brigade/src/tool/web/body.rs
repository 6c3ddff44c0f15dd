//! The body of an answer, read under a limit and made text.

use std::io::{self, Write};

use encoding_rs::Encoding;
use flate2::write::MultiGzDecoder;
use reqwest::{Response, header};

use super::error::{Cause, innermost, plain};

/// How far into a page its own word about its letters is looked for.
const HEAD: usize = 1024;

/// What came back.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether there was more than may be read.
    pub(super) is_cut: bool,
}

/// What can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Text,
}

/// Reads at most `limit` bytes, compressed or not.
pub(super) async fn read(mut response: Response, limit: usize) -> Result<Body, Cause> {
    let encoding = header(&response, header::CONTENT_ENCODING);
    let mut decoder = match encoding.as_str() {
        "" | "identity" => Decoder::Plain(Capped::new(limit)),
        "gzip" | "x-gzip" => Decoder::Gzip(MultiGzDecoder::new(Capped::new(limit))),
        other => return Err(Cause::Compression(format!("`{}`", plain(other)))),
    };
    let mut received = 0;
    while let Some(chunk) = response.chunk().await.map_err(|error| Cause::Broken(innermost(&error)))? {
        received += chunk.len();
        let written = decoder.write(&chunk);
        if decoder.capped().is_full || received > limit {
            return Ok(decoder.cut());
        }
        written.map_err(|error| Cause::Broken(error.to_string()))?;
    }
    decoder.finish().map_err(|error| Cause::Broken(error.to_string()))
}

enum Decoder {
    Plain(Capped),
    Gzip(MultiGzDecoder<Capped>),
}

impl Decoder {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Decoder::Plain(capped) => capped.write_all(chunk),
            Decoder::Gzip(decoder) => decoder.write_all(chunk),
        }
    }

    fn capped(&mut self) -> &mut Capped {
        match self {
            Decoder::Plain(capped) => capped,
            Decoder::Gzip(decoder) => decoder.get_mut(),
        }
    }

    /// What there is, of something that is longer.
    fn cut(&mut self) -> Body {
        Body { bytes: std::mem::take(&mut self.capped().bytes), is_cut: true }
    }

    fn finish(mut self) -> io::Result<Body> {
        if let Decoder::Gzip(decoder) = &mut self
            && let Err(error) = decoder.try_finish()
            && !self.capped().is_full
        {
            return Err(error);
        }
        let is_cut = self.capped().is_full;
        Ok(Body { is_cut, ..self.cut() })
    }
}

/// Takes bytes up to a limit and refuses more, which stops whoever writes.
struct Capped {
    bytes: Vec<u8>,
    limit: usize,
    is_full: bool,
}

impl Capped {
    fn new(limit: usize) -> Capped {
        Capped { bytes: Vec::new(), limit, is_full: false }
    }
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.bytes.len());
        let (taken, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.bytes.extend_from_slice(taken);
        if !rest.is_empty() {
            self.is_full = true;
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than may be read"));
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A header as text, in small letters.
fn header(response: &Response, name: header::HeaderName) -> String {
    let value = response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    value.unwrap_or_default().trim().to_ascii_lowercase()
}

/// What a server says about its answer.
pub(super) fn content_type(response: &Response) -> String {
    header(response, header::CONTENT_TYPE)
}

/// Whether something of this type can be read; none where the server says nothing.
pub(super) fn format(content_type: &str) -> Result<Option<Format>, Cause> {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let (kind, form) = essence.split_once('/').unwrap_or((essence, ""));
    let readable = ["json", "xml", "yaml", "x-yaml", "toml", "x-ndjson", "jsonl", "markdown", "javascript"];
    match (kind, form) {
        ("", _) => Ok(None),
        ("text", "html") | ("application", "xhtml+xml") => Ok(Some(Format::Html)),
        ("text", _) => Ok(Some(Format::Text)),
        ("application", form)
            if readable.contains(&form) || form.ends_with("+json") || form.ends_with("+xml") =>
        {
            Ok(Some(Format::Text))
        }
        _ => Err(Cause::Type(format!("`{}`", plain(essence)))),
    }
}

/// The text of a body, and what it is.
pub(super) fn text(
    bytes: &[u8],
    content_type: &str,
    format: Option<Format>,
) -> Result<(String, Format), Cause> {
    let encoding = encoding(bytes, content_type);
    let is_wide = encoding == encoding_rs::UTF_16LE || encoding == encoding_rs::UTF_16BE;
    if !is_wide && bytes.contains(&0) {
        return Err(Cause::Type("binary, whatever the server says".to_owned()));
    }
    let (text, _, _) = encoding.decode(bytes);
    let start: String = text.trim_start().chars().take(16).collect::<String>().to_ascii_lowercase();
    let is_html = ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| start.starts_with(tag));
    let found = if is_html { Format::Html } else { Format::Text };
    Ok((text.into_owned(), format.unwrap_or(found)))
}

/// The letters of a text: as its first bytes say, then the server, then the page, then the bytes themselves.
fn encoding(bytes: &[u8], content_type: &str) -> &'static Encoding {
    if let Some((encoding, _)) = Encoding::for_bom(bytes) {
        return encoding;
    }
    let head = String::from_utf8_lossy(bytes.get(..HEAD).unwrap_or(bytes)).to_ascii_lowercase();
    let by_page = || {
        let (_, tail) = head.split_once("<meta")?;
        label(tail)
    };
    label(content_type).or_else(by_page).unwrap_or_else(|| match std::str::from_utf8(bytes) {
        Ok(_) => encoding_rs::UTF_8,
        // The last letter may have been cut in two, where others are whole.
        Err(error)
            if error.error_len().is_none()
                && bytes.get(..error.valid_up_to()).is_some_and(|valid| !valid.is_ascii()) =>
        {
            encoding_rs::UTF_8
        }
        Err(_) => encoding_rs::WINDOWS_1252,
    })
}

fn label(text: &str) -> Option<&'static Encoding> {
    let (_, tail) = text.split_once("charset=")?;
    let tail = tail.trim_start_matches(['"', '\'', ' ']);
    let end = tail.find(|c: char| c == ';' || c == '"' || c == '\'' || c == '>' || c.is_whitespace());
    Encoding::for_label(tail.get(..end.unwrap_or(tail.len()))?.as_bytes())
}

/// Leaves out what no reader sees: control characters, and letters that hide or reorder others.
pub(super) fn visible(text: &str) -> String {
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
    fn types_are_told_apart() {
        for (text, expected) in [
            ("text/html; charset=x", Some(Format::Html)),
            ("application/xhtml+xml", Some(Format::Html)),
            ("text/plain", Some(Format::Text)),
            ("application/ld+json", Some(Format::Text)),
            ("application/rss+xml", Some(Format::Text)),
            ("", None),
        ] {
            assert_eq!(format(text).unwrap(), expected, "{text}");
        }
        for text in ["image/png", "application/pdf", "application/octet-stream", "video/mp4", "x"] {
            assert!(format(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn letters_are_found_out() {
        let read = |bytes: &[u8], content_type| text(bytes, content_type, None).unwrap().0;
        assert_eq!(read(b"caf\xe9", "text/plain; charset=ISO-8859-1"), "café");
        assert_eq!(read(b"caf\xe9", ""), "café");
        assert_eq!(read("café".as_bytes(), ""), "café");
        assert_eq!(read(b"<meta charset='shift_jis'>\x93\xfa", "text/html"), "<meta charset='shift_jis'>日");
        assert_eq!(read(b"\xef\xbb\xbfx", "text/plain; charset=latin1"), "x");
        assert_eq!(read(b"\xff\xfea\0", ""), "a");
        assert_eq!(read(b"a", "text/plain; charset=nothing"), "a");
        assert!(text(b"a\0b", "text/plain", Some(Format::Text)).is_err());
        assert_eq!(text(b" <!DOCTYPE HTML><p>", "", None).unwrap().1, Format::Html);
        assert_eq!(visible("a\u{202e}b\u{e0041}\u{7}\r\n\tc"), "ab\n\tc");
    }
}
