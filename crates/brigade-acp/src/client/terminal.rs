//! Terminals: commands that an agent starts and polls. Each runs under a guard and ends with its session.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use agent_client_protocol_schema::v1::{TerminalExitStatus, TerminalOutputResponse};
use brigade::Redactor;
use brigade::process::CloseReason;
use brigade::sandbox::{CommandSandbox, ExtraAccess};
use brigade::tool::ShellSettings;
use brigade_core::message::Refusal;
use brigade_sandbox::{ExitReason, single_quoted};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, watch};

use super::lock;
use super::session::ExternalSession;
use crate::task::{self, AbortOnDrop};

/// Maximum size of the output that is kept.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// Maximum number of requests that wait for the exit of one terminal.
const MAX_WAITERS: usize = 4;
/// Maximum number of terminals per session.
const MAX_TERMINALS: usize = 16;

/// The terminals of a session.
#[derive(Default)]
pub(super) struct Terminals {
    list: Mutex<TerminalList>,
}

#[derive(Default)]
struct TerminalList {
    last: u64,
    terminals: BTreeMap<String, Arc<Terminal>>,
    ended: bool,
}

struct Terminal {
    output: Arc<Mutex<TailBuffer>>,
    exit: watch::Receiver<Option<TerminalExitStatus>>,
    stop: CloseReason,
    redactor: Redactor,
    waits: Arc<Semaphore>,
    _task: AbortOnDrop,
}

/// The end of a command's output.
struct TailBuffer {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

/// The command to run in a terminal.
pub(super) struct TerminalRequest {
    pub(super) command: String,
    pub(super) directory: PathBuf,
    pub(super) output_limit: Option<u64>,
    pub(super) tag: String,
    pub(super) sandbox: CommandSandbox,
    pub(super) redactor: Redactor,
}

impl Terminals {
    /// Starts a command and returns the id of its terminal.
    pub(super) fn start(
        &self,
        request: TerminalRequest,
        settings: &ShellSettings,
    ) -> Result<String, Refusal> {
        let mut list = lock(&self.list);
        if list.ended {
            return Err("the session has ended".into());
        }
        if list.terminals.len() >= MAX_TERMINALS {
            return Err(format!(
                "cannot create a terminal: {MAX_TERMINALS} are already open. Release one first."
            )
            .into());
        }
        let terminal = Terminal::start(request, settings)?;
        list.last += 1;
        let name = format!("term_{}", list.last);
        list.terminals.insert(name.clone(), Arc::new(terminal));
        Ok(name)
    }

    /// Terminates all terminals.
    pub(super) fn end(&self) {
        let mut list = lock(&self.list);
        list.ended = true;
        list.terminals.clear();
    }

    /// Handles a terminal request. Returns `None` for other methods, and `Ok(None)` if the response is sent
    /// later.
    pub(super) fn handle_request(
        &self,
        session: &Arc<ExternalSession>,
        method: &str,
        id: &Value,
        params: &Value,
    ) -> Option<Result<Option<Value>, Refusal>> {
        let action = method.strip_prefix("terminal/").filter(|action| *action != "create")?;
        let name = params.get("terminalId").and_then(Value::as_str).unwrap_or_default();
        let terminal = match action {
            "release" => lock(&self.list).terminals.remove(name),
            _ => lock(&self.list).terminals.get(name).cloned(),
        };
        let Some(terminal) = terminal else { return Some(Err("unknown terminal".into())) };
        match action {
            "output" => Some(Ok(serde_json::to_value(terminal.output()).ok())),
            "kill" => {
                terminal.stop.set("killed");
                Some(Ok(Some(json!({}))))
            }
            "release" => Some(Ok(Some(json!({})))),
            "wait_for_exit" => {
                let Ok(wait) = terminal.waits.clone().try_acquire_owned() else {
                    return Some(Err(format!(
                        "{MAX_WAITERS} requests are already waiting for this terminal. Wait for their responses first."
                    ).into()));
                };
                let (session, id, mut exit) = (Arc::downgrade(session), id.clone(), terminal.exit.clone());
                task::detach(async move {
                    let _wait = wait;
                    let status = exit.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
                    if let Some(session) = session.upgrade() {
                        session.connection().answer(&id, &status.unwrap_or_default());
                    }
                });
                Some(Ok(None))
            }
            _ => None,
        }
    }
}

impl Terminal {
    fn start(request: TerminalRequest, settings: &ShellSettings) -> Result<Terminal, Refusal> {
        // Both streams are merged to keep the order in which they were written.
        let command = format!("exec /bin/sh -c {} 2>&1 </dev/null", single_quoted(&request.command));
        let job = request
            .sandbox
            .job(command, request.directory, request.tag, &settings.environment, &ExtraAccess::default())
            .map_err(|error| error.to_string())?
            .time_limit(settings.time_limit)
            .output_limit(settings.output_limit);
        let connections = request.sandbox.connections().clone();
        let stop = CloseReason::default();
        let stopped = stop.clone();
        let (mut stream, run) =
            brigade_sandbox::serve(settings.guard.clone(), job, async move { stopped.closed().await })
                .map_err(|error| format!("cannot start the command: {error}"))?;
        let limit = request
            .output_limit
            .map_or(MAX_OUTPUT_BYTES, |limit| usize::try_from(limit).unwrap_or(MAX_OUTPUT_BYTES));
        let output = Arc::new(Mutex::new(TailBuffer {
            bytes: Vec::new(),
            limit: limit.min(MAX_OUTPUT_BYTES),
            truncated: false,
        }));
        let (status, exit) = watch::channel(None);
        let buffer = output.clone();
        let redactor = request.redactor;
        let task = task::spawn(async move {
            let listen = async {
                let mut chunk = vec![0; 8192];
                while let Ok(length) = stream.read(&mut chunk).await
                    && length > 0
                {
                    lock(&buffer).add(chunk.get(..length).unwrap_or_default());
                }
            };
            let (ended, ()) = tokio::join!(run, listen);
            for denial in connections.denials() {
                lock(&buffer).add(format!("\n({denial})").as_bytes());
            }
            status.send_replace(Some(match ended.map(|finished| finished.end) {
                Ok(ExitReason::Exited(code)) => TerminalExitStatus::new().exit_code(u32::try_from(code).ok()),
                Ok(ExitReason::Signalled(signal)) => TerminalExitStatus::new().signal(signal.to_string()),
                Ok(ExitReason::TimedOut | ExitReason::Cancelled | ExitReason::OverLimit(_)) => {
                    TerminalExitStatus::new().signal("SIGKILL".to_owned())
                }
                Err(error) => {
                    lock(&buffer).add(error.to_string().as_bytes());
                    TerminalExitStatus::new()
                }
            }));
        });
        let waits = Arc::new(Semaphore::new(MAX_WAITERS));
        Ok(Terminal { output, exit, stop, redactor, waits, _task: task })
    }

    fn output(&self) -> TerminalOutputResponse {
        let output = lock(&self.output);
        let text = String::from_utf8_lossy(&output.bytes);
        TerminalOutputResponse::new(self.redactor.redact(&text).into_owned(), output.truncated)
            .exit_status(self.exit.borrow().clone())
    }
}

impl TailBuffer {
    /// Appends output and keeps its end, starting at a character boundary.
    fn add(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
        let Some(mut excess) = self.bytes.len().checked_sub(self.limit).filter(|excess| *excess > 0) else {
            return;
        };
        self.truncated = true;
        while self.bytes.get(excess).is_some_and(|byte| byte & 0xC0 == 0x80) {
            excess += 1;
        }
        self.bytes.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_buffer_keeps_whole_characters() {
        let mut output = TailBuffer { bytes: Vec::new(), limit: 4, truncated: false };
        output.add("abc".as_bytes());
        assert!(!output.truncated);
        output.add("é€".as_bytes());
        assert_eq!(
            (String::from_utf8(output.bytes.clone()).unwrap().as_str(), output.truncated),
            ("€", true)
        );
    }
}
