//! Mentions of a denied command in a place where only the run decides whether it is a command: in the arguments of
//! other programs, in texts that they may run, in variables and under other names.
//!
//! Any of these makes a `deny` rule ask. Not every way to run a command can be found: a program can read the command
//! from a file, or compute it.

use super::{CommandLine, PossibleCommand, Word};
use super::{Match, arguments_of_rule, base_name, compare_arguments, is_assignment, names_program};

/// Builtins of all shells that neither run nor print their arguments.
const IGNORE_ARGUMENTS: [&str; 6] = [":", "[", "cd", "false", "test", "true"];
/// Programs that print their arguments or search for them, and do not run them.
const PRINT_ARGUMENTS: [&str; 4] = ["echo", "grep", "egrep", "fgrep"];
/// Commands that give a program another name, or copy it.
const COPIERS: [&str; 10] = ["alias", "cat", "cp", "dd", "hash", "install", "link", "ln", "mv", "rsync"];
/// Commands that store their arguments in variables, or print the path of a program.
const DECLARERS: [&str; 13] = [
    "command", "declare", "export", "for", "let", "local", "read", "readonly", "select", "set", "type",
    "typeset", "which",
];
/// Subcommands of git that take a message, and the programs of which every subcommand does.
const MESSAGE_SUBCOMMANDS: [&str; 5] = ["commit", "merge", "notes", "stash", "tag"];
const MESSAGE_PROGRAMS: [&str; 3] = ["gh", "glab", "jj"];
const MESSAGE_OPTIONS: [&str; 7] = ["-m", "-am", "-b", "-t", "--message", "--body", "--title"];

impl CommandLine {
    /// Whether the command of a rule is mentioned, so that the command line might run it.
    pub(super) fn mentions(&self, rule: &[String]) -> bool {
        let Some(program) = rule.first() else { return false };
        let parsed = || self.commands.iter().filter(|command| command.is_parsed);
        let words = || parsed().flat_map(|command| &command.words);
        let copies = || parsed().any(|command| COPIERS.contains(&command.program()));
        let expands = || words().any(|word| word.dynamic);
        parsed().any(|command| command.mentions(rule, self.output_is_used))
            || parsed().any(|command| command.stores(program) && (expands() || copies()))
            || (words().any(|word| renames_subcommands(&word.text, program))
                && words().any(|word| names_program(&word.text, program)))
    }
}

impl PossibleCommand {
    fn name_at(&self) -> usize {
        self.name_positions.first().map_or(0, |name| name.at)
    }

    fn name(&self) -> &str {
        self.words.get(self.name_at()).map_or("", |word| word.text.as_str())
    }

    fn program(&self) -> &str {
        base_name(self.name())
    }

    /// Whether the command of a rule is among the arguments, or in the text of one.
    fn mentions(&self, rule: &[String], output_is_used: bool) -> bool {
        // A file of the same name may be another program.
        let name = self.name();
        if IGNORE_ARGUMENTS.contains(&name) || (PRINT_ARGUMENTS.contains(&name) && !output_is_used) {
            return false;
        }
        let is_argument = |at: &usize| *at > 0 && !self.is_message(*at);
        let among_arguments =
            (0..self.words.len()).filter(is_argument).any(|at| starts_with_rule(self.words.get(at..), rule));
        // The name itself is a text only if it assigns a variable.
        let texts = self.words.iter().enumerate().filter(|(at, word)| {
            (*at != self.name_at() || is_assignment(&word.text)) && !self.is_message(*at)
        });
        among_arguments
            || texts.map(|(_, word)| tokens(&word.text)).any(|tokens| contains_rule(&tokens, rule))
    }

    /// Whether a word is a message for readers, such as that of a commit.
    fn is_message(&self, at: usize) -> bool {
        let subcommand = self.words.get(self.name_at() + 1).map_or("", |word| word.text.as_str());
        // A file of the same name may be another program.
        let takes_messages = match self.name() {
            "git" => MESSAGE_SUBCOMMANDS.contains(&subcommand),
            program => MESSAGE_PROGRAMS.contains(&program),
        };
        let before = at.checked_sub(1).and_then(|before| self.words.get(before));
        let after_option = before.is_some_and(|before| MESSAGE_OPTIONS.contains(&before.text.as_str()));
        let is_attached =
            |word: &Word| word.text.starts_with("--message=") || word.text.starts_with("--body=");
        let Some(word) = self.words.get(at) else { return false };
        takes_messages && ((after_option && !word.text.starts_with('-')) || is_attached(word))
    }

    /// Whether the program is stored in a variable, or gets another name.
    fn stores(&self, program: &str) -> bool {
        let name = self.program();
        let stores_arguments = COPIERS.contains(&name) || DECLARERS.contains(&name);
        let stored = self
            .words
            .iter()
            .enumerate()
            .filter(|(at, word)| is_assignment(&word.text) || (stores_arguments && *at > self.name_at()));
        let mut tokens = stored.flat_map(|(_, word)| tokens(&word.text));
        tokens.any(|token| names_program(&token, program))
    }
}

/// Whether a word defines a subcommand of this program under another name, or reads such definitions.
fn renames_subcommands(word: &str, program: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let is_git = base_name(program).eq_ignore_ascii_case("git");
    let configures_git = || {
        ["include.path", "includeif."].into_iter().any(|key| word.contains(key))
            || ["git_config", "home=", "xdg_config_home="].into_iter().any(|name| word.starts_with(name))
    };
    word.contains("alias.") || (is_git && configures_git())
}

/// Splits a text into everything that might be the name of a program or an argument. Programs that resolve escapes
/// themselves see a second text: `env -S` has one for a blank, and `printf` for a line end.
fn tokens(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || "_-./+~@%".contains(c);
    let mut texts = vec![text.to_owned()];
    if text.contains('\\') {
        let parts = text.split('\\').enumerate().map(|(at, part)| {
            let escape = part.chars().next().map_or(0, char::len_utf8);
            part.get(if at == 0 { 0 } else { escape }..).unwrap_or_default()
        });
        texts.push(parts.collect::<Vec<_>>().join(" "));
    }
    let parts = texts.iter().flat_map(|text| text.split(|c| !is_part(c)));
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Whether a text contains the words of a rule in their order. The text between them may be syntax of another
/// language, as in `run(["git", "clean"])`.
fn contains_rule(tokens: &[String], rule: &[String]) -> bool {
    let Some((program, arguments)) = rule.split_first() else { return false };
    let joined = arguments.split_first().map(|(first, rest)| (format!("{program}-{first}"), rest));
    let is_in = |token: &str, wanted: &str| token == wanted || token.split('/').any(|part| part == wanted);
    std::iter::once((program.clone(), arguments)).chain(joined).any(|(program, arguments)| {
        let mut rest = tokens.iter();
        rest.any(|token| may_name_program(&Word::literal(token), &program))
            && arguments.iter().all(|wanted| rest.any(|token| is_in(token, wanted)))
    })
}

/// Whether these words begin with the command of a rule.
fn starts_with_rule(words: Option<&[Word]>, rule: &[String]) -> bool {
    let Some((first, rest)) = words.and_then(<[Word]>::split_first) else { return false };
    let Some(arguments) = arguments_of_rule(rule, |program| may_name_program(first, program)) else {
        return false;
    };
    let doubt = |really: bool| if really { Match::Maybe } else { Match::No };
    compare_arguments(rest.iter(), arguments, false, doubt) != Match::No
}

/// Whether an argument may be a program: by its name, as the value of an option, or as a pattern.
fn may_name_program(word: &Word, program: &str) -> bool {
    let text = &word.text;
    let attached = || {
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        letters.and_then(|letters| letters.get(1..)).is_some_and(|value| names_program(value, program))
    };
    let value = || text.rsplit_once('=').is_some_and(|(_, value)| names_program(value, program));
    names_program(text, program)
        || attached()
        || value()
        || (word.dynamic && matches_pattern(base_name(text), program))
}

/// Whether a file name pattern may match the name of a program. A pattern of wildcards alone says nothing.
fn matches_pattern(pattern: &str, program: &str) -> bool {
    let is_pattern = pattern.contains(['*', '?', '[', '{']) && !pattern.contains(['$', '`']);
    if !is_pattern || !pattern.contains(|c: char| c.is_alphanumeric()) {
        return false;
    }
    let name = base_name(program).to_ascii_lowercase();
    let literal = |part: &str| part.to_ascii_lowercase();
    // The text before the first and after the last wildcard is literal.
    let start = pattern.split(['*', '?', '[', '{']).next().map(literal).unwrap_or_default();
    let end = pattern.rsplit(['*', '?', ']', '}']).next().map(literal).unwrap_or_default();
    name.len() >= start.len() + end.len() && name.starts_with(&start) && name.ends_with(&end)
}
