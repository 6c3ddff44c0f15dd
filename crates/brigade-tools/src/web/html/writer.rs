//! Markdown writer, word by word.
//!
//! Marks such as `**` are written late: an opening mark before the next word, a closing mark right after the last
//! one. So empty markup writes nothing, and no mark crosses the end of a block. Repeated output, such as the
//! indentation of a deep list, is bounded, and so is the whole text.

/// Maximum number of nested lists and quotations that are shown.
const MAX_INDENTS: usize = 12;

/// Separator between the last word and the next; the strongest request wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    None,
    Space,
    Line,
    Paragraph,
}

/// Inline markup around words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    Strong,
    Emphasis,
    Struck,
    /// Link; the number distinguishes links with the same URL.
    Link(u32, String),
}

impl Mark {
    fn opening(&self) -> &'static str {
        match self {
            Mark::Strong => "**",
            Mark::Emphasis => "*",
            Mark::Struck => "~~",
            Mark::Link(..) => "[",
        }
    }

    fn closing(&self) -> String {
        match self {
            Mark::Link(_, address) => format!("]({address})"),
            mark => mark.opening().to_owned(),
        }
    }
}

/// Line prefix of a list or quotation.
struct Indent {
    /// Prefix of the first line, until it is written.
    bullet: Option<String>,
    rest: String,
}

/// State of the page while a cell is written.
struct OuterText {
    out: String,
    gap: Gap,
}

/// Markdown written so far.
pub(super) struct Writer {
    out: String,
    limit: usize,
    gap: Gap,
    indents: Vec<Indent>,
    wanted_marks: Vec<Mark>,
    open_marks: Vec<Mark>,
    /// Set within a table cell, which cannot contain line ends.
    outer: Option<OuterText>,
    /// Number of bytes of cells that are not in the text yet.
    cells: usize,
    /// Text that keeps its white space, if it is open.
    verbatim: Option<String>,
    /// Whether a heading is open, which is a single line.
    one_line: bool,
}

impl Writer {
    pub(super) fn new(limit: usize) -> Self {
        Writer {
            out: String::new(),
            limit,
            gap: Gap::None,
            indents: Vec::new(),
            wanted_marks: Vec::new(),
            open_marks: Vec::new(),
            outer: None,
            cells: 0,
            verbatim: None,
            one_line: false,
        }
    }

    /// Whether the limit is reached.
    pub(super) fn is_full(&self) -> bool {
        let outer = self.outer.as_ref().map_or(0, |outer| outer.out.len());
        self.out.len() + outer + self.cells > self.limit
    }

    pub(super) fn finish(mut self) -> String {
        self.end_cell();
        self.close_marks(0);
        let cut = self.out.floor_char_boundary(self.limit);
        self.out.truncate(cut);
        self.out
    }

    /// Writes running text; white space only separates words.
    pub(super) fn text(&mut self, text: &str) {
        if let Some(inside) = &mut self.verbatim {
            inside.push_str(text);
            return;
        }
        let mut rest = text;
        while !rest.is_empty() && !self.is_full() {
            let word = rest.find(char::is_whitespace).unwrap_or(rest.len());
            if word > 0 {
                let (word, _) = rest.split_at(word);
                let starts_line = self.begin_word();
                escape(word, starts_line, self.outer.is_some(), &mut self.out);
            } else {
                self.separate(Gap::Space);
            }
            let (_, tail) = rest.split_at(word);
            rest = tail.trim_start();
            if word > 0 && rest.len() < tail.len() {
                self.separate(Gap::Space);
            }
        }
    }

    /// Writes text that is already Markdown.
    pub(super) fn literal(&mut self, text: &str) {
        if let Some(inside) = &mut self.verbatim {
            inside.push_str(text);
            return;
        }
        self.begin_word();
        self.out.push_str(text);
    }

    /// Requests at least this separator between the last word and the next.
    pub(super) fn separate(&mut self, gap: Gap) {
        match &mut self.verbatim {
            Some(inside) if gap >= Gap::Line => inside.push('\n'),
            Some(_) => {}
            None => self.gap = self.gap.max(if self.one_line { gap.min(Gap::Space) } else { gap }),
        }
    }

    /// Puts a mark around the following words; false if such a mark is already open.
    pub(super) fn mark(&mut self, mark: Mark) -> bool {
        let is_link = matches!(mark, Mark::Link(..));
        let there = |other: &Mark| *other == mark || (is_link && matches!(other, Mark::Link(..)));
        if self.wanted_marks.iter().any(there) {
            return false;
        }
        self.wanted_marks.push(mark);
        true
    }

    pub(super) fn unmark(&mut self, mark: &Mark) {
        self.wanted_marks.retain(|other| other != mark);
    }

    /// Begins a list item or a quotation; false if too many are nested.
    pub(super) fn indent(&mut self, bullet: Option<&str>, rest: &str) -> bool {
        if self.indents.len() >= MAX_INDENTS {
            return false;
        }
        self.indents.push(Indent { bullet: bullet.map(str::to_owned), rest: rest.to_owned() });
        true
    }

    /// Ends a list item or a quotation.
    pub(super) fn outdent(&mut self) {
        self.indents.pop();
    }

    /// Begins a heading; false if it cannot have a line of its own.
    pub(super) fn begin_heading(&mut self, level: usize) -> bool {
        self.separate(Gap::Paragraph);
        if self.is_in_cell() || self.one_line {
            return false;
        }
        self.indents.push(Indent { bullet: Some("#".repeat(level) + " "), rest: String::new() });
        self.one_line = true;
        true
    }

    pub(super) fn end_heading(&mut self) {
        self.indents.pop();
        self.one_line = false;
        self.separate(Gap::Paragraph);
    }

    /// Begins text that keeps its white space; false if such text is already open.
    pub(super) fn begin_verbatim(&mut self) -> bool {
        let begins = self.verbatim.is_none();
        self.verbatim.get_or_insert_default();
        begins
    }

    /// Ends such text and returns it.
    pub(super) fn end_verbatim(&mut self) -> String {
        self.verbatim.take().unwrap_or_default()
    }

    /// Writes lines verbatim.
    pub(super) fn lines<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        self.separate(Gap::Paragraph);
        // These lines contain the cells of the table.
        self.cells = 0;
        for line in lines {
            if self.is_full() {
                break;
            }
            self.close_marks(0);
            self.write_gap();
            self.out.push_str(line);
            self.gap = Gap::Line;
        }
        self.separate(Gap::Paragraph);
    }

    pub(super) fn is_in_cell(&self) -> bool {
        self.outer.is_some()
    }

    /// Begins a cell. Only one can be open at a time.
    pub(super) fn begin_cell(&mut self) {
        self.end_cell();
        self.close_marks(0);
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        self.outer = Some(OuterText { out: std::mem::take(&mut self.out), gap });
    }

    /// Ends the open cell, if any, and returns its text.
    pub(super) fn end_cell(&mut self) -> Option<String> {
        let outer = self.outer.take()?;
        self.close_marks(0);
        self.gap = outer.gap;
        let cell = std::mem::replace(&mut self.out, outer.out);
        self.cells += cell.len();
        Some(cell)
    }

    /// Writes pending separators and marks before a word; true at the start of a line.
    fn begin_word(&mut self) -> bool {
        let common = self.open_marks.iter().zip(&self.wanted_marks).take_while(|(a, b)| a == b).count();
        self.close_marks(if self.gap >= Gap::Line { 0 } else { common });
        let starts_line = self.write_gap();
        for mark in self.wanted_marks.iter().skip(self.open_marks.len()) {
            self.out.push_str(mark.opening());
        }
        self.open_marks.clone_from(&self.wanted_marks);
        starts_line && self.open_marks.is_empty()
    }

    fn close_marks(&mut self, keep: usize) {
        while self.open_marks.len() > keep
            && let Some(mark) = self.open_marks.pop()
        {
            self.out.push_str(&mark.closing());
        }
    }

    fn write_gap(&mut self) -> bool {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        if self.is_in_cell() {
            let between = match gap {
                Gap::None => "",
                _ if self.out.is_empty() => "",
                Gap::Space => " ",
                Gap::Line | Gap::Paragraph => "<br>",
            };
            self.out.push_str(between);
            return false;
        }
        let first = self.out.is_empty();
        match gap {
            _ if first => {}
            Gap::None => return false,
            Gap::Space => {
                self.out.push(' ');
                return false;
            }
            Gap::Line => self.out.push('\n'),
            Gap::Paragraph => {
                self.out.push('\n');
                let begun = self.indents.iter().take_while(|indent| indent.bullet.is_none());
                let blank: String = begun.map(|indent| indent.rest.as_str()).collect();
                self.out.push_str(blank.trim_end());
                self.out.push('\n');
            }
        }
        for indent in &mut self.indents {
            match indent.bullet.take() {
                Some(bullet) => self.out.push_str(&bullet),
                None => self.out.push_str(&indent.rest),
            }
        }
        true
    }
}

/// Writes a word and escapes everything that Markdown would take for markup.
fn escape(word: &str, starts_line: bool, in_cell: bool, out: &mut String) {
    let number =
        word.strip_suffix(['.', ')']).is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()));
    let marker = word.starts_with('>') || matches!(word, "-" | "+" | "=") || word.bytes().all(|b| b == b'#');
    let rule = word.len() > 2 && word.bytes().all(|b| b == b'-' || b == b'=');
    if starts_line && (marker || rule) {
        out.push('\\');
    }
    let dot = if starts_line && number && word.len() > 1 { word.len() - 1 } else { usize::MAX };
    let mut before = ' ';
    for (at, letter) in word.char_indices() {
        let after = word.get(at + letter.len_utf8()..).and_then(|rest| rest.chars().next()).unwrap_or(' ');
        let escaped = match letter {
            '\\' | '`' | '*' | '[' | ']' => true,
            '_' => !(before.is_alphanumeric() && after.is_alphanumeric()),
            '<' => after.is_ascii_alphabetic() || after == '/' || after == '!',
            '~' => after == '~' || before == '~',
            '|' => in_cell,
            _ => at == dot,
        };
        if escaped {
            out.push('\\');
        }
        out.push(letter);
        before = letter;
    }
}
