//! Splits a command line into simple commands the way a POSIX shell would, in one pass and without recursion.
//!
//! Shells differ, and a check that reads a command differently from the shell protects nothing. So the lexer does
//! not claim to understand everything: it notes where a real shell might see other boundaries. Such a command is
//! never `plain`, and for `deny` rules it is read a second time with [`split_unquoted`].

use std::iter::Peekable;
use std::str::Chars;

/// Maximum length of a command line; a longer one counts as not understood.
const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// Word of a command, with quotes resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Whether the word contains an expansion and is known only at run time; `text` is then the source.
    pub(super) dynamic: bool,
    quoted: bool,
}

impl Word {
    /// Word without quotes and expansions.
    pub(super) fn literal(text: &str) -> Word {
        Word { text: text.to_owned(), ..Word::default() }
    }
}

/// Result of the lexer.
#[derive(Debug)]
pub(super) struct Script {
    /// All simple commands, including those in substitutions and subshells.
    pub(super) commands: Vec<Vec<Word>>,
    /// Whether there are only words, quotes and list operators, which every shell reads alike.
    pub(super) plain: bool,
    /// Whether there is one command without operators, nesting, redirections or comments.
    pub(super) single: bool,
    /// Whether the command was read to its end and contains no invisible characters.
    pub(super) parsed: bool,
    /// Whether a real shell may read the quoting or nesting differently.
    pub(super) odd: bool,
    /// Whether the text of a here-document was read as commands.
    pub(super) heredoc: bool,
}

/// Whether a character is invisible, or splits words in some programs and not in others.
pub(super) fn is_deceptive(c: char) -> bool {
    match c {
        '\t' | '\n' | ' ' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{feff}' => {
            true
        }
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        c => c.is_control() || c.is_whitespace(),
    }
}

/// Splits a command line.
pub(super) fn lex(command: &str) -> Script {
    let mut script = Lexer::new(command, true).run();
    let is_valid = command.len() <= MAX_COMMAND_BYTES && !command.chars().any(is_deceptive);
    script.parsed &= is_valid;
    // Some builtins evaluate an argument even if it was quoted, as in `printf -v 'a[$(x)]'`.
    script.plain &= script.parsed && !command.contains(['$', '`']);
    script
}

/// Splits a command line as if nothing were quoted: the broad reading for `deny` rules.
pub(super) fn split_unquoted(command: &str) -> Vec<Vec<Word>> {
    Lexer::new(command, false).run().commands
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Nesting {
    #[default]
    Top,
    Paren,
    Backtick,
}

/// Command that is being read at one level of nesting.
#[derive(Debug, Default)]
struct Frame {
    nest: Nesting,
    in_quotes: bool,
    words: Vec<Word>,
    word: Option<Word>,
    /// Whether the next word is the target of a redirection and not an argument.
    redirected: bool,
    /// Whether that target is the text of a here-string.
    here_string: bool,
    /// Texts of here-strings. The program may run them, so they count as its last arguments.
    input: Vec<Word>,
    /// Positions in `words` at which some shells would end one command and begin the next.
    forks: Vec<usize>,
}

struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    /// Whether quotes are respected. If not, quotes are dropped and every bracket separates.
    quoting: bool,
    frame: Frame,
    outer: Vec<Frame>,
    backticks: usize,
    out: Script,
}

impl<'a> Lexer<'a> {
    fn new(command: &'a str, quoting: bool) -> Self {
        let out = Script {
            commands: Vec::new(),
            plain: true,
            single: true,
            parsed: true,
            odd: false,
            heredoc: false,
        };
        let chars = command.chars().peekable();
        Lexer { chars, quoting, frame: Frame::default(), outer: Vec::new(), backticks: 0, out }
    }

    fn run(mut self) -> Script {
        while let Some(c) = self.chars.next() {
            if self.frame.in_quotes {
                self.quoted(c);
            } else {
                self.unquoted(c);
            }
        }
        self.out.parsed &= !self.frame.in_quotes && self.outer.is_empty();
        self.end_command();
        while let Some(frame) = self.outer.pop() {
            self.frame = frame;
            self.end_command();
        }
        self.out
    }

    fn unquoted(&mut self, c: char) {
        match c {
            ' ' | '\t' => self.end_word(),
            '\n' | ';' | '|' => self.separate(),
            '&' if self.quoting && self.chars.peek() == Some(&'>') => self.fork(),
            '&' => self.separate(),
            '\'' | '"' if !self.quoting => {}
            '\'' => self.single_quotes(),
            '"' => {
                self.word().quoted = true;
                self.frame.in_quotes = true;
            }
            '\\' => self.escape(),
            '$' => self.dollar(),
            '`' => self.backtick(),
            '(' => self.open_subshell(),
            ')' => self.close_paren(),
            '<' | '>' => self.redirect(c),
            '#' if self.quoting && self.frame.word.is_none() => self.comment(),
            '*' | '?' | '{' => self.expand(c),
            ']' if self.frame.word.as_ref().is_some_and(|word| word.text.contains('[')) => self.expand(c),
            '[' | ']' | '}' | '~' | '!' | '#' => {
                self.out.plain = false;
                self.push(c);
            }
            c => self.push(c),
        }
    }

    fn quoted(&mut self, c: char) {
        match c {
            '"' => self.frame.in_quotes = false,
            '\\' => match self.chars.next() {
                Some('\n') => self.out.plain = false,
                Some(c @ ('$' | '`' | '"' | '\\')) => {
                    self.out.parsed &= self.backticks == 0;
                    self.push(c);
                }
                Some(c) => {
                    self.push('\\');
                    self.push(c);
                }
                None => self.out.parsed = false,
            },
            '$' => self.dollar(),
            '`' => self.backtick(),
            '!' => {
                self.out.plain = false;
                self.push(c);
            }
            c => self.push(c),
        }
    }

    fn single_quotes(&mut self) {
        let ansi = self.frame.word.as_ref().is_some_and(|word| word.dynamic && word.text.ends_with('$'));
        self.word().quoted = true;
        loop {
            match self.chars.next() {
                Some('\'') => return,
                Some(c) => {
                    // Bash processes escapes in `$'…'`, unlike other shells, and ends a backtick even in quotes.
                    let escapes = ansi && c == '\\';
                    let ends = self.backticks > 0 && matches!(c, '`' | '\\');
                    self.out.parsed &= !escapes && !ends;
                    self.push(c);
                }
                None => {
                    self.out.parsed = false;
                    return;
                }
            }
        }
    }

    fn escape(&mut self) {
        self.out.parsed &= self.backticks == 0;
        if self.chars.peek() == Some(&'\n') {
            // Line continuation: the shell removes both characters.
            self.out.plain = false;
            self.chars.next();
        } else if self.quoting {
            match self.chars.next() {
                Some(c) => {
                    self.word().quoted = true;
                    self.push(c);
                }
                None => self.out.parsed = false,
            }
        }
    }

    fn dollar(&mut self) {
        self.expand('$');
        match self.chars.peek() {
            Some('(') if self.quoting => {
                self.chars.next();
                self.enter_nested(Nesting::Paren);
                self.out.odd |= self.chars.peek() == Some(&'(');
            }
            Some('{') => self.parameter(),
            Some('[') => self.out.parsed = false,
            _ => {}
        }
    }

    /// Reads `${name…}`. The text after the name may quote and nest by its own rules; then it counts as not
    /// understood.
    fn parameter(&mut self) {
        while let Some(&c) = self.chars.peek() {
            if !(c.is_ascii_alphanumeric() || "{}_-:=+?%/#^,.@*![]".contains(c)) {
                self.out.parsed = false;
                return;
            }
            self.chars.next();
            self.push(c);
            if c == '}' {
                return;
            }
        }
        self.out.parsed = false;
    }

    fn backtick(&mut self) {
        self.out.odd = true;
        if !self.quoting {
            self.separate();
        } else if self.frame.nest == Nesting::Backtick && !self.frame.in_quotes {
            self.backticks = self.backticks.saturating_sub(1);
            self.leave_nested();
        } else {
            self.out.parsed &= self.backticks == 0;
            self.word().dynamic = true;
            self.backticks += 1;
            self.enter_nested(Nesting::Backtick);
        }
    }

    fn open_subshell(&mut self) {
        self.separate();
        self.out.plain = false;
        self.out.odd |= self.chars.peek() == Some(&'(');
        if self.quoting {
            self.enter_nested(Nesting::Paren);
        }
    }

    fn close_paren(&mut self) {
        self.separate();
        self.out.plain = false;
        if self.frame.nest == Nesting::Paren {
            self.leave_nested();
        } else {
            // This is the pattern of a `case`, or not a valid command.
            self.out.odd = true;
        }
    }

    fn redirect(&mut self, c: char) {
        self.out.plain = false;
        self.out.single = false;
        self.out.odd = true;
        if !self.quoting {
            return self.end_command();
        }
        if self.chars.peek() == Some(&'(') {
            self.chars.next();
            self.word().dynamic = true;
            return self.enter_nested(Nesting::Paren);
        }
        let is_fd =
            |word: &Word| !word.quoted && !word.dynamic && word.text.bytes().all(|b| b.is_ascii_digit());
        if self.frame.word.as_ref().is_some_and(is_fd) {
            self.frame.word = None;
        }
        self.end_word();
        if c == '<' && self.chars.next_if_eq(&'<').is_some() {
            self.frame.here_string = self.chars.next_if_eq(&'<').is_some();
            self.out.heredoc |= !self.frame.here_string;
        } else {
            self.chars.next_if(|next| matches!(next, '>' | '&' | '|'));
        }
        self.frame.redirected = true;
    }

    /// Reads `&>`, which redirects in bash and ends the command in a POSIX shell; both readings are kept.
    fn fork(&mut self) {
        self.end_word();
        self.frame.forks.push(self.frame.words.len());
    }

    fn comment(&mut self) {
        self.out.plain = false;
        self.out.single = false;
        self.out.odd = true;
        while self.chars.next_if(|c| *c != '\n').is_some() {}
    }

    /// Pushes a character that makes the word unknown before run time.
    fn expand(&mut self, c: char) {
        self.out.plain = false;
        self.word().dynamic = true;
        self.push(c);
    }

    fn enter_nested(&mut self, nest: Nesting) {
        self.out.plain = false;
        self.out.single = false;
        let inner = Frame { nest, ..Frame::default() };
        self.outer.push(std::mem::replace(&mut self.frame, inner));
    }

    fn leave_nested(&mut self) {
        self.end_command();
        self.frame = self.outer.pop().unwrap_or_default();
    }

    fn word(&mut self) -> &mut Word {
        self.frame.word.get_or_insert_default()
    }

    fn push(&mut self, c: char) {
        self.word().text.push(c);
    }

    fn separate(&mut self) {
        self.out.single = false;
        self.end_command();
    }

    fn end_word(&mut self) {
        let Some(mut word) = self.frame.word.take() else { return };
        if std::mem::take(&mut self.frame.redirected) {
            if std::mem::take(&mut self.frame.here_string) {
                self.frame.input.push(word);
            }
            return;
        }
        // A single brace groups commands.
        word.dynamic &= word.text != "{";
        // Patterns of a `case` close parentheses that were never opened, which would end a substitution early.
        self.out.parsed &= word.text != "case" || self.outer.is_empty() || word.quoted;
        self.frame.words.push(word);
    }

    fn end_command(&mut self) {
        self.end_word();
        self.frame.redirected = false;
        self.frame.here_string = false;
        let mut words = std::mem::take(&mut self.frame.words);
        words.append(&mut self.frame.input);
        let forks = std::mem::take(&mut self.frame.forks);
        let ends = forks.iter().copied().chain((!forks.is_empty()).then_some(words.len()));
        let mut from = 0;
        for to in ends {
            self.emit(words.get(from..to).unwrap_or_default().to_vec());
            from = to;
        }
        self.emit(words);
    }

    fn emit(&mut self, words: Vec<Word>) {
        if !words.is_empty() {
            self.out.commands.push(words);
        }
    }
}

#[cfg(test)]
mod tests;
