//! A terminal that hands over each key as it is pressed.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use rustix::termios::{OptionalActions, OutputModes, tcgetattr, tcsetattr};

use crate::error::CliError;
use crate::output;

const BRACKETED_PASTE_ON: &str = "\u{1b}[?2004h";
const BRACKETED_PASTE_OFF: &str = "\u{1b}[?2004l\u{1b}[?25h";

/// The terminal in raw mode. When this is dropped, it is as it was before.
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Takes the terminal.
    pub(crate) fn enter() -> Result<RawTerminal, CliError> {
        restore_on_panic();
        enable()?;
        IS_RAW.store(true, Ordering::SeqCst);
        Ok(RawTerminal(()))
    }

    /// Does something while the terminal is as it was before, if it is in raw mode now.
    pub(crate) fn with_terminal_restored(work: impl FnOnce()) {
        let was_raw = IS_RAW.load(Ordering::SeqCst);
        if was_raw {
            restore();
        }
        work();
        if was_raw {
            // A terminal that is gone shows when it is read.
            let _ = enable();
        }
    }
}

/// Whether the terminal is in raw mode.
static IS_RAW: AtomicBool = AtomicBool::new(false);

fn enable() -> Result<(), CliError> {
    enable_raw_mode()
        .map_err(|error| CliError::failed(format!("the terminal cannot be typed on: {error}")))?;
    keep_newline_translation();
    output::write_stderr(BRACKETED_PASTE_ON);
    Ok(())
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        IS_RAW.store(false, Ordering::SeqCst);
        restore();
    }
}

/// In raw mode a line end does not lead to the start of the next line. Warnings of others are to stand below each other
/// all the same.
fn keep_newline_translation() {
    let stdin = std::io::stdin();
    if let Ok(mut modes) = tcgetattr(&stdin) {
        modes.output_modes |= OutputModes::OPOST;
        let _ = tcsetattr(&stdin, OptionalActions::Now, &modes);
    }
}

/// The terminal as it was. There is nobody left to tell if that fails.
fn restore() {
    output::write_stderr(BRACKETED_PASTE_OFF);
    let _ = disable_raw_mode();
}

/// A panic of this thread ends the chat; one of an agent is reported as the end of its round.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous_hook = std::panic::take_hook();
        let this_thread = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == this_thread {
                restore();
            }
            previous_hook(panic);
        }));
    });
}
