//! Shell rules, and command lines prepared for comparison.

mod mentions;

use std::collections::VecDeque;

use super::Match;
use super::lexer::{self, Script, Word};

/// Maximum depth of commands in the arguments of other commands, as in `sh -c "eval '…'"`.
const MAX_NESTING_DEPTH: usize = 8;
/// Maximum total size of such arguments, so that the work stays proportional to the input.
const MAX_NESTED_BYTES: usize = 512 * 1024;
/// Maximum number of words between two words of a rule that are skipped as options.
const MAX_OPTIONS: usize = 64;

/// Words before a command that do not change which command runs.
const KEYWORDS: [&str; 9] = ["!", "{", "if", "elif", "else", "then", "while", "until", "do"];
/// Commands that run their arguments, or a text among them, as a command.
const WRAPPERS: [&str; 33] = [
    "builtin",
    "busybox",
    "command",
    "coproc",
    "doas",
    "env",
    "eval",
    "exec",
    "find",
    "flock",
    "function",
    "ionice",
    "nice",
    "nohup",
    "parallel",
    "script",
    "setsid",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "taskset",
    "time",
    "timeout",
    "toybox",
    "trap",
    "unshare",
    "watch",
    "xargs",
    "chroot",
    "runuser",
    "systemd-run",
];
/// Shells, which run their input if they have no script argument.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash"];
/// Wrappers that add arguments which the command line does not show.
const FEEDERS: [&str; 2] = ["xargs", "parallel"];

pub(super) struct CommandRule {
    words: Vec<String>,
    /// Whether a final star permits further arguments.
    allows_more_arguments: bool,
}

impl CommandRule {
    /// Parses the specifier of a shell rule, or describes the problem with it.
    pub(super) fn parse(specifier: &str) -> Result<Self, &'static str> {
        let Script { mut commands, single, parsed, .. } = lexer::lex(specifier);
        if !parsed {
            return Err(
                "it contains an unclosed quote, an invisible character or shell syntax other than plain words",
            );
        }
        if !single {
            return Err("it contains more than one simple command");
        }
        let mut words = commands.pop().unwrap_or_default();
        let is_star = |word: &Word| word.text == "*" && word.dynamic;
        let allows_more_arguments = words.pop_if(|word| is_star(word)).is_some();
        if words.iter().any(|word| word.dynamic && word.text.contains('*')) {
            return Err("an unquoted `*` is allowed only as the last word; quote it to match a literal `*`");
        }
        if words.is_empty() && !allows_more_arguments {
            return Err("it contains no command");
        }
        if words.first().is_some_and(is_prefix) {
            return Err("it starts with an assignment or a keyword instead of a command");
        }
        Ok(CommandRule { words: words.into_iter().map(|word| word.text).collect(), allows_more_arguments })
    }

    /// Whether no further arguments are permitted.
    pub(super) fn is_exact(&self) -> bool {
        !self.allows_more_arguments
    }

    /// Whether an `allow` rule covers a simple command.
    pub(super) fn allows(&self, words: &[Word]) -> bool {
        let enough = if self.allows_more_arguments {
            words.len() >= self.words.len()
        } else {
            words.len() == self.words.len()
        };
        enough && self.words.iter().zip(words).all(|(rule, word)| *rule == word.text)
    }
}

/// Simple command that a command line might run, with the possible positions of its name.
struct PossibleCommand {
    words: Vec<Word>,
    name_positions: Vec<NamePosition>,
    /// Whether arguments may be added that the command line does not show.
    open: bool,
    /// Whether an expansion may match a word of a rule.
    expansions_may_match: bool,
    /// Whether quotes and comments were respected.
    is_parsed: bool,
}

#[derive(Clone, Copy)]
struct NamePosition {
    at: usize,
    /// Whether an expansion here may be the name of a command, and not only an argument.
    name: bool,
}

/// Command line, prepared to be compared with many rules.
pub(super) struct CommandLine {
    script: Script,
    commands: Vec<PossibleCommand>,
    /// Whether some part of the command line was not understood, so that no rule can be ruled out.
    unknown: bool,
    /// Whether a program or a file may get what a command prints.
    output_is_used: bool,
}

impl CommandLine {
    pub(super) fn new(command: &str) -> Self {
        let script = lexer::lex(command);
        let mut collector = CommandCollector {
            commands: Vec::new(),
            unknown: false,
            queue: VecDeque::new(),
            nested_bytes: 0,
        };
        collector.read(command, &script, 0);
        while let Some((text, depth)) = collector.queue.pop_front() {
            collector.read(&text, &lexer::lex(&text), depth);
        }
        let output_is_used = command.replace("||", "").contains(['|', '>', '`', '(']);
        CommandLine { script, commands: collector.commands, unknown: collector.unknown, output_is_used }
    }

    /// Returns the number of words that rules are compared with.
    #[cfg(test)]
    pub(super) fn words(&self) -> usize {
        self.commands.iter().map(|command| command.words.len()).sum()
    }

    /// Whether `allow` rules cover every part of the command line. Anything beyond plain words, quotes and list
    /// operators is never covered, because the text of the rule would not be what runs.
    pub(super) fn is_allowed(&self, covered: impl Fn(&[Word]) -> bool) -> bool {
        let commands = &self.script.commands;
        let assigns = |words: &[Word]| words.first().is_some_and(|word| is_assignment(&word.text));
        self.script.plain
            && !commands.is_empty()
            && commands.iter().all(|words| !assigns(words) && covered(words))
    }

    /// Whether a `deny` or `ask` rule applies to some part of the command line.
    pub(super) fn matches(&self, rule: &CommandRule) -> Match {
        if rule.words.is_empty() {
            return Match::Yes;
        }
        let floor = if self.unknown { Match::Maybe } else { Match::No };
        let found = self.commands.iter().flat_map(|command| {
            let name_positions = command.name_positions.iter();
            name_positions.map(|start| command.compare(*start, &rule.words))
        });
        let mut best = floor;
        for each in found {
            best = best.max(each);
            if best == Match::Yes {
                break;
            }
        }
        if best == Match::No && self.mentions(&rule.words) {
            return Match::Maybe;
        }
        best
    }
}

impl PossibleCommand {
    /// Compares a rule with the command that starts here. Its words must occur in order and at the front. Options
    /// in between, possibly with a value, do not hide the words after them. An option that the rule names may come
    /// after any word, because most programs accept that.
    fn compare(&self, start: NamePosition, rule: &[String]) -> Match {
        let doubt = |really: bool| if really && self.expansions_may_match { Match::Maybe } else { Match::No };
        let mut words = self.words.iter().skip(start.at);
        let Some(first) = words.next() else { return Match::No };
        match arguments_of_rule(rule, |program| names_program(&first.text, program)) {
            Some(arguments) => compare_arguments(words, arguments, self.open, doubt),
            None => doubt(start.name && first.dynamic),
        }
    }
}

/// Returns the words of a rule after its program, if a word names that program. `git-clean` is the program `git` with
/// the argument `clean`.
fn arguments_of_rule(rule: &[String], mut names: impl FnMut(&str) -> bool) -> Option<&[String]> {
    let (program, arguments) = rule.split_first()?;
    if names(program) {
        return Some(arguments);
    }
    let (first, rest) = arguments.split_first()?;
    names(&format!("{}-{first}", base_name(program))).then_some(rest)
}

/// Whether a word is this program, in any directory.
fn names_program(word: &str, program: &str) -> bool {
    word == program || base_name(word).eq_ignore_ascii_case(base_name(program))
}

/// Whether these words contain the arguments of a rule. `doubt` returns the result where only the run decides.
fn compare_arguments<'a>(
    mut words: impl Iterator<Item = &'a Word>,
    rule: &[String],
    open: bool,
    doubt: impl Fn(bool) -> Match,
) -> Match {
    let (mut passed, mut after_option) = (0, false);
    for wanted in rule {
        loop {
            let Some(word) = words.next() else { return doubt(open) };
            if word.text == *wanted {
                break;
            }
            let option = word.text.starts_with('-');
            if word.dynamic || passed == MAX_OPTIONS {
                return doubt(true);
            }
            if !option && !after_option && !wanted.starts_with('-') {
                return Match::No;
            }
            after_option = option;
            passed += 1;
        }
        after_option = false;
    }
    Match::Yes
}

/// Collects the commands that a command line might run.
struct CommandCollector {
    commands: Vec<PossibleCommand>,
    unknown: bool,
    queue: VecDeque<(String, usize)>,
    nested_bytes: usize,
}

impl CommandCollector {
    fn read(&mut self, text: &str, script: &Script, depth: usize) {
        self.unknown |= !script.parsed;
        for words in &script.commands {
            self.add_command(words.clone(), true, Some(depth));
        }
        if script.parsed && !script.odd {
            return;
        }
        // A real shell may see other commands here, so every reading counts: without the deceptive characters, with
        // spaces in their place and with line ends in their place. The first reading already covers uncertain
        // expansions, unless a here-document made it unreliable.
        let deceptive = text.contains(lexer::is_deceptive);
        for instead in ["", " ", "\n"].into_iter().take(if deceptive { 3 } else { 1 }) {
            for words in lexer::split_unquoted(&text.replace(lexer::is_deceptive, instead)) {
                self.add_command(words, script.heredoc, None);
            }
        }
    }

    /// Adds one command, and queues the commands in its arguments unless it was split without quoting.
    fn add_command(&mut self, words: Vec<Word>, expansions_may_match: bool, depth: Option<usize>) {
        let at = words.iter().take_while(|word| is_prefix(word)).count();
        let mut command = PossibleCommand {
            words,
            name_positions: vec![NamePosition { at, name: true }],
            open: false,
            expansions_may_match,
            is_parsed: depth.is_some(),
        };
        if let Some(word) = command.words.get(at) {
            let name = base_name(&word.text).to_ascii_lowercase();
            // An alias renames a command for the following lines.
            self.unknown |= name == "alias";
            if is_wrapper(&name) {
                self.unwrap_command(&mut command, at, depth);
            }
        }
        self.commands.push(command);
    }

    /// Treats any argument of a wrapper as the possible name of the command it runs, because the options of all
    /// wrappers are not known.
    fn unwrap_command(&mut self, command: &mut PossibleCommand, wrapper: usize, depth: Option<usize>) {
        let PossibleCommand { words, name_positions, open, .. } = command;
        // As long as there are only options, their values, numbers and other wrappers, the name is still to come.
        let (mut front, mut after_option, mut fed, mut evaluated) = (true, false, false, false);
        for (at, word) in words.iter().enumerate().skip(wrapper) {
            let name = base_name(&word.text).to_ascii_lowercase();
            if at > wrapper {
                name_positions.push(NamePosition { at, name: front });
                self.queue_nested(&word.text, front, depth);
                if let Some(start) = split_string(&word.text) {
                    let rest = words.iter().skip(at + 1).map(|word| word.text.as_str());
                    let line: Vec<&str> = std::iter::once(start).chain(rest).collect();
                    self.queue_nested(&line.join(" "), true, depth);
                }
            }
            let option = word.text.starts_with('-');
            if front && is_wrapper(&name) {
                fed = SHELLS.contains(&name.as_str());
                *open |= FEEDERS.contains(&name.as_str());
                if name == "eval" && !std::mem::replace(&mut evaluated, true) {
                    let rest: Vec<&str> = words.iter().skip(at + 1).map(|word| word.text.as_str()).collect();
                    self.queue_nested(&rest.join(" "), true, depth);
                }
            } else if option {
                // A shell with `-s` reads commands from its input whatever its other arguments are.
                self.unknown |= fed && !word.text.starts_with("--") && word.text.contains('s');
            } else {
                fed = false;
                front &=
                    after_option || is_prefix(word) || word.text.starts_with(|c: char| c.is_ascii_digit());
            }
            after_option = option;
        }
        // A shell without a script runs its input from the pipe.
        self.unknown |= fed;
    }

    /// Queues an argument that may be a command line itself. A single word counts only at the front, where its
    /// expansions would be resolved a second time; elsewhere it would be taken for a command too often.
    fn queue_nested(&mut self, text: &str, front: bool, depth: Option<usize>) {
        let Some(depth) = depth else { return };
        let several = text.contains([' ', '\t', '\n', ';', '&', '|', '(', ')', '`', '<', '>']);
        let resolved_again = front && text.contains(['$', '\'', '"', '\\', '{', '*', '?', '[']);
        if !several && !resolved_again {
            return;
        }
        if depth == MAX_NESTING_DEPTH || self.nested_bytes + text.len() > MAX_NESTED_BYTES {
            self.unknown = true;
            return;
        }
        self.nested_bytes += text.len();
        self.queue.push_back((text.to_owned(), depth + 1));
    }
}

/// Returns the start of a command line that is attached to an option, as in `env -S'…'`.
fn split_string(option: &str) -> Option<&str> {
    if let Some(line) = option.strip_prefix("--split-string=") {
        return Some(line);
    }
    let letters = option.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    letters.split_once('S').map(|(_, line)| line).filter(|line| !line.is_empty())
}

/// Whether a word in front of a command does not determine which command runs.
fn is_prefix(word: &Word) -> bool {
    KEYWORDS.contains(&word.text.as_str()) || is_assignment(&word.text)
}

fn is_wrapper(name: &str) -> bool {
    WRAPPERS.contains(&name) || SHELLS.contains(&name)
}

/// Returns the name of a command without its directory.
fn base_name(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

/// Whether a word in front of a command sets a variable, as in `A=b`, `A+=b` or `A[1]=b`.
fn is_assignment(text: &str) -> bool {
    let Some((name, _)) = text.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests;
