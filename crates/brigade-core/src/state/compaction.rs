//! Text of the older part of a conversation, for the model to summarise.

use super::transcript::TranscriptEntry;

/// Approximate number of bytes around a piece.
const PIECE_OVERHEAD_BYTES: usize = 48;

/// Input of a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionInput {
    /// Older part of the conversation.
    pub text: String,
    /// First turn that stays as it is.
    pub keep_from: u32,
}

/// Renders the entries as one text of about `max_bytes` at most: long pieces lose their middle first, then the
/// oldest are dropped.
pub(super) fn render(entries: &[TranscriptEntry], max_bytes: usize) -> String {
    let mut pieces: Vec<(String, &str)> = entries.iter().flat_map(pieces).collect();
    let max_pieces = max_bytes / (2 * PIECE_OVERHEAD_BYTES);
    let left_out = pieces.len().saturating_sub(max_pieces);
    pieces.drain(..left_out);
    let cap = cap(
        pieces.iter().map(|(_, text)| text.len()),
        max_bytes.saturating_sub(pieces.len() * PIECE_OVERHEAD_BYTES),
    );
    let mut text = String::new();
    if left_out > 0 {
        let parts = if left_out == 1 { "part" } else { "parts" };
        text.push_str(&format!("[{left_out} older {parts} omitted]\n\n"));
    }
    for (label, piece) in pieces {
        text.push_str(&format!("## {label}\n{}\n\n", clip(piece, cap)));
    }
    text
}

/// Splits an entry into pieces, each with its speaker.
fn pieces(entry: &TranscriptEntry) -> Vec<(String, &str)> {
    match entry {
        TranscriptEntry::UserMessage(message) => vec![("Message".to_owned(), message.as_str())],
        TranscriptEntry::Turn { reply, outputs, .. } => {
            let mut pieces = Vec::new();
            if !reply.text.is_empty() {
                pieces.push(("The agent".to_owned(), reply.text.as_str()));
            }
            for (index, call) in reply.calls.iter().enumerate() {
                pieces.push((format!("The agent calls {}", call.name), call.arguments.as_str()));
                if let Some(output) = outputs.get(index).and_then(Option::as_ref) {
                    let how = if output.is_error() { "failed" } else { "returned" };
                    pieces.push((format!("{} {how}", call.name), output.text.as_str()));
                }
            }
            pieces
        }
    }
}

/// Returns the maximum length per piece so that all pieces together have at most `max_bytes`.
fn cap(lengths: impl Iterator<Item = usize>, max_bytes: usize) -> usize {
    let mut lengths: Vec<usize> = lengths.collect();
    lengths.sort_unstable();
    let (mut left, mut count) = (max_bytes, lengths.len());
    for length in lengths {
        let share = left / count.max(1);
        if length > share {
            return share;
        }
        left -= length;
        count -= 1;
    }
    usize::MAX
}

/// Keeps the beginning and the end of a text that is longer than `cap`.
fn clip(text: &str, cap: usize) -> String {
    if text.len() <= cap {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(cap / 3 * 2);
    let tail = text.ceil_char_boundary(text.len() - cap / 3);
    let gone = tail - head;
    format!("{} [{gone} bytes omitted] {}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Reply, ToolCall, ToolOutput};

    #[test]
    fn render_clips_long_pieces_in_the_middle() {
        let long = format!("begin{}end", "\u{e9}".repeat(5000));
        let entries = [
            TranscriptEntry::UserMessage("short".into()),
            TranscriptEntry::UserMessage(long.as_str().into()),
        ];
        let text = render(&entries, 1000);
        assert!(text.len() < 1100, "{}", text.len());
        assert!(
            text.contains("\nshort\n") && text.contains("begin\u{e9}") && text.contains("\u{e9}end"),
            "{text}"
        );
        assert!(text.contains("bytes omitted"), "{text}");
        let whole = render(&entries, 100_000);
        assert!(whole.contains(&long), "{whole}");
    }

    #[test]
    fn render_drops_the_oldest_pieces_first() {
        let entries: Vec<TranscriptEntry> = (0..1000)
            .map(|number| TranscriptEntry::UserMessage(format!("word {number}").as_str().into()))
            .collect();
        let text = render(&entries, 1000);
        assert!(text.len() < 1200, "{}", text.len());
        assert!(
            text.contains("word 999") && !text.contains("word 1\n") && text.contains("990 older"),
            "{text}"
        );
        assert!(render(&entries, 0).len() < 100);
    }

    #[test]
    fn render_labels_each_piece_with_its_speaker() {
        let call = |name: &str| ToolCall {
            name: name.to_owned(),
            arguments: format!("{{\"of\":\"{name}\"}}").into(),
            provider_id: None,
        };
        let calls = vec![call("read"), call("shell"), call("grep")];
        let reply = Reply { text: "I look.".into(), calls, ..Reply::default() };
        let outputs = vec![Some(ToolOutput::ok("text")), Some(ToolOutput::error("denied")), None];
        let silent = Reply { calls: vec![call("read")], ..Reply::default() };
        let entries = [
            TranscriptEntry::UserMessage("Do it".into()),
            TranscriptEntry::Turn { turn: 1, reply: reply.into(), outputs },
            TranscriptEntry::Turn { turn: 2, reply: silent.into(), outputs: Vec::new() },
        ];
        let expected = "## Message\nDo it\n\n## The agent\nI look.\n\n\
             ## The agent calls read\n{\"of\":\"read\"}\n\n## read returned\ntext\n\n\
             ## The agent calls shell\n{\"of\":\"shell\"}\n\n## shell failed\ndenied\n\n\
             ## The agent calls grep\n{\"of\":\"grep\"}\n\n## The agent calls read\n{\"of\":\"read\"}\n\n";
        assert_eq!(render(&entries, 10_000), expected);
    }

    #[test]
    fn render_uses_half_of_the_bytes_for_text() {
        let long = |letter: &str| TranscriptEntry::UserMessage(letter.repeat(90).as_str().into());
        let entries = [long("a"), long("b"), long("c")];
        let (b, c) = ("b".repeat(32), "c".repeat(32));
        let piece = |text: &str| {
            let tail = &text[..16];
            format!("## Message\n{text} [42 bytes omitted] {tail}\n\n")
        };
        // Two pieces, 48 bytes each for their labels and 48 for their texts.
        let expected = format!("[1 older part omitted]\n\n{}{}", piece(&b), piece(&c));
        assert_eq!(render(&entries, 192), expected);
        assert!(render(&entries, 191).starts_with("[2 older parts"));
        assert!(!render(&entries, 288).contains("older parts"));
    }

    #[test]
    fn cap_gives_the_rest_of_short_pieces_to_long_ones() {
        let cap = |lengths: &[usize], max_bytes| cap(lengths.iter().copied(), max_bytes);
        assert_eq!(cap(&[30, 10, 20], 60), usize::MAX);
        assert_eq!(cap(&[30, 10, 20], 59), 29);
        assert_eq!(cap(&[30, 10, 20], 45), 17);
        assert_eq!(cap(&[30, 10, 20], 29), 9);
        assert_eq!((cap(&[], 0), cap(&[0], 0), cap(&[1], 0)), (usize::MAX, usize::MAX, 0));
    }

    #[test]
    fn clip_keeps_two_thirds_from_the_beginning() {
        assert_eq!(clip("0123456789", 10), "0123456789");
        assert_eq!(clip("0123456789", 9), "012345 [1 bytes omitted] 789");
        assert_eq!(clip("0123456789", 5), "01 [7 bytes omitted] 9");
        assert_eq!(clip("0123456789", 2), " [10 bytes omitted] ");
        // Characters are not split: the beginning and the end become shorter.
        assert_eq!(clip("\u{e9}\u{e9}\u{e9}", 5), "\u{e9} [4 bytes omitted] ");
    }
}
