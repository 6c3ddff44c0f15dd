//! Task of a run, from the command line and standard input.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::CliError;
use crate::output;

/// Argument that means a task from standard input.
const STDIN_ARG: &str = "-";
/// Timeout for the first byte of standard input if there is a task without it. An idle pipe must not block a run.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(3);
/// A larger input does not fit into any context window.
const MAX_INPUT_BYTES: usize = 10 * 1024 * 1024;

/// Whether a run requires a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskNeed {
    /// A new session needs a task.
    Required,
    /// A session can be continued without one.
    Optional,
}

/// Task: the command line, standard input, or the command line followed by standard input.
pub(super) fn task(prompt: &[String], need: TaskNeed) -> Result<Option<String>, CliError> {
    let prompt = prompt.join(" ");
    if prompt == STDIN_ARG {
        return Ok(Some(text(read()?)?).filter(|text| !text.trim().is_empty()));
    }
    let is_typed = std::io::stdin().is_terminal();
    let input = match (prompt.trim().is_empty(), need) {
        _ if is_typed => None,
        (true, TaskNeed::Required) => Some(read()?),
        _ if stdin_has_data() => Some(read()?),
        _ => {
            output::note(&format!(
                "No standard input within {} seconds; continuing without it. To skip the wait, add: < /dev/null",
                FIRST_BYTE_TIMEOUT.as_secs()
            ));
            None
        }
    };
    let task = match (prompt.trim().is_empty(), input) {
        (true, Some(input)) => Some(text(input)?),
        (false, Some(input)) => Some(append_stdin(&prompt, &String::from_utf8_lossy(&input))),
        (_, None) => Some(prompt),
    };
    Ok(task.filter(|task| !task.trim().is_empty()))
}

/// Appends standard input to the prompt, as a block.
fn append_stdin(prompt: &str, input: &str) -> String {
    if input.trim().is_empty() {
        return prompt.to_owned();
    }
    let end = if input.ends_with('\n') { "" } else { "\n" };
    format!("{prompt}\n\n<stdin>\n{input}{end}</stdin>")
}

/// Whether standard input has data, or ends, within the timeout.
fn stdin_has_data() -> bool {
    let stdin = std::io::stdin();
    let timeout = Timespec { tv_sec: FIRST_BYTE_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    // A read reports the error.
    poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)).map_or(true, |ready| ready > 0)
}

fn read() -> Result<Vec<u8>, CliError> {
    let mut input = Vec::new();
    let limit = MAX_INPUT_BYTES as u64 + 1;
    std::io::stdin()
        .lock()
        .take(limit)
        .read_to_end(&mut input)
        .map_err(|error| CliError::usage(format!("cannot read standard input: {error}")))?;
    if input.len() > MAX_INPUT_BYTES {
        return Err(CliError::usage(format!(
            "cannot use standard input as a task: it is larger than {} MiB. Save it to a file and name the file in the task.",
            MAX_INPUT_BYTES >> 20
        )));
    }
    Ok(input)
}

/// Standard input as the complete task.
fn text(input: Vec<u8>) -> Result<String, CliError> {
    String::from_utf8(input).map_err(|_| {
        CliError::usage("cannot use standard input as a task: it is not UTF-8. Convert it first.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_stdin_wraps_the_input_in_a_block() {
        assert_eq!(append_stdin("explain", "a\nb\n"), "explain\n\n<stdin>\na\nb\n</stdin>");
        assert_eq!(append_stdin("explain", "a"), "explain\n\n<stdin>\na\n</stdin>");
        assert_eq!(append_stdin("explain", " \n"), "explain");
    }
}
