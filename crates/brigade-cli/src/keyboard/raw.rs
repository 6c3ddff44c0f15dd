//! Raw mode of the terminal, which delivers each key as it is pressed.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use rustix::termios::{OptionalActions, OutputModes, tcgetattr, tcsetattr};

use crate::error::CliError;
use crate::output;

const BRACKETED_PASTE_ON: &str = "\u{1b}[?2004h";
const BRACKETED_PASTE_OFF: &str = "\u{1b}[?2004l\u{1b}[?25h";

/// Guard that keeps the terminal in raw mode, and restores it when dropped.
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Puts the terminal into raw mode.
    pub(crate) fn enter() -> Result<RawTerminal, CliError> {
        restore_on_panic();
        enable()?;
        IS_RAW.store(true, Ordering::SeqCst);
        Ok(RawTerminal(()))
    }

    /// Runs `work` with the terminal restored, if it is in raw mode now.
    pub(crate) fn with_terminal_restored(work: impl FnOnce()) {
        let was_raw = IS_RAW.load(Ordering::SeqCst);
        if was_raw {
            restore();
        }
        work();
        if was_raw {
            // A terminal that is gone is reported by the next read.
            let _ = enable();
        }
    }
}

/// Whether the terminal is in raw mode.
static IS_RAW: AtomicBool = AtomicBool::new(false);

fn enable() -> Result<(), CliError> {
    enable_raw_mode()
        .map_err(|error| CliError::failed(format!("cannot put the terminal into raw mode: {error}")))?;
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

/// Keeps the translation of newlines. In raw mode a newline does not return to the first column, but warnings from
/// other parts of the program must still start there.
fn keep_newline_translation() {
    let stdin = std::io::stdin();
    if let Ok(mut modes) = tcgetattr(&stdin) {
        modes.output_modes |= OutputModes::OPOST;
        let _ = tcsetattr(&stdin, OptionalActions::Now, &modes);
    }
}

/// Restores the terminal. A failure cannot be reported to anyone.
fn restore() {
    output::write_stderr(BRACKETED_PASTE_OFF);
    let _ = disable_raw_mode();
}

/// Restores the terminal if this thread panics, because that ends the chat. A panic of an agent is reported as the
/// end of its round.
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
