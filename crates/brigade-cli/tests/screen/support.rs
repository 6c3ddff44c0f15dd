//! Terminal window that runs the command.
//!
//! The window rewraps lines when its width changes, as most terminals do, and shows a frame between `CSI ?2026h` and
//! `CSI ?2026l` in one step.

use std::fmt::Display;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking::{Command, Pty};

use crate::cli::support::Home;

/// Timeout of every wait. Far more than needed, even on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const FRAME_BEGIN: &str = "\u{1b}[?2026h";
const FRAME_END: &str = "\u{1b}[?2026l";

/// Terminal window in which the command runs.
pub(crate) struct Window {
    child: Child,
    pty: Arc<Pty>,
    captured: Arc<Mutex<Captured>>,
    reader: Option<JoinHandle<()>>,
}

/// Output of the command.
struct Captured {
    terminal: avt::Terminal,
    /// Bytes of an incomplete character or frame.
    pending: Vec<u8>,
    /// Complete output, with its control sequences.
    sent: String,
}

impl Captured {
    fn take(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8(self.pending[..whole].to_vec()).unwrap();
        let ready = match text.rfind(FRAME_BEGIN) {
            Some(begin) if !text[begin..].contains(FRAME_END) => begin,
            _ => text.len(),
        };
        self.terminal.feed(&text[..ready]);
        self.sent.push_str(&text[..ready]);
        self.pending.drain(..ready);
    }
}

impl Window {
    /// Starts the command in a window of `columns` and `rows`. Its environment contains only a home, a path, a
    /// terminal and the given variables.
    pub(crate) fn start(
        home: &Home,
        (columns, rows): (u16, u16),
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Window {
        let command = Command::new(env!("CARGO_BIN_EXE_brigade")).args(arguments);
        Window::start_command(home, (columns, rows), command, environment)
    }

    /// Starts a shell with job control; `$BRIGADE` is the command.
    pub(crate) fn shell(home: &Home, size: (u16, u16), environment: &[(&str, &str)]) -> Window {
        let command = Command::new("bash").args(["--norc", "--noprofile", "-i"]);
        let environment = [&[("BRIGADE", env!("CARGO_BIN_EXE_brigade"))], environment].concat();
        Window::start_command(home, size, command, &environment)
    }

    fn start_command(
        home: &Home,
        (columns, rows): (u16, u16),
        command: Command,
        environment: &[(&str, &str)],
    ) -> Window {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let command = command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("BRIGADE_HOME", home.home())
            .env("TERM", "xterm-256color")
            .envs(home.variables().iter().map(|(name, value)| (*name, value.as_str())))
            .envs(environment.iter().copied())
            .current_dir(home.work());
        let child = command.spawn(pts).unwrap();
        let terminal = avt::Terminal::with_scrollback(columns.into(), rows.into(), None).unwrap();
        let captured = Arc::new(Mutex::new(Captured { terminal, pending: Vec::new(), sent: String::new() }));
        let pty = Arc::new(pty);
        let reader = std::thread::spawn({
            let (pty, captured) = (pty.clone(), captured.clone());
            move || {
                let mut bytes = [0; 65536];
                // Reading fails when the last process with the terminal has exited.
                while let Ok(count @ 1..) = (&*pty).read(&mut bytes) {
                    captured.lock().unwrap().take(&bytes[..count]);
                }
            }
        });
        Window { child, pty, captured, reader: Some(reader) }
    }

    /// Starts `brigade run` with a scripted model.
    pub(crate) fn run(
        home: &Home,
        size: (u16, u16),
        script: impl Display,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Window {
        let model = home.script(script);
        let all = [&["run", "--model", &model, "the task"], arguments].concat();
        Window::start(home, size, &all, environment)
    }

    fn captured(&self) -> MutexGuard<'_, Captured> {
        self.captured.lock().unwrap()
    }

    /// Types text or presses keys: `\r` is Enter, `\u{3}` Ctrl-C, `\u{1b}[A` the up arrow.
    pub(crate) fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Resizes the window.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let mut captured = self.captured();
        captured.terminal.resize(columns.into(), rows.into());
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// Rows of the screen, with placeholders of the same width for times, money and ids.
    pub(crate) fn screen(&self) -> String {
        let captured = self.captured();
        let rows: Vec<(String, bool)> = captured
            .terminal
            .screen()
            .visible_lines()
            .map(|line| (line.chars().collect(), line.is_wrapped()))
            .collect();
        let mut lines = placeholders_in_rows(&rows);
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.join("\n")
    }

    /// Cells of the screen by row, with their colours.
    pub(crate) fn cells(&self) -> Vec<Vec<avt::Cell>> {
        self.captured().terminal.screen().visible_lines().map(|line| line.cells().to_vec()).collect()
    }

    /// Screen and scrollback with unwrapped lines and placeholders.
    pub(crate) fn text(&self) -> String {
        placeholders(&self.raw_text())
    }

    /// Screen and scrollback without placeholders.
    pub(crate) fn raw_text(&self) -> String {
        self.captured().terminal.screen().text().join("\n").trim_end().to_owned()
    }

    /// Complete output, with control sequences.
    pub(crate) fn sent(&self) -> String {
        self.captured().sent.clone()
    }

    /// Column and row of the cursor, if it is visible.
    pub(crate) fn cursor(&self) -> Option<(usize, usize)> {
        self.captured().terminal.cursor().position()
    }

    /// Waits until the screen satisfies a condition.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return screen;
            }
            assert!(since.elapsed() < WAIT_TIMEOUT, "not {what}:\n{screen}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(&format!("`{text}` on the screen"), |screen| screen.contains(text))
    }

    /// Whether the terminal is in line mode with echo, as a shell expects.
    pub(crate) fn is_cooked(&self) -> bool {
        use rustix::termios::{LocalModes, tcgetattr};
        let modes = tcgetattr(&*self.pty).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Sends a signal to the command only.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Process that the shell of this window runs in the foreground.
    pub(crate) fn foreground(&self) -> u32 {
        rustix::termios::tcgetpgrp(&*self.pty).unwrap().as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until the command has exited, and for all its output.
    #[track_caller]
    pub(crate) fn end(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < WAIT_TIMEOUT, "the command does not end:\n{}", self.screen());
            std::thread::sleep(POLL_INTERVAL);
        };
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or_default())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rows with placeholders, also for values that continue on the next row.
fn placeholders_in_rows(rows: &[(String, bool)]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut joined: Vec<&str> = Vec::new();
    for (row, is_wrapped) in rows {
        joined.push(row);
        if *is_wrapped {
            continue;
        }
        let shown = placeholders(&joined.concat());
        let mut rest = shown.chars();
        for row in joined.drain(..) {
            let line: String = rest.by_ref().take(row.chars().count()).collect();
            lines.push(line.trim_end().to_owned());
        }
    }
    lines.extend(joined.into_iter().map(|row| row.trim_end().to_owned()));
    lines
}

/// Replaces values that differ between runs by placeholders of the same width, word by word: `1.4s` by `#.#s`, money
/// by `$#.####`, and a session id by 26 characters.
pub(crate) fn placeholders(text: &str) -> String {
    replace_words(text, |word| {
        let is_money = word.strip_prefix('$').is_some_and(is_number);
        if is_money { Some(pad_left("$#.####", word)) } else { time_or_id(word) }
    })
}

/// The same for times and ids only.
pub(crate) fn time_and_id_placeholders(text: &str) -> String {
    replace_words(text, time_or_id)
}

fn replace_words(text: &str, placeholder: impl Fn(&str) -> Option<String>) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "$.".contains(c);
    let mut shown = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_part) {
        let (before, from) = rest.split_at(begin);
        let length = from.find(|c| !is_part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(length);
        shown.push_str(before);
        shown.push_str(&placeholder(word).unwrap_or_else(|| word.to_owned()));
        rest = after;
    }
    shown + rest
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn pad_left(sign: &str, word: &str) -> String {
    format!("{sign:>width$}", width = word.len())
}

fn time_or_id(word: &str) -> Option<String> {
    // A time may end a sentence.
    if let Some(word) = word.strip_suffix("s.") {
        return time_or_id(&format!("{word}s")).map(|shown| shown + ".");
    }
    if let Some(number) = word.strip_suffix('s')
        && let (Some(seconds), None) | (None, Some(seconds)) =
            (Some(number).filter(|n| is_number(n)), number.split_once('m').map(|(_, seconds)| seconds))
        && is_number(seconds)
    {
        return Some(pad_left("#.#s", word));
    }
    let (id, suffix) = word.split_at_checked(26)?;
    // A random id need not contain a digit, but it is never one letter repeated, as long test texts are.
    let distinct = id.chars().collect::<std::collections::BTreeSet<char>>().len();
    let is_id = id.chars().all(|c| matches!(c, 'a'..='z' | '2'..='7')) && distinct >= 5;
    (is_id && (suffix.is_empty() || suffix.starts_with('.'))).then(|| format!("{}{suffix}", "#".repeat(26)))
}
