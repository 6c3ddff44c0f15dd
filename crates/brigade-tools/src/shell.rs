//! `shell`: runs commands under a guard process.

use std::borrow::Cow;
use std::time::Duration;

use brigade_base::process::guard_tag;
use brigade_base::sandbox::{ConnectionLog, ExtraAccess, discards};
use brigade_core::ToolOutput;
use brigade_core::message::Category;
use brigade_core::network::{HostPattern, HostPatternError};
use brigade_core::permission::Subject;
use brigade_sandbox::{Enforcement, ExitReason, GuardError, Job, JobResult};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{CallTitle, ShellSettings, Tool, ToolContext};

/// Runs commands.
#[derive(Debug, Clone, Copy)]
pub struct Shell;

/// Runs commands in a sandbox. A call can ask for more access.
#[derive(Debug, Clone, Copy)]
pub struct SandboxedShell;

/// The arguments of `shell`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShellInput {
    /// For /bin/sh
    command: String,
    /// Time limit; at most the default
    timeout_seconds: Option<u64>,
}

/// The arguments of `shell` in a sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxedShellInput {
    /// For /bin/sh
    command: String,
    /// Time limit; at most the default
    timeout_seconds: Option<u64>,
    /// Additional access for this command. Request only what it needs; the user must approve it
    needs: Option<ShellNeeds>,
}

/// Access beyond the sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShellNeeds {
    /// Existing files or directories that the command writes to
    #[serde(default)]
    write: Vec<String>,
    /// Hosts that the command connects to over HTTP or TLS, such as `example.org` or `example.com:8443`
    #[serde(default)]
    hosts: Vec<NeededHost>,
}

/// Host without a wildcard.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", inline)]
struct NeededHost(HostPattern);

/// Reason why a host cannot be requested.
#[derive(Debug, thiserror::Error)]
enum NeededHostError {
    #[error("{0}.")]
    Invalid(#[from] HostPatternError),
    #[error("`{0}` contains a wildcard. Name each host.")]
    Wildcard(HostPattern),
}

impl TryFrom<String> for NeededHost {
    type Error = NeededHostError;

    fn try_from(text: String) -> Result<NeededHost, NeededHostError> {
        let host = HostPattern::parse(&text)?;
        if host.is_wildcard() { Err(NeededHostError::Wildcard(host)) } else { Ok(NeededHost(host)) }
    }
}

const NAME: &str = "shell";

const DESCRIPTION: &str = "Run a command in the workspace, without a terminal or input. Background processes are killed when it ends. Use the file tools to read, search and edit files.";

impl Tool for Shell {
    const NAME: &'static str = NAME;
    type Input = ShellInput;

    fn description(&self) -> Cow<'static, str> {
        DESCRIPTION.into()
    }

    fn category(&self) -> Category {
        Category::Execute
    }

    fn is_sandboxed(&self) -> bool {
        true
    }

    fn subject<'a>(&self, input: &'a ShellInput) -> Subject<'a> {
        Subject::Command(&input.command)
    }

    fn title(&self, input: &ShellInput) -> Option<CallTitle> {
        Some(CallTitle::new("Run", &input.command))
    }

    async fn run(&self, input: ShellInput, context: &ToolContext) -> ToolOutput {
        run_command(input.command, input.timeout_seconds, ExtraAccess::default(), context).await
    }
}

impl Tool for SandboxedShell {
    const NAME: &'static str = NAME;
    type Input = SandboxedShellInput;

    fn description(&self) -> Cow<'static, str> {
        let sandbox = "Commands run in a sandbox: secrets are hidden, and at most the workspace and /tmp are writable. The network may be off or limited to some hosts. If a command fails because of the sandbox, request access with `needs`.";
        format!("{DESCRIPTION} {sandbox}").into()
    }

    fn category(&self) -> Category {
        Category::Execute
    }

    fn is_sandboxed(&self) -> bool {
        true
    }

    fn leaves_sandbox(&self, input: &SandboxedShellInput) -> bool {
        extra_access(input.needs.as_ref()).is_some()
    }

    fn subject<'a>(&self, input: &'a SandboxedShellInput) -> Subject<'a> {
        Subject::Command(&input.command)
    }

    fn title(&self, input: &SandboxedShellInput) -> Option<CallTitle> {
        Some(CallTitle::new("Run", &input.command))
    }

    async fn run(&self, input: SandboxedShellInput, context: &ToolContext) -> ToolOutput {
        let extra = extra_access(input.needs.as_ref());
        run_command(input.command, input.timeout_seconds, extra, context).await
    }
}

fn extra_access(needs: Option<&ShellNeeds>) -> ExtraAccess {
    let access = |needs: &ShellNeeds| ExtraAccess {
        write: needs.write.clone(),
        hosts: needs.hosts.iter().map(|NeededHost(host)| host.clone()).collect(),
    };
    needs.map(access).unwrap_or_default()
}

/// Runs a command in the sandbox of a call.
async fn run_command(
    command: String,
    timeout_seconds: Option<u64>,
    extra: ExtraAccess,
    context: &ToolContext,
) -> ToolOutput {
    let Some(settings) = &context.shell else {
        return ToolOutput::error("`shell` is not available. Use the other tools.");
    };
    if command.trim().is_empty() {
        return ToolOutput::error("The command is empty. Give the command to run.");
    }
    let time_limit = match timeout_seconds {
        Some(0) => return ToolOutput::error("`timeout_seconds` is 0. Allow at least one second."),
        Some(seconds) => settings.time_limit.min(Duration::from_secs(seconds)),
        None => settings.time_limit,
    };
    let tag = guard_tag(&context.session, context.call);
    let (sandbox, directory) = (context.sandbox.clone(), settings.directory.clone());
    let environment = settings.environment.clone();
    let connections = sandbox.connections().clone();
    // Looking for secrets in the workspace reads directories.
    let job = move || sandbox.job(command, directory, tag, &environment, &extra);
    let job = match tokio::task::spawn_blocking(job).await {
        Ok(Ok(job)) => job.output_limit(settings.output_limit),
        Ok(Err(error)) => return ToolOutput::error(error.to_string()),
        Err(error) => return ToolOutput::error(format!("cannot start the command: {error}")),
    };
    let is_discarded = discards(&job.confinement, &job.directory);
    match run_job(job, time_limit, settings, context).await {
        Ok(finished) => {
            let output = report(&finished, &connections, settings.output_limit, time_limit);
            if is_discarded { with_discarded_note(output) } else { output }
        }
        Err(cause) => ToolOutput::error(cause.to_string()),
    }
}

/// Appends that nothing remains of what the command changed.
fn with_discarded_note(output: ToolOutput) -> ToolOutput {
    let mut text = output.text.to_string();
    push_line(&mut text, "(plan mode: changes to files by this command were discarded)");
    if output.is_error() { ToolOutput::error(text) } else { ToolOutput::ok(text) }
}

/// Runs a job with a time limit. The guard enforces the limit, unless the user may be asked about hosts: then the time in
/// which a question is open does not count, and only this process knows it.
async fn run_job(
    job: Job,
    time_limit: Duration,
    settings: &ShellSettings,
    context: &ToolContext,
) -> Result<JobResult, GuardError> {
    if !context.hosts.can_allow() {
        let job = job.time_limit(time_limit);
        return brigade_sandbox::run(&settings.guard, job, context.stop_requested()).await;
    }
    let mut is_timed_out = false;
    let end = async {
        tokio::select! {
            () = context.stop_requested() => {}
            () = context.hosts.time_without_questions(time_limit) => is_timed_out = true,
        }
    };
    let mut finished = brigade_sandbox::run(&settings.guard, job, end).await?;
    if is_timed_out && finished.end == ExitReason::Cancelled {
        finished.end = ExitReason::TimedOut;
    }
    Ok(finished)
}

fn report(
    finished: &JobResult,
    connections: &ConnectionLog,
    output_limit: usize,
    time_limit: Duration,
) -> ToolOutput {
    let mut text = output(finished, output_limit);
    if !finished.removed.is_empty() {
        let paths: Vec<_> = finished.removed.iter().map(|path| path.to_string_lossy()).collect();
        push_line(
            &mut text,
            &format!(
                "(the sandbox protects these files, so they were renamed to NAME.removed: {})",
                paths.join(", ")
            ),
        );
    }
    let refused = connections.denials();
    for connection in &refused {
        push_line(&mut text, &format!("({connection})"));
    }
    let end = match finished.end {
        ExitReason::Exited(0) if text.is_empty() => return ToolOutput::ok("(no output)"),
        ExitReason::Exited(0) => return ToolOutput::ok(text),
        ExitReason::Exited(code) => format!("(exit code {code})"),
        ExitReason::Signalled(signal) => format!("(killed by signal {signal})"),
        ExitReason::TimedOut => format!("(timed out after {} seconds)", time_limit.as_secs()),
        ExitReason::Cancelled => "(cancelled)".to_owned(),
        ExitReason::OverLimit(limit) => format!("(killed: {limit})"),
    };
    let has_no_proxy = finished.enforcement == Enforcement::Landlock && connections.is_requested();
    let is_explained = has_no_proxy || !refused.is_empty();
    let denied = denied_by_sandbox(finished.enforcement, &text, (!is_explained).then_some(NETWORK_DENIAL));
    push_line(&mut text, &end);
    if has_no_proxy {
        push_line(&mut text, NO_PROXY);
    }
    if let Some(denied) = denied {
        push_line(&mut text, &denied);
    }
    ToolOutput::error(text)
}

/// Appends a line that starts on a line of its own.
fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

/// Errors of denied writes.
const WRITE_ERRORS: [&str; 4] = ["Read-only file system", "EROFS", "Device or resource busy", "EBUSY"];
const WRITE_DENIAL: &str = "a write outside the workspace and /tmp, or to a protected file such as .git/hooks (needs.write, or setting sandbox.write)";

/// Errors of programs without a network.
const NETWORK_ERRORS: [&str; 8] = [
    "Network is unreachable",
    "network is unreachable",
    "Could not resolve host",
    "could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "EAI_AGAIN",
    "ENOTFOUND",
];
const NETWORK_DENIAL: &str = "access to the network (needs.hosts, or setting sandbox.network)";
/// Note on a command whose hosts cannot be limited.
const NO_PROXY: &str = "(the network is off: without user namespaces, the sandbox cannot limit it to hosts. The user can allow user namespaces, or the whole network with the setting sandbox.network = true)";

/// Errors of the limit of processes.
const PROCESS_ERRORS: [&str; 4] =
    ["Cannot fork", "fork: retry", "Resource temporarily unavailable", "EAGAIN"];
const PROCESS_DENIAL: &str = "more processes than the sandbox allows (setting sandbox.processes)";

/// Errors of hidden files.
const FILE_ERRORS: [&str; 2] = ["Permission denied", "EACCES"];
const FILE_DENIAL: &str = "access to a hidden file (setting sandbox.read), or a write outside the workspace (needs.write, or setting sandbox.write)";

/// Names what the sandbox probably denied to a failed command, judging by its output, with the setting that allows it.
fn denied_by_sandbox(enforcement: Enforcement, output: &str, network: Option<&str>) -> Option<String> {
    if enforcement == Enforcement::None {
        return None;
    }
    let denials: [(&[&str], Option<&str>); 4] = [
        (&WRITE_ERRORS, Some(WRITE_DENIAL)),
        (&NETWORK_ERRORS, network),
        (&PROCESS_ERRORS, Some(PROCESS_DENIAL)),
        (&FILE_ERRORS, Some(FILE_DENIAL)),
    ];
    let is_in_output = |errors: &[&str]| errors.iter().any(|error| output.contains(error));
    let found = denials.into_iter().filter(|(errors, _)| is_in_output(errors));
    let denied: Vec<&str> = found.filter_map(|(_, denial)| denial).collect();
    (!denied.is_empty()).then(|| format!("(probably denied by the sandbox: {})", denied.join("; ")))
}

/// Formats the output as text, with a note if its middle was dropped.
fn output(finished: &JobResult, output_limit: usize) -> String {
    if finished.dropped_bytes == 0 {
        return String::from_utf8_lossy(&finished.output).into_owned();
    }
    let (start, end) = finished.output.split_at((output_limit / 2).min(finished.output.len()));
    let (start, end) = (String::from_utf8_lossy(start), String::from_utf8_lossy(end));
    format!("{start}\n(… {} bytes of output omitted …)\n{end}", finished.dropped_bytes)
}

#[cfg(test)]
mod tests {
    use brigade_base::sandbox::CommandSandbox;
    use brigade_sandbox::Confinement;

    use super::*;

    fn finished(end: ExitReason, output: &[u8], dropped_bytes: u64) -> JobResult {
        JobResult {
            end,
            output: output.to_vec(),
            dropped_bytes,
            duration: Duration::ZERO,
            recent: Vec::new(),
            enforcement: Enforcement::None,
            removed: Vec::new(),
        }
    }

    #[test]
    fn report_ends_with_the_exit_status() {
        let say = |end, output: &[u8]| {
            let finished = finished(end, output, 0);
            let output = report(&finished, &ConnectionLog::default(), 100, Duration::from_secs(7));
            (output.text.to_string(), output.is_error())
        };
        assert_eq!(say(ExitReason::Exited(0), b"hi\n"), ("hi\n".into(), false));
        assert_eq!(say(ExitReason::Exited(0), b""), ("(no output)".into(), false));
        assert_eq!(say(ExitReason::Exited(3), b"hi"), ("hi\n(exit code 3)".into(), true));
        assert_eq!(say(ExitReason::Exited(1), b""), ("(exit code 1)".into(), true));
        assert_eq!(say(ExitReason::Signalled(9), b"x\n"), ("x\n(killed by signal 9)".into(), true));
        assert_eq!(say(ExitReason::TimedOut, b""), ("(timed out after 7 seconds)".into(), true));
        assert_eq!(say(ExitReason::Cancelled, b"\xff"), ("\u{fffd}\n(cancelled)".into(), true));
    }

    #[test]
    fn report_names_what_the_sandbox_probably_denied() {
        let say = |enforcement, output: &str| {
            let finished = JobResult { enforcement, ..finished(ExitReason::Exited(1), output.as_bytes(), 0) };
            report(&finished, &ConnectionLog::default(), 1000, Duration::from_secs(7)).text.to_string()
        };
        let error = "sh: cannot create /etc/x: Read-only file system\n";
        assert_eq!(say(Enforcement::None, error), format!("{error}(exit code 1)"));
        let confined = say(Enforcement::Namespaces, error);
        assert!(
            confined.contains("(exit code 1)\n(probably denied by the sandbox: a write outside"),
            "{confined}"
        );
        let network = say(Enforcement::Landlock, "curl: (6) Could not resolve host: example.org");
        assert!(
            network.ends_with("access to the network (needs.hosts, or setting sandbox.network))"),
            "{network}"
        );
        assert!(!say(Enforcement::Namespaces, "test failed").contains("sandbox"));
    }

    #[test]
    fn needed_hosts_are_single_hosts() {
        let needs = |hosts: serde_json::Value| {
            let input = serde_json::json!({ "command": "true", "needs": { "hosts": hosts } });
            let input = serde_json::from_value::<SandboxedShellInput>(input);
            input.map(|input| extra_access(input.needs.as_ref()).hosts).map_err(|error| error.to_string())
        };
        let hosts = needs(serde_json::json!(["Example.ORG", "example.com:22", "10.0.0.5:5432"])).unwrap();
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["example.org", "example.com:22", "10.0.0.5:5432"]);
        for (host, problem) in [
            ("*", "matches too many hosts"),
            ("*.example.org", "`*.example.org` contains a wildcard. Name each host."),
            ("https://example.org", "Use only the host"),
            ("10.0.0.5", "Add the port"),
            ("127.1:80", "is not a host"),
        ] {
            let error = needs(serde_json::json!([host])).unwrap_err();
            assert!(error.contains(problem), "{host}: {error}");
        }
        assert!(needs(serde_json::json!(true)).is_err());
    }

    #[test]
    fn report_explains_a_missing_proxy() {
        let sandbox =
            brigade_sandbox::Sandbox { network: brigade_sandbox::Network::Proxy, ..Default::default() };
        let sandbox = CommandSandbox::new(move |_| Ok(Confinement::Sandbox(Box::new(sandbox.clone()))));
        sandbox.job("true".into(), "/".into(), "s:1".into(), &[], &ExtraAccess::default()).unwrap();
        let say = |enforcement| {
            let finished = finished(ExitReason::Exited(6), b"Could not resolve host: a.example", 0);
            let finished = JobResult { enforcement, ..finished };
            report(&finished, sandbox.connections(), 100, Duration::from_secs(7)).text.to_string()
        };
        let text = say(Enforcement::Landlock);
        assert!(text.ends_with(&format!("(exit code 6)\n{NO_PROXY}")), "{text}");
        assert!(say(Enforcement::Namespaces).ends_with("setting sandbox.network))"));
    }

    #[test]
    fn report_names_removed_files() {
        let removed = vec!["/w/.brigade".into()];
        let finished = JobResult { removed, ..finished(ExitReason::Exited(0), b"done", 0) };
        let text = report(&finished, &ConnectionLog::default(), 100, Duration::from_secs(7)).text.to_string();
        assert_eq!(
            text,
            "done\n(the sandbox protects these files, so they were renamed to NAME.removed: /w/.brigade)"
        );
    }

    #[test]
    fn output_marks_the_dropped_middle() {
        let output = output(&finished(ExitReason::Exited(0), "aé€z".as_bytes(), 12), 8);
        assert_eq!(output, "aé\u{fffd}\n(… 12 bytes of output omitted …)\n\u{fffd}\u{fffd}z");
    }
}
