//! Fast path for consecutive stream events that differ only in their text.

/// The JSON before and after the text of an event. Most events of a reply differ only in their text, which
/// can then be extracted without parsing JSON again.
#[derive(Debug, Default)]
pub(super) struct EventTemplate {
    before: String,
    after: String,
}

impl EventTemplate {
    /// Remembers an event that contains only this text. `text` must be a slice of the event, exactly as
    /// between its quotes.
    pub(super) fn learn(&mut self, event: &str, text: &str) {
        let at = text.as_ptr().addr().checked_sub(event.as_ptr().addr());
        let parts = at.and_then(|at| Some((event.get(..at)?, event.get(at + text.len()..)?)));
        let (before, after) = parts.filter(|parts| is_quoted(*parts)).unwrap_or_default();
        before.clone_into(&mut self.before);
        after.clone_into(&mut self.after);
    }

    /// Returns the text of an event that otherwise equals the remembered one.
    pub(super) fn text<'a>(&self, event: &'a str) -> Option<&'a str> {
        if self.before.is_empty() {
            return None;
        }
        let text = event.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        // Escapes and early quotes need a JSON parser. An event with empty text is a different kind of event.
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        (!text.is_empty() && text.bytes().all(is_plain)).then_some(text)
    }
}

fn is_quoted((before, after): (&str, &str)) -> bool {
    before.ends_with('"') && after.starts_with('"')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::Chunk;
    use super::super::super::http::{ChunkBuffer, Decoder as _, Endpoint};
    use super::super::super::sse::SseEvent;
    use super::super::reply::Decoder;
    use super::*;

    fn fresh() -> Decoder {
        Decoder::new(Endpoint::new("mock", "http://127.0.0.1:1", None).unwrap(), 9, false)
    }

    /// Returns the text that a decoder makes of an event, or `None` if it rejects the event.
    fn decoded_text(decoder: &mut Decoder, event: &SseEvent) -> Option<String> {
        let (mut buffer, mut text) = (ChunkBuffer::default(), String::new());
        decoder.take(event, &mut buffer).ok()?;
        while let Some(piece) = buffer.next() {
            if let Chunk::Text(more) = piece {
                text.push_str(&more);
            }
        }
        Some(text)
    }

    fn event() -> impl Strategy<Value = SseEvent> {
        let word = prop_oneof![
            Just("token "),
            Just("m"),
            Just(""),
            Just("\u{e9}\u{1F980}"),
            Just(r"\n"),
            Just(r"\u00e9"),
            Just(r"\"),
            Just("\u{7}"),
            Just(r#"","role":"#),
            Just(r#""},"finish_reason":"stop"},{"delta":{"content":"b"#),
        ];
        let words = proptest::collection::vec(word, 1..3).prop_map(|words| words.concat());
        let around = prop_oneof![
            Just((
                r#"{"model":"m","choices":[{"index":0,"delta":{"content":""#,
                r#""},"finish_reason":null}]}"#
            )),
            Just((r#"{"choices":[{"delta":{"role":"assistant","content":""#, r#""}}],"usage":null}"#)),
            Just((r#"{"choices":[{"index":1,"delta":{"content":""#, r#""}}]}"#)),
            Just((r#"{"choices":[{"delta":{"content":[{"text":""#, r#""}]}}]}"#)),
            Just((r#"{"choices":[{"delta":{"content":"a","refusal":""#, r#""}}]}"#)),
            Just((r#"{"choices":[{"delta":{"content":"a"}}],"error":""#, r#""}"#)),
            Just((r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":""#, r#""}}]}"#)),
        ];
        let name = prop_oneof![4 => Just(""), 1 => Just("error")];
        (name, around, words).prop_map(|(name, (before, after), words)| SseEvent {
            name: name.to_owned(),
            data: format!("{before}{words}{after}"),
        })
    }

    proptest! {
        #[test]
        fn event_decodes_the_same_regardless_of_earlier_events(events in proptest::collection::vec(event(), 0..8)) {
            let mut decoder = fresh();
            for event in &events {
                prop_assert_eq!(decoded_text(&mut decoder, event), decoded_text(&mut fresh(), event));
            }
        }
    }

    #[test]
    fn template_matches_only_if_just_the_text_differs() {
        let event = r#"{"id":"m","choices":[{"delta":{"content":"m"}}]}"#;
        let mut template = EventTemplate::default();
        assert_eq!(template.text(event), None);
        template.learn(event, event.get(42..43).unwrap());
        assert_eq!(template.text(&event.replace("t\":\"m", "t\":\"\u{e9} more")), Some("\u{e9} more"));
        for other in [r#"t":"""#, r#"t":"\n""#, r#"t":"a","role":"b""#, r#"t": "m""#] {
            assert_eq!(template.text(&event.replace(r#"t":"m""#, other)), None, "{other}");
        }
        assert_eq!(template.text(&event.replace(r#"d":"m""#, r#"d":"n""#)), None);
        template.learn(event, "a text of somewhere else");
        assert_eq!(template.text(event), None);
    }
}
