//! The two questions, over any lines: whoever answers need not be at a terminal.

use std::io::{BufRead, Result, Write};

use brigade_core::permission::Mode;

use crate::render::pad;
use crate::safe;

/// A model that can be chosen by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// Its name, as it is written.
    pub(super) model: String,
    /// Why it is offered.
    pub(super) why: String,
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

/// What somebody said to a question. Where there is nobody any more, there is no answer: `None`.
type Answer<T> = Result<Option<T>>;

/// Asks for a model. The inner `None` is a person who wants none for now.
pub(super) fn model(
    choices: &[Choice],
    check: impl Fn(&str) -> std::result::Result<(), String>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Answer<Option<String>> {
    let names: Vec<String> = choices.iter().map(|choice| safe::line(&choice.model)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    writeln!(output, "Which model is to work for you?")?;
    for (number, (name, choice)) in (1..).zip(names.iter().zip(choices)) {
        writeln!(output, "  {number:>2}  {}  {}", pad(name, width), safe::line(&choice.why))?;
    }
    let none = choices.len() + 1;
    writeln!(output, "  {none:>2}  none for now")?;
    loop {
        let Some(said) = line("A number, or PROVIDER/MODEL [1]: ", input, output)? else { return Ok(None) };
        let number = if said.is_empty() { Some(1) } else { said.parse::<usize>().ok() };
        let problem = match number {
            Some(number) if number == none => return Ok(Some(None)),
            Some(number) => match number.checked_sub(1).and_then(|at| choices.get(at)) {
                Some(choice) => return Ok(Some(Some(choice.model.clone()))),
                None => format!("there is no {number}; the numbers are 1 to {none}"),
            },
            None => match check(&said) {
                Ok(()) => return Ok(Some(Some(said))),
                Err(problem) => problem,
            },
        };
        writeln!(output, "  {}", safe::line(&problem))?;
    }
}

/// Asks for a mode.
pub(super) fn mode(input: &mut impl BufRead, output: &mut impl Write) -> Answer<Mode> {
    writeln!(output, "What may agents do without asking?")?;
    for (number, (mode, meaning)) in (1..).zip(MODES) {
        writeln!(output, "  {number:>2}  {}  {meaning}", pad(mode.as_str(), 4))?;
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

    fn asked(lines: &str) -> (Option<Option<String>>, String) {
        let mut shown = Vec::new();
        let check = |name: &str| if name.contains('/') { Ok(()) } else { Err(format!("no model '{name}'")) };
        let answer = model(&choices(), check, &mut lines.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    fn asked_mode(lines: &str) -> (Option<Mode>, String) {
        let mut shown = Vec::new();
        let answer = mode(&mut lines.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn a_model_is_chosen_by_number_by_name_or_by_enter() {
        let named = |name: &str| Some(Some(name.to_owned()));
        assert_eq!(asked("\n").0, named("anthropic/a"));
        assert_eq!(asked(" 2 \n").0, named("ollama/\u{1b}[2Jb"));
        assert_eq!(asked("groq/x").0, named("groq/x"), "the last line needs no end");
        assert_eq!(asked("3\n").0, Some(None));
        assert_eq!(asked("").0, None, "nobody is there");
    }

    #[test]
    fn what_is_no_answer_is_said_and_asked_again() {
        let (answer, shown) = asked("9\n0\nclaude\n1\n");
        assert_eq!(answer, Some(Some("anthropic/a".to_owned())));
        assert!(shown.contains("there is no 9; the numbers are 1 to 3"), "{shown}");
        assert!(shown.contains("there is no 0") && shown.contains("no model 'claude'"), "{shown}");
        let (answer, shown) = asked_mode("7\nyolo\n\u{1b}c\nAUTO\n");
        assert_eq!(answer, Some(Mode::Auto));
        assert!(shown.contains("'yolo' is no mode; write plan, ask, edit or auto"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
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
