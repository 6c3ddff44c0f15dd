//! The `brigade` command: arguments, settings, printing. All work is done by the `brigade` library.

mod approval_prompt;
mod args;
mod attention;
mod clock;
mod command;
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
mod progress;
mod project_context;
mod render;
mod report;
mod sanitize;
mod session_ref;
mod settings;
mod setup;
mod summary;
mod suspend;
mod terminal;
mod trust;
mod units;

use clap::Parser;

use crate::args::{Args, Command};
use crate::error::{CliError, Exit};

/// Thousands of sessions that start and end on several threads cost a fifth less than with the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The first argument with which the command runs itself as the guard of a shell command.
const GUARD_ARG: &str = "__guard";

/// The first argument with which `brigade demo` runs itself as the process that it kills.
const DEMO_ARG: &str = "__demo";

/// The first argument with which the script of a shell asks for values to complete.
const COMPLETE_ARG: &str = "__complete";

fn main() {
    // A guard has an empty environment and no arguments to parse; it is started for every shell command.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == GUARD_ARG) {
        exit_process(brigade_sandbox::guard_main());
    }
    // Nothing has read a key and no thread runs yet. The guard above holds no key, and stays as it is.
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
        exit_process(exit_code(command::demo::worker_main(std::env::args_os().skip(2))));
    }
    let args = Args::try_parse().unwrap_or_else(|error| print_usage_error(error));
    exit_process(exit_code(dispatch(args)));
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

/// Makes this process non-dumpable: other processes of the same user, such as the commands of agents, can read neither
/// its environment nor its memory. Programs that it starts are not affected.
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
        Command::Init(init) => command::init::run(&global, init),
        Command::Doctor(doctor) => command::doctor::run(&global, &doctor),
        Command::Completions(completions) => command::completions::run(&completions),
        Command::Man(man) => command::man::run(&man),
    }
}

/// Says what is wrong with what was typed. Help and the version come this way too, and are no error.
fn print_usage_error(mut error: clap::Error) -> ! {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
    mistyped::correct(&mut error, &typed);
    // Whoever closed the output does not want to know.
    let _ = error.print();
    if let Some(hint) = mistyped::hint(&error, &typed) {
        output::note(&hint);
    }
    exit_process(error.exit_code())
}

/// Leaves the process at once.
#[expect(clippy::disallowed_methods, reason = "this is the one place where the process is left")]
fn exit_process(code: i32) -> ! {
    std::process::exit(code)
}
