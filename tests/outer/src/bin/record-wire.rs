//! `record-wire FOLDER COMMAND...` runs a command, records its input and output in a file in FOLDER, and
//! forwards both line by line.

#![expect(clippy::unwrap_used, reason = "support of tests")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};

use brigade_outer_tests::{Side, WireLine};

#[expect(clippy::disallowed_methods, reason = "it starts the command that it is given")]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap();
    let mut command = Command::new(arguments.next().unwrap());
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let file = Arc::new(Mutex::new(File::create(format!("{folder}/{}", std::process::id())).unwrap()));
    let (input, output, log) = (child.stdin.take().unwrap(), child.stdout.take().unwrap(), file.clone());
    std::thread::spawn(move || forward(std::io::stdin().lock(), input, Side::Client, &log));
    forward(BufReader::new(output), std::io::stdout().lock(), Side::Agent, &file);
    let code = child.wait().unwrap().code().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

/// Forwards lines until the input ends or the output is closed. Then closes the other end.
fn forward(mut from: impl BufRead, mut to: impl Write, side: Side, file: &Mutex<File>) {
    let mut bytes = Vec::new();
    while from.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
        file.lock().unwrap().write_all(WireLine { from: side, text }.to_log_line().as_bytes()).unwrap();
        if to.write_all(&bytes).and_then(|()| to.flush()).is_err() {
            return;
        }
        bytes.clear();
    }
}
