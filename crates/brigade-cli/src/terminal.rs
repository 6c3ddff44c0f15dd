//! Properties of the terminal.

use std::io::{BufRead, IsTerminal};

use tokio::sync::mpsc;

use crate::settings::Environment;

/// Whether to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Colour {
    On,
    #[default]
    Off,
}

/// Colours of standard error.
pub(crate) fn stderr_colour(environment: &Environment) -> Colour {
    if can_redraw(environment) && !environment.no_color { Colour::On } else { Colour::Off }
}

/// Colours of standard output.
pub(crate) fn stdout_colour(environment: &Environment) -> Colour {
    let is_dumb = environment.term.as_deref().is_none_or(|term| term == "dumb");
    if stdout_is_terminal() && !is_dumb && !environment.no_color { Colour::On } else { Colour::Off }
}

/// Whether standard error is a terminal on which lines can be redrawn. Diagnostics would be written between them.
pub(crate) fn can_redraw(environment: &Environment) -> bool {
    std::io::stderr().is_terminal()
        && !environment.logs_to_stderr
        && environment.term.as_deref().is_some_and(|term| term != "dumb")
}

/// Whether standard output is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether standard input is a terminal, so that it contains no piped input.
pub(crate) fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Whether a user can see a prompt and answer it.
pub(crate) fn can_prompt() -> bool {
    stdin_is_terminal() && std::io::stderr().is_terminal()
}

/// Whether all streams are terminals, so that input can be edited below the output.
pub(crate) fn can_chat(environment: &Environment) -> bool {
    stdin_is_terminal() && stdout_is_terminal() && can_redraw(environment)
}

/// Discards typed input that was not read yet. If that fails, there is no terminal.
pub(crate) fn discard_typed_input() {
    let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// Lines of standard input. A dedicated thread reads them, because a blocking read cannot be cancelled.
pub(crate) fn stdin_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Columns and rows of standard error, queried each time because windows are resized.
pub(crate) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Columns that a table on standard error may use. Unlimited if it is not a terminal.
pub(crate) fn stderr_columns() -> usize {
    if std::io::stderr().is_terminal() { size().0 } else { usize::MAX }
}

/// Columns that a table on standard output may use.
pub(crate) fn stdout_columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => usize::MAX,
    }
}

impl Colour {
    /// Applies a style to the text, if colours are on.
    pub(crate) fn paint(self, style: &str, text: &str) -> String {
        match self {
            Colour::On if !text.is_empty() && !style.is_empty() => format!("\u{1b}[{style}m{text}\u{1b}[0m"),
            Colour::On | Colour::Off => text.to_owned(),
        }
    }
}
