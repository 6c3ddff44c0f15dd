//! The `brigade` command: argument parsing, settings and output. The `brigade` library does the rest.

mod approval_prompt;
mod args;
mod attention;
mod caller;
mod clock;
mod command;
mod diagnostics;
mod environment_context;
mod error;
mod follow;
mod keyboard;
mod limits;
mod mistyped;
mod model_hints;
mod notify;
mod output;
mod presets;
mod preview;
mod private_files;
mod progress;
mod project_context;
mod redaction;
mod render;
mod report;
mod sanitize;
mod session_ref;
mod settings;
mod setup;
mod store_advice;
mod summary;
mod suspend;
mod terminal;
mod trust;
mod units;

use clap::Parser;

use crate::args::{Args, Command};
use crate::error::{CliError, Exit};

/// About 20% less CPU time than the system allocator with thousands of sessions on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// First argument with which the command starts itself as the guard of a shell command.
const GUARD_ARG: &str = "__guard";

/// First argument with which `brigade demo` starts the process that it kills.
const DEMO_ARG: &str = "__demo";

/// First argument with which completion scripts ask for values.
const COMPLETE_ARG: &str = "__complete";

fn main() {
    // A guard has an empty environment and no arguments to parse. It is started for every shell command.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == GUARD_ARG) {
        exit_process(brigade_sandbox::guard_main());
    }
    // No key has been read and no thread runs yet. The guard above holds no key and does not need this.
    if let Err(error) = protect_memory() {
        CliError::failed(format!("cannot protect the memory of this process from agent commands: {error}"))
            .report();
        exit_process(1);
    }
    if std::env::args_os().nth(1).is_some_and(|argument| argument == COMPLETE_ARG) {
        let kind = std::env::args_os().nth(2).unwrap_or_default();
        command::completions::print(&kind.to_string_lossy());
        exit_process(0);
    }
    if std::env::args_os().nth(1).is_some_and(|argument| argument == DEMO_ARG) {
        let worker = || command::demo::worker_main(std::env::args_os().skip(2));
        exit_process(exit_code(caller::check_demo().and_then(|()| worker())));
    }
    let args = Args::try_parse().unwrap_or_else(|error| print_usage_error(error));
    exit_process(exit_code(diagnostics::install().and_then(|()| dispatch(args))));
}

/// The exit code of a command. A failure is reported.
fn exit_code(result: Result<Exit, CliError>) -> i32 {
    match result {
        Ok(exit) => exit.code(),
        Err(failure) => {
            failure.report();
            failure.code()
        }
    }
}

/// Makes this process non-dumpable, so that other processes of the same user, such as the commands of agents, cannot
/// read its environment or memory. Child processes are not affected.
#[cfg(target_os = "linux")]
fn protect_memory() -> rustix::io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
}

#[cfg(not(target_os = "linux"))]
fn protect_memory() -> rustix::io::Result<()> {
    Ok(())
}

fn dispatch(args: Args) -> Result<Exit, CliError> {
    let Args { global, command } = args;
    caller::check(&command)?;
    match command {
        Command::Run(run) => command::run::run(global, run),
        Command::Chat(chat) => command::chat::run(global, chat),
        Command::Resume(resume) => command::resume::run(global, resume),
        Command::Tell(tell) => command::tell::run(global, tell),
        Command::Cancel(cancel) => command::cancel::run(&global, &cancel),
        Command::Answer(answer) => command::answer::run(&global, &answer),
        Command::Sessions(sessions) => command::sessions::run(&global, sessions),
        Command::Agents(agents) => command::agents::run(&global, &agents),
        Command::Tools(tools) => command::tools::run(&global, &tools),
        Command::Mcp(mcp) => command::mcp::run(&global, &mcp),
        Command::Models(models) => command::models::run(&global, &models),
        Command::Acp(acp) => command::acp::run(global, acp),
        Command::Config(config) => command::config::run(&global, &config),
        Command::Trust(trust) => command::trust::run(&global, &trust),
        Command::Demo(demo) => command::demo::run(global, demo),
        Command::Eval(eval) => command::eval::run(&global, &eval),
        Command::Init(init) => command::init::run(&global, init),
        Command::Doctor(doctor) => command::doctor::run(&global, &doctor),
        Command::Completions(completions) => command::completions::run(&completions),
        Command::Man(man) => command::man::run(&man),
    }
}

/// Prints a usage error. Help and the version arrive here too, and are not errors.
fn print_usage_error(mut error: clap::Error) -> ! {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
    mistyped::correct(&mut error, &typed);
    // If the output is closed, the message cannot be shown anywhere.
    let _ = error.print();
    if let Some(hint) = mistyped::hint(&error, &typed) {
        output::note(&hint);
    }
    exit_process(error.exit_code())
}

/// Exits the process at once.
#[expect(clippy::disallowed_methods, reason = "the only place that exits the process")]
fn exit_process(code: i32) -> ! {
    std::process::exit(code)
}
