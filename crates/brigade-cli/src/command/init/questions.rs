//! The questions of `init`, over any reader and writer, so that no terminal is required.

use std::io::{BufRead, Result, Write};

use brigade_core::permission::Mode;

use crate::render::{pad, wrap_hanging, wrap_text};
use crate::sanitize;

/// Models and servers in the menu.
#[derive(Debug, Default)]
pub(super) struct Menu {
    /// Models that are chosen by number.
    pub(super) choices: Vec<Choice>,
    /// Providers without a suggested model, with their requirements.
    pub(super) others: Vec<Choice>,
    /// Whether the first model can be used now. Otherwise all choices show their requirements.
    pub(super) is_ready: bool,
    /// Whether the user can add a server.
    pub(super) offers_server: bool,
    /// Columns of the terminal.
    pub(super) columns: usize,
}

/// Model that is chosen by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) model: String,
    /// Reason why it is offered, or what it requires.
    pub(super) why: String,
}

/// Answer to the question for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelAnswer {
    /// Model of a known provider.
    Model(String),
    /// Model of the user's own server.
    Server(Server),
    /// No model for now.
    Skipped,
}

/// OpenAI-compatible server of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) base_url: String,
    /// Name of the model on the server.
    pub(super) model: String,
    /// Environment variable with the key, if the server needs one.
    pub(super) key: Option<String>,
}

/// Modes with explanations for a new user.
const MODES: [(Mode, &str); 4] = [
    (Mode::Plan, "only read"),
    (Mode::Ask, "read; anything else requires your approval"),
    (Mode::Edit, "read and edit files in their directory; commands require your approval"),
    (Mode::Auto, "everything, including commands, unless a deny or ask rule matches"),
];
/// Mode if the user only presses Enter.
pub(super) const DEFAULT_MODE: Mode = Mode::Edit;
/// Columns before the name of a choice: its number and spaces.
const INDENT: usize = 6;

/// Answer of the user; `None` if the input has ended.
type Answer<T> = Result<Option<T>>;
/// Validates an answer. The error is shown, and the question is repeated.
type Check<'a> = &'a dyn Fn(&str) -> std::result::Result<(), String>;

/// Asks for a model. `check` validates the name of a model, `check_address` the address of a server.
pub(super) fn model(
    menu: &Menu,
    check: Check<'_>,
    check_address: Check<'_>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Answer<ModelAnswer> {
    let numbers = show(menu, output)?;
    let prompt = match menu.is_ready {
        true => "Number or PROVIDER/MODEL [1]: ",
        false => "Number or PROVIDER/MODEL: ",
    };
    loop {
        let Some(text) = line(prompt, input, output)? else { return Ok(None) };
        let number = if text.is_empty() && menu.is_ready { Some(1) } else { text.parse::<usize>().ok() };
        let problem = match number {
            Some(number) if number == numbers => return Ok(Some(ModelAnswer::Skipped)),
            Some(number) if menu.offers_server && number == menu.choices.len() + 1 => {
                return Ok(server(check_address, menu.columns, input, output)?.map(ModelAnswer::Server));
            }
            Some(number) => match number.checked_sub(1).and_then(|at| menu.choices.get(at)) {
                Some(choice) => return Ok(Some(ModelAnswer::Model(choice.model.clone()))),
                None => format!("{number} is not in the list; choose a number from 1 to {numbers}"),
            },
            None if text.is_empty() => format!("choose a number from 1 to {numbers}"),
            None => match check(&text) {
                Ok(()) => return Ok(Some(ModelAnswer::Model(text))),
                Err(problem) => problem,
            },
        };
        writeln!(output, "{}", wrap_text(&format!("  {}", sanitize::line(&problem)), menu.columns))?;
    }
}

/// Shows the menu. Returns the last number, which means no model.
fn show(menu: &Menu, output: &mut impl Write) -> Result<usize> {
    let head = match menu.is_ready {
        true => "Which model do you want to use?",
        false => {
            "No model is available yet. Choose one, and set it up before the first run. \
             Which model do you want to use?"
        }
    };
    writeln!(output, "{}", wrap_text(head, menu.columns))?;
    let rows = menu.choices.iter().chain(&menu.others);
    let width = rows.map(|choice| sanitize::line(&choice.model).chars().count()).max().unwrap_or(0);
    let mut row = |number: &str, name: &str, why: &str| {
        let line = format!("  {number:>2}  {}  {why}", pad(name, width));
        let lines = wrap_hanging(line.trim_end(), menu.columns, INDENT);
        lines.iter().try_for_each(|line| writeln!(output, "{line}"))
    };
    for (number, choice) in (1..).zip(&menu.choices) {
        row(&number.to_string(), &sanitize::line(&choice.model), &sanitize::line(&choice.why))?;
    }
    for other in &menu.others {
        row("", &sanitize::line(&other.model), &sanitize::line(&other.why))?;
    }
    let mut last = menu.choices.len();
    if menu.offers_server {
        last += 1;
        row(&last.to_string(), "another server", "OpenAI-compatible; prompts for its URL")?;
    }
    last += 1;
    row(&last.to_string(), "none for now", "")?;
    Ok(last)
}

/// Asks for the user's own server.
fn server(
    check_address: Check<'_>,
    columns: usize,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Answer<Server> {
    let some = |what: &'static str| {
        move |text: &str| if text.is_empty() { Err(format!("enter {what}")) } else { Ok(()) }
    };
    let address = "URL, such as http://127.0.0.1:8000/v1: ";
    let Some(base_url) = ask_until_valid(address, check_address, columns, input, output)? else {
        return Ok(None);
    };
    let name = "Model name on that server: ";
    let is_named = some("a model name");
    let Some(model) = ask_until_valid(name, &is_named, columns, input, output)? else { return Ok(None) };
    let variable = "Environment variable with its key (Enter for none): ";
    let Some(key) = ask_until_valid(variable, &check_variable_name, columns, input, output)? else {
        return Ok(None);
    };
    Ok(Some(Server { base_url, model, key: Some(key).filter(|key| !key.is_empty()) }))
}

/// Checks that a text is the name of an environment variable, and not a key.
fn check_variable_name(text: &str) -> std::result::Result<(), String> {
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    match text.chars().all(fits) && !text.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(()),
        false => Err("enter the name of a variable, such as WORK_API_KEY, not the key itself".to_owned()),
    }
}

/// Asks until the answer is valid.
fn ask_until_valid(
    question: &str,
    check: Check<'_>,
    columns: usize,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Answer<String> {
    loop {
        let Some(text) = line(question, input, output)? else { return Ok(None) };
        match check(&text) {
            Ok(()) => return Ok(Some(text)),
            Err(problem) => {
                writeln!(output, "{}", wrap_text(&format!("  {}", sanitize::line(&problem)), columns))?;
            }
        }
    }
}

/// Asks for a mode.
pub(super) fn mode(columns: usize, input: &mut impl BufRead, output: &mut impl Write) -> Answer<Mode> {
    writeln!(output, "What may agents do without your approval?")?;
    for (number, (mode, meaning)) in (1..).zip(MODES) {
        let line = format!("  {number:>2}  {}  {meaning}", pad(mode.as_str(), 4));
        for line in wrap_hanging(&line, columns, INDENT + 6) {
            writeln!(output, "{line}")?;
        }
    }
    let default_number = MODES.iter().position(|(mode, _)| *mode == DEFAULT_MODE).map_or(1, |at| at + 1);
    loop {
        let question = format!("Number or name [{default_number}]: ");
        let Some(text) = line(&question, input, output)? else { return Ok(None) };
        let number = if text.is_empty() { Some(default_number) } else { text.parse::<usize>().ok() };
        let by_number = number.and_then(|number| MODES.get(number.checked_sub(1)?)).map(|(mode, _)| *mode);
        if let Some(mode) = by_number.or_else(|| text.to_lowercase().parse().ok()) {
            return Ok(Some(mode));
        }
        writeln!(output, "  '{}' is not a mode; choose plan, ask, edit or auto", sanitize::line(&text))?;
    }
}

/// Reads a line, without surrounding whitespace.
fn line(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Answer<String> {
    write!(output, "{question}")?;
    output.flush()?;
    let mut text = String::new();
    if input.read_line(&mut text)? == 0 {
        writeln!(output)?;
        return Ok(None);
    }
    Ok(Some(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Vec<Choice> {
        let choice = |model: &str, why: &str| Choice { model: model.to_owned(), why: why.to_owned() };
        vec![choice("anthropic/a", "KEY is set"), choice("ollama/\u{1b}[2Jb", "on this machine")]
    }

    fn menu() -> Menu {
        Menu { choices: choices(), is_ready: true, columns: 80, ..Menu::default() }
    }

    fn ask_with(menu: &Menu, lines: &str) -> (Option<ModelAnswer>, String) {
        let mut shown = Vec::new();
        let check = |name: &str| if name.contains('/') { Ok(()) } else { Err(format!("no model '{name}'")) };
        let address = |url: &str| if url.starts_with("http") { Ok(()) } else { Err("no address".to_owned()) };
        let answer = model(menu, &check, &address, &mut lines.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    fn ask(lines: &str) -> (Option<ModelAnswer>, String) {
        ask_with(&menu(), lines)
    }

    fn ask_mode(lines: &str) -> (Option<Mode>, String) {
        let mut shown = Vec::new();
        let answer = mode(80, &mut lines.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn model_is_chosen_by_number_name_or_enter() {
        let named = |name: &str| Some(ModelAnswer::Model(name.to_owned()));
        assert_eq!(ask("\n").0, named("anthropic/a"));
        assert_eq!(ask(" 2 \n").0, named("ollama/\u{1b}[2Jb"));
        assert_eq!(ask("groq/x").0, named("groq/x"), "the last line needs no newline");
        assert_eq!(ask("3\n").0, Some(ModelAnswer::Skipped));
        assert_eq!(ask("").0, None, "the input ended");
    }

    #[test]
    fn invalid_answer_is_explained_and_asked_again() {
        let (answer, shown) = ask("9\n0\nclaude\n1\n");
        assert_eq!(answer, Some(ModelAnswer::Model("anthropic/a".to_owned())));
        insta::assert_snapshot!("invalid_model", shown);
        let (answer, shown) = ask_mode("7\nyolo\n\u{1b}c\nAUTO\n");
        assert_eq!(answer, Some(Mode::Auto));
        insta::assert_snapshot!("invalid_mode", shown);
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }

    #[test]
    fn custom_server_is_asked_for_step_by_step() {
        let menu = Menu { offers_server: true, ..menu() };
        let (answer, shown) = ask_with(&menu, "3\nlocalhost\nhttp://h/v1\n\nbig\nsk-123\nWORK_KEY\n");
        let server =
            Server { base_url: "http://h/v1".into(), model: "big".into(), key: Some("WORK_KEY".into()) };
        assert_eq!(answer, Some(ModelAnswer::Server(server)));
        insta::assert_snapshot!("custom_server", shown);
        assert!(!shown.contains("sk-123"), "{shown}");
        let (answer, _) = ask_with(&menu, "3\nhttp://h/v1\nbig\n\n");
        assert!(matches!(answer, Some(ModelAnswer::Server(Server { key: None, .. }))), "{answer:?}");
        assert_eq!(ask_with(&menu, "3\nhttp://h/v1\n").0, None, "the input ended");
        assert_eq!(ask_with(&menu, "4\n").0, Some(ModelAnswer::Skipped));
    }

    #[test]
    fn enter_without_a_ready_model_chooses_none() {
        let menu = Menu { is_ready: false, ..menu() };
        let (answer, shown) = ask_with(&menu, "\n1\n");
        assert_eq!(answer, Some(ModelAnswer::Model("anthropic/a".to_owned())));
        assert!(shown.contains("choose a number from 1 to 3") && !shown.contains("[1]"), "{shown}");
    }

    #[test]
    fn control_characters_in_server_names_are_escaped() {
        let (_, shown) = ask("1\n");
        assert!(!shown.contains('\u{1b}') && shown.contains("ollama/\\u{1b}[2Jb"), "{shown:?}");
    }

    #[test]
    fn mode_is_chosen_by_number_name_or_enter() {
        assert_eq!(ask_mode("\n").0, Some(DEFAULT_MODE));
        assert_eq!(ask_mode("1\n").0, Some(Mode::Plan));
        assert_eq!(ask_mode("auto\n").0, Some(Mode::Auto));
        assert_eq!(ask_mode("").0, None);
    }
}
