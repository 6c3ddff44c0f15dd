//! Inline code and code blocks.

use super::tokens::Attributes;
use super::writer::Gap;
use super::{Conversion, Open, Undo};

impl Conversion<'_> {
    pub(super) fn begin_code(&mut self, attributes: &Attributes) -> Undo {
        if self.writer.begin_verbatim() {
            return Undo::Code;
        }
        // The language of a block is declared on the code element within it.
        if let Some(Open { undo: Undo::Preformatted { language: found }, .. }) = self.open.last_mut()
            && found.is_empty()
        {
            *found = language(attributes);
        }
        Undo::Nothing
    }

    pub(super) fn end_code(&mut self) {
        let verbatim = self.writer.end_verbatim();
        let code = verbatim.split_whitespace().collect::<Vec<_>>().join(" ");
        if code.is_empty() {
            return self.writer.separate(Gap::Space);
        }
        let code = if self.writer.is_in_cell() { code.replace('|', "\\|") } else { code };
        let ticks = "`".repeat(longest_ticks(&code) + 1);
        let pad = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
        self.writer.literal(&format!("{ticks}{pad}{code}{pad}{ticks}"));
    }

    pub(super) fn end_preformatted(&mut self, language: &str) {
        let verbatim = self.writer.end_verbatim();
        let text = verbatim.strip_prefix('\n').unwrap_or(&verbatim).trim_end();
        if text.is_empty() {
            return;
        }
        let fence = "`".repeat((longest_ticks(text) + 1).max(3));
        let first = format!("{fence}{language}");
        self.writer.lines([first.as_str()].into_iter().chain(text.lines()).chain([fence.as_str()]));
    }
}

/// Extracts the language from the class of a code block.
pub(super) fn language(attributes: &Attributes) -> String {
    let classes = attributes.class.as_deref().unwrap_or_default().split_ascii_whitespace();
    let mut named =
        classes.filter_map(|class| class.strip_prefix("language-").or(class.strip_prefix("lang-")));
    let plain = |name: &&str| {
        name.len() <= 32 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-#_.".contains(&b))
    };
    named.next().filter(plain).unwrap_or_default().to_owned()
}

fn longest_ticks(text: &str) -> usize {
    text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0)
}
