//! The two questions, over any lines: whoever answers need not be at a terminal.

use std::io::{BufRead, Result, Write};

use brigade_core::permission::Mode;

use crate::render::{hanging, pad, wrapped};
use crate::safe;

/// Models and servers that can be chosen.
#[derive(Debug, Default)]
pub(super) struct Menu {
    /// Models that are chosen by their number.
    pub(super) choices: Vec<Choice>,
    /// Providers without a suggested model, and what each needs.
    pub(super) others: Vec<Choice>,
    /// Whether the first model can be used now. Otherwise all choices say what they need.
    pub(super) is_ready: bool,
    /// Whether a server of the user can be added.
    pub(super) offers_server: bool,
    /// Columns of the terminal.
    pub(super) columns: usize,
}

/// A model that can be chosen by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// Its name, as it is written.
    pub(super) model: String,
    /// Why it is offered, or what it needs.
    pub(super) why: String,
}

/// Answer to the question for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Picked {
    /// A model of a provider that is known.
    Model(String),
    /// A model of another server.
    Server(Server),
    /// None for now.
    Nothing,
}

/// An OpenAI-compatible server of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// Its address.
    pub(super) base_url: String,
    /// The model, as the server calls it.
    pub(super) model: String,
    /// The environment variable that holds its key, if it needs one.
    pub(super) key: Option<String>,
}

/// The modes, and what they mean to a person who reads them for the first time.
const MODES: [(Mode, &str); 4] = [
    (Mode::Plan, "read; nothing else is done at all"),
    (Mode::Ask, "read; you are asked about all else"),
    (Mode::Edit, "read and edit files of their folder; you are asked about commands"),
    (Mode::Auto, "all that no rule forbids or asks about, commands too"),
];
/// The mode for whoever just presses Enter.
pub(super) const USUAL: Mode = Mode::Edit;
/// Columns before the name of a choice: its number and blanks.
const INDENT: usize = 6;

/// What somebody said to a question. Where there is nobody any more, there is no answer: `None`.
type Answer<T> = Result<Option<T>>;
/// Judges an answer; the error is shown, and the question is asked again.
type Check<'a> = &'a dyn Fn(&str) -> std::result::Result<(), String>;

/// Asks for a model. `check` judges the name of a model, `check_address` the address of a server.
pub(super) fn model(
    menu: &Menu,
    check: Check<'_>,
    check_address: Check<'_>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Answer<Picked> {
    let numbers = show(menu, output)?;
    let prompt = match menu.is_ready {
        true => "A number, or PROVIDER/MODEL [1]: ",
        false => "A number, or PROVIDER/MODEL: ",
    };
    loop {
        let Some(said) = line(prompt, input, output)? else { return Ok(None) };
        let number = if said.is_empty() && menu.is_ready { Some(1) } else { said.parse::<usize>().ok() };
        let problem = match number {
            Some(number) if number == numbers => return Ok(Some(Picked::Nothing)),
            Some(number) if menu.offers_server && number == menu.choices.len() + 1 => {
                return Ok(server(check_address, menu.columns, input, output)?.map(Picked::Server));
            }
            Some(number) => match number.checked_sub(1).and_then(|at| menu.choices.get(at)) {
                Some(choice) => return Ok(Some(Picked::Model(choice.model.clone()))),
                None => format!("there is no {number}; the numbers are 1 to {numbers}"),
            },
            None if said.is_empty() => format!("choose a number from 1 to {numbers}"),
            None => match check(&said) {
                Ok(()) => return Ok(Some(Picked::Model(said))),
                Err(problem) => problem,
            },
        };
        writeln!(output, "{}", wrapped(&format!("  {}", safe::line(&problem)), menu.columns))?;
    }
}

/// Shows the menu. Returns the last number, which chooses nothing.
fn show(menu: &Menu, output: &mut impl Write) -> Result<usize> {
    let head = match menu.is_ready {
        true => "Which model is to work for you?",
        false => {
            "No model can be used here yet. Choose one, and set up what it needs before the first run. \
             Which model is to work for you?"
        }
    };
    writeln!(output, "{}", wrapped(head, menu.columns))?;
    let rows = menu.choices.iter().chain(&menu.others);
    let width = rows.map(|choice| safe::line(&choice.model).chars().count()).max().unwrap_or(0);
    let mut row = |number: &str, name: &str, why: &str| {
        let line = format!("  {number:>2}  {}  {why}", pad(name, width));
        let lines = hanging(line.trim_end(), menu.columns, INDENT);
        lines.iter().try_for_each(|line| writeln!(output, "{line}"))
    };
    for (number, choice) in (1..).zip(&menu.choices) {
        row(&number.to_string(), &safe::line(&choice.model), &safe::line(&choice.why))?;
    }
    for other in &menu.others {
        row("", &safe::line(&other.model), &safe::line(&other.why))?;
    }
    let mut last = menu.choices.len();
    if menu.offers_server {
        last += 1;
        row(&last.to_string(), "another server", "OpenAI-compatible; you are asked for its address")?;
    }
    last += 1;
    row(&last.to_string(), "none for now", "")?;
    Ok(last)
}

/// Asks for a server of the user.
fn server(
    check_address: Check<'_>,
    columns: usize,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Answer<Server> {
    let some = |what: &'static str| {
        move |said: &str| if said.is_empty() { Err(format!("write {what}")) } else { Ok(()) }
    };
    let address = "Its address, such as http://127.0.0.1:8000/v1: ";
    let Some(base_url) = checked(address, check_address, columns, input, output)? else { return Ok(None) };
    let name = "The name of the model on that server: ";
    let is_named = some("the name of a model");
    let Some(model) = checked(name, &is_named, columns, input, output)? else { return Ok(None) };
    let variable = "The environment variable that holds its key (Enter for none): ";
    let Some(key) = checked(variable, &is_variable, columns, input, output)? else { return Ok(None) };
    Ok(Some(Server { base_url, model, key: Some(key).filter(|key| !key.is_empty()) }))
}

/// Whether a text can be the name of an environment variable. It is never a key itself.
fn is_variable(said: &str) -> std::result::Result<(), String> {
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    match said.chars().all(fits) && !said.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(()),
        false => Err("write the name of a variable, such as WORK_API_KEY, and not the key itself".to_owned()),
    }
}

/// Asks until the answer passes the check.
fn checked(
    question: &str,
    check: Check<'_>,
    columns: usize,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Answer<String> {
    loop {
        let Some(said) = line(question, input, output)? else { return Ok(None) };
        match check(&said) {
            Ok(()) => return Ok(Some(said)),
            Err(problem) => {
                writeln!(output, "{}", wrapped(&format!("  {}", safe::line(&problem)), columns))?;
            }
        }
    }
}

/// Asks for a mode.
pub(super) fn mode(columns: usize, input: &mut impl BufRead, output: &mut impl Write) -> Answer<Mode> {
    writeln!(output, "What may agents do without asking?")?;
    for (number, (mode, meaning)) in (1..).zip(MODES) {
        let line = format!("  {number:>2}  {}  {meaning}", pad(mode.as_str(), 4));
        for line in hanging(&line, columns, INDENT + 6) {
            writeln!(output, "{line}")?;
        }
    }
    let usual = MODES.iter().position(|(mode, _)| *mode == USUAL).map_or(1, |at| at + 1);
    loop {
        let question = format!("A number or a word [{usual}]: ");
        let Some(said) = line(&question, input, output)? else { return Ok(None) };
        let number = if said.is_empty() { Some(usual) } else { said.parse::<usize>().ok() };
        let by_number = number.and_then(|number| MODES.get(number.checked_sub(1)?)).map(|(mode, _)| *mode);
        if let Some(mode) = by_number.or_else(|| said.to_lowercase().parse().ok()) {
            return Ok(Some(mode));
        }
        writeln!(output, "  '{}' is no mode; write plan, ask, edit or auto", safe::line(&said))?;
    }
}

/// A line that somebody typed, without blanks around it.
fn line(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Answer<String> {
    write!(output, "{question}")?;
    output.flush()?;
    let mut said = String::new();
    if input.read_line(&mut said)? == 0 {
        writeln!(output)?;
        return Ok(None);
    }
    Ok(Some(said.trim().to_owned()))
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

    fn asked_with(menu: &Menu, lines: &str) -> (Option<Picked>, String) {
        let mut shown = Vec::new();
        let check = |name: &str| if name.contains('/') { Ok(()) } else { Err(format!("no model '{name}'")) };
        let address = |url: &str| if url.starts_with("http") { Ok(()) } else { Err("no address".to_owned()) };
        let answer = model(menu, &check, &address, &mut lines.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    fn asked(lines: &str) -> (Option<Picked>, String) {
        asked_with(&menu(), lines)
    }

    fn asked_mode(lines: &str) -> (Option<Mode>, String) {
        let mut shown = Vec::new();
        let answer = mode(80, &mut lines.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn a_model_is_chosen_by_number_by_name_or_by_enter() {
        let named = |name: &str| Some(Picked::Model(name.to_owned()));
        assert_eq!(asked("\n").0, named("anthropic/a"));
        assert_eq!(asked(" 2 \n").0, named("ollama/\u{1b}[2Jb"));
        assert_eq!(asked("groq/x").0, named("groq/x"), "the last line needs no end");
        assert_eq!(asked("3\n").0, Some(Picked::Nothing));
        assert_eq!(asked("").0, None, "nobody is there");
    }

    #[test]
    fn what_is_no_answer_is_said_and_asked_again() {
        let (answer, shown) = asked("9\n0\nclaude\n1\n");
        assert_eq!(answer, Some(Picked::Model("anthropic/a".to_owned())));
        assert!(shown.contains("there is no 9; the numbers are 1 to 3"), "{shown}");
        assert!(shown.contains("there is no 0") && shown.contains("no model 'claude'"), "{shown}");
        let (answer, shown) = asked_mode("7\nyolo\n\u{1b}c\nAUTO\n");
        assert_eq!(answer, Some(Mode::Auto));
        assert!(shown.contains("'yolo' is no mode; write plan, ask, edit or auto"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }

    #[test]
    fn a_server_of_the_user_is_asked_for_step_by_step() {
        let menu = Menu { offers_server: true, ..menu() };
        let (answer, shown) = asked_with(&menu, "3\nlocalhost\nhttp://h/v1\n\nbig\nsk-123\nWORK_KEY\n");
        let server =
            Server { base_url: "http://h/v1".into(), model: "big".into(), key: Some("WORK_KEY".into()) };
        assert_eq!(answer, Some(Picked::Server(server)));
        assert!(shown.contains("no address") && shown.contains("write the name of a model"), "{shown}");
        assert!(shown.contains("not the key itself") && !shown.contains("sk-123"), "{shown}");
        let (answer, _) = asked_with(&menu, "3\nhttp://h/v1\nbig\n\n");
        assert!(matches!(answer, Some(Picked::Server(Server { key: None, .. }))), "{answer:?}");
        assert_eq!(asked_with(&menu, "3\nhttp://h/v1\n").0, None, "nobody is there any more");
        assert_eq!(asked_with(&menu, "4\n").0, Some(Picked::Nothing));
    }

    #[test]
    fn without_a_model_that_works_now_enter_chooses_none() {
        let menu = Menu { is_ready: false, ..menu() };
        let (answer, shown) = asked_with(&menu, "\n1\n");
        assert_eq!(answer, Some(Picked::Model("anthropic/a".to_owned())));
        assert!(shown.contains("choose a number from 1 to 3") && !shown.contains("[1]"), "{shown}");
    }

    #[test]
    fn names_of_servers_cannot_draw_on_the_terminal() {
        let (_, shown) = asked("1\n");
        assert!(!shown.contains('\u{1b}') && shown.contains("ollama/\\u{1b}[2Jb"), "{shown:?}");
    }

    #[test]
    fn a_mode_is_chosen_by_number_by_word_or_by_enter() {
        assert_eq!(asked_mode("\n").0, Some(USUAL));
        assert_eq!(asked_mode("1\n").0, Some(Mode::Plan));
        assert_eq!(asked_mode("auto\n").0, Some(Mode::Auto));
        assert_eq!(asked_mode("").0, None);
    }
}
