//! Inputs of attacks, and the sessions that make them.

use brigade_testing::{Reply, Script, reply};
use serde_json::{Value, json};

use crate::cli::support::CommandResult;
use crate::hostile::place::{Place, SECRET};

/// Number of calls that the model makes at once.
const CALLS_PER_TURN: usize = 6;

/// Settings of the session in which the model makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    /// Mode `auto` with the sandbox: nothing asks.
    Confined,
    /// Like `Confined`, with rules that hide files.
    Hidden,
    /// A child in a read-only sandbox makes the calls.
    ReadOnlyChild,
    /// Mode `auto` without a sandbox, so that only the deny rules prevent a command.
    Denied,
    /// Mode `ask` without a sandbox, with allow rules for a few commands. No one can approve anything.
    Allowed,
    /// Mode `edit` without a sandbox and without rules. No one can approve anything.
    Edit,
    /// Mode `auto` with rules for hosts.
    Hosts,
}

pub(crate) const SETUPS: [Setup; 7] = [
    Setup::Confined,
    Setup::Hidden,
    Setup::ReadOnlyChild,
    Setup::Denied,
    Setup::Allowed,
    Setup::Edit,
    Setup::Hosts,
];

/// Expected result of a call, besides that no canary is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Any result without a secret.
    Contained,
    /// A permission rule or the mode refuses the call.
    NotAllowed,
    /// The tool reports an error.
    Error,
    /// The result contains this text: the session is not broken.
    Says(&'static str),
}

/// One call of the model. Texts contain the placeholders of [`Place::fill_in`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) family: u8,
    pub(crate) setup: Setup,
    pub(crate) tool: &'static str,
    /// Command of `shell`, or arguments in JSON.
    pub(crate) input: &'static str,
    pub(crate) expected: Expected,
}

/// A command of a family of attacks, in the sandbox.
pub(crate) const fn command(family: u8, input: &'static str) -> Case {
    Case { family, setup: Setup::Confined, tool: "shell", input, expected: Expected::Contained }
}

/// A command that a rule or the mode refuses.
pub(crate) const fn refused(family: u8, setup: Setup, input: &'static str) -> Case {
    Case { family, setup, tool: "shell", input, expected: Expected::NotAllowed }
}

/// A call of another tool that fails.
pub(crate) const fn call(family: u8, tool: &'static str, input: &'static str) -> Case {
    Case { family, setup: Setup::Confined, tool, input, expected: Expected::Error }
}

impl Case {
    pub(crate) const fn setup(self, setup: Setup) -> Case {
        Case { setup, ..self }
    }

    pub(crate) const fn expects(self, expected: Expected) -> Case {
        Case { expected, ..self }
    }
}

impl Setup {
    fn arguments(self) -> Vec<&'static str> {
        let sandbox = ["--set", "sandbox.mode=workspace", "--set", "limits.shell_timeout=\"15s\""];
        let off = ["--set", "sandbox.mode=off"];
        let set = |settings: &[&'static str]| {
            settings.iter().flat_map(|setting| ["--set", setting]).collect::<Vec<_>>()
        };
        let all: [&[&str]; 2] = match self {
            Setup::Confined => [&["--mode", "auto"], &sandbox],
            Setup::Hidden => {
                let rules = "permissions.deny=[\"read_file(**/.env*)\", \"read_file(src/private*)\", \"write_file(src/main.rs)\"]";
                return [&["--mode", "auto"], &sandbox[..], &set(&[rules])].concat();
            }
            Setup::ReadOnlyChild => {
                return [&["--mode", "auto"], &sandbox[..], &set(&["swarm.roles.reader.sandbox=read-only"])]
                    .concat();
            }
            Setup::Denied => {
                return [&["--mode", "auto"], &off[..], &set(&["permissions.deny=[\"shell(touch)\"]"])]
                    .concat();
            }
            Setup::Allowed => {
                let rules = "permissions.allow=[\"shell(echo *)\", \"shell(printf *)\", \"shell(git log *)\", \"shell(git status)\"]";
                return [&["--mode", "ask"], &off[..], &set(&[rules])].concat();
            }
            Setup::Edit => [&["--mode", "edit"], &off],
            Setup::Hosts => {
                let rules = "permissions.deny=[\"web_fetch(*.evil.example)\", \"web_fetch(blocked.example)\", \"web_fetch(xn--bcher-kva.example)\"]";
                return [&["--mode", "auto"], &sandbox[..], &set(&[rules])].concat();
            }
        };
        all.concat()
    }
}

/// Result of one call.
struct Done {
    is_error: bool,
    text: String,
}

/// Makes the calls in one session and returns everything that differs from what is expected.
#[track_caller]
pub(crate) fn problems(place: &mut Place, setup: Setup, cases: &[Case]) -> Vec<String> {
    let arguments = setup.arguments();
    let done = run(place, cases, setup == Setup::ReadOnlyChild, &arguments);
    let mut problems: Vec<String> = Vec::new();
    if let Some(done) = done.iter().find(|done| done.text.contains("cannot start the command")) {
        problems.push(format!("a command was not tried: {}", done.text));
    }
    for (at, case) in cases.iter().enumerate() {
        let Some(done) = done.get(at) else {
            problems.push(format!("{at}: no result of {case:?}"));
            continue;
        };
        let is_right = match case.expected {
            Expected::Contained => true,
            Expected::NotAllowed => done.text.contains("is not allowed"),
            Expected::Error => done.is_error,
            Expected::Says(text) => done.text.contains(text),
        };
        if !is_right || done.text.contains(SECRET) {
            problems.push(format!("{at}: {:?} -> {}", case.input, done.text));
        }
    }
    // The canaries name the number of the case.
    problems.extend(place.violations());
    problems
}

/// Makes the calls in one session and returns their results in order.
#[track_caller]
fn run(place: &Place, cases: &[Case], as_child: bool, arguments: &[&str]) -> Vec<Done> {
    let script = script(place, cases, as_child);
    let model = place.home.script(script);
    let fixed =
        ["run", "--output-format", "stream-json", "--model", &model, "--set", "limits.lead_turns=300"];
    let more = ["--set", "budget.tokens=1000000000", "--set", "limits.loop_limit=0", "the task"];
    let mut command = place.brigade(&[&fixed[..], &more, arguments].concat());
    let done = CommandResult::run(&mut command);
    assert!([0, 3].contains(&done.code), "{}: {}", done.code, done.stderr);
    let mut results: Vec<(usize, Done)> =
        done.lines().iter().filter_map(|line| result(line, as_child)).collect();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, done)| done).collect()
}

fn script(place: &Place, cases: &[Case], as_child: bool) -> Script {
    let mut turns: Vec<Reply> = cases
        .chunks(CALLS_PER_TURN)
        .enumerate()
        .map(|(turn, cases)| {
            let calls = cases.iter().enumerate().map(|(at, case)| (turn * CALLS_PER_TURN + at, case));
            calls.fold(reply(""), |reply, (at, case)| add_call(place, reply, case, at))
        })
        .collect();
    turns.push(reply("done"));
    if as_child {
        let lead = [reply("").delegate("reader", "the task"), reply("done")];
        Script::new().agent("reader", turns).turns(lead)
    } else {
        Script::new().turns(turns)
    }
}

fn add_call(place: &Place, reply: Reply, case: &Case, at: usize) -> Reply {
    let input = place.fill_in(case.input, &at.to_string());
    if case.tool == "shell" && !input.starts_with('{') {
        return reply.call("shell", json!({ "command": input }));
    }
    reply.raw_call(case.tool, &input)
}

/// Position and result of a call, from a line of the stream. The lead's own calls do not count if a child makes them.
fn result(line: &Value, as_child: bool) -> Option<(usize, Done)> {
    if line["type"] != "tool_ended" || (line["depth"] == 0) == as_child {
        return None;
    }
    let (turn, index) = line["call"].as_str()?.split_once('-')?;
    let (turn, index): (usize, usize) = (turn.parse().ok()?, index.parse().ok()?);
    let text = line["output"]["text"].as_str().map_or_else(|| line["output"].to_string(), str::to_owned);
    let is_error = line["output"]["status"] == "error";
    Some(((turn - 1) * CALLS_PER_TURN + index, Done { is_error, text }))
}

/// Makes the calls without any confinement. Returns the number of canaries that were reached.
pub(crate) fn reached_without_confinement(place: &mut Place, cases: &[Case]) -> usize {
    let done = run(
        place,
        cases,
        false,
        &["--mode", "auto", "--set", "sandbox.mode=off", "--set", "limits.shell_timeout=\"15s\""],
    );
    place.violations().len() + done.iter().filter(|done| done.text.contains(SECRET)).count()
}
