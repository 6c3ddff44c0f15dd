//! A terminal that hands over each key as it is pressed.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use rustix::termios::{OptionalActions, OutputModes, tcgetattr, tcsetattr};

use crate::failure::Failure;
use crate::output;

const PASTE_ON: &str = "\u{1b}[?2004h";
const PASTE_OFF: &str = "\u{1b}[?2004l\u{1b}[?25h";

/// The terminal in raw mode. When this is dropped, it is as it was before.
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Takes the terminal.
    pub(crate) fn enter() -> Result<RawTerminal, Failure> {
        give_back_on_panic();
        take()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        Ok(RawTerminal(()))
    }

    /// Does something while the terminal is as it was before, if it is in raw mode now.
    pub(crate) fn give_back_while(work: impl FnOnce()) {
        let is_taken = IS_TAKEN.load(Ordering::SeqCst);
        if is_taken {
            give_back();
        }
        work();
        if is_taken {
            // A terminal that is gone shows when it is read.
            let _ = take();
        }
    }
}

/// Whether the terminal is in raw mode.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

fn take() -> Result<(), Failure> {
    enable_raw_mode()
        .map_err(|error| Failure::failed(format!("the terminal cannot be typed on: {error}")))?;
    keep_line_ends();
    output::paint(PASTE_ON);
    Ok(())
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::SeqCst);
        give_back();
    }
}

/// In raw mode a line end does not lead to the start of the next line. Warnings of others are to stand below each other
/// all the same.
fn keep_line_ends() {
    let stdin = std::io::stdin();
    if let Ok(mut modes) = tcgetattr(&stdin) {
        modes.output_modes |= OutputModes::OPOST;
        let _ = tcsetattr(&stdin, OptionalActions::Now, &modes);
    }
}

/// The terminal as it was. There is nobody left to tell if that fails.
fn give_back() {
    output::paint(PASTE_OFF);
    let _ = disable_raw_mode();
}

/// A panic of this thread ends the chat; one of an agent is reported as the end of its round.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        let own = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == own {
                give_back();
            }
            before(panic);
        }));
    });
}
