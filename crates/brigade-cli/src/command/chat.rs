//! `brigade chat`: a conversation with an agent, on a terminal or line by line.

mod attach;
mod commands;
mod conversation;
mod history;
mod input_line;
mod interactive;
mod line_mode;
mod screen;
mod search;
mod slash_output;
mod transcript_writer;

use crate::args::{Flags, Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::setup;
use crate::terminal;

use conversation::Conversation;
pub(crate) use interactive::USER_COMMAND_TAG;

const HELP: &str = "\
Examples:
  brigade chat                              chat with the lead agent
  brigade chat -a reviewer                  chat with one of your agents
  brigade chat -c                           continue the last session of this directory
  brigade chat -r ID                        continue any session, including those started by agents
  brigade chat --mode plan --budget-usd 1   set the mode, and the budget of each task
  printf 'one\\ntwo\\n' | brigade chat       messages from standard input, one per line

Messages that you send while agents work are delivered at the next turn. Esc or Ctrl-C
stops the agents; a second Ctrl-C quits. /help lists keys and commands.";

/// Chat with an agent while its sub-agents work
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ChatArgs {
    /// Continue the last session of this directory
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "agent"])]
    pub(crate) last: bool,
    /// Continue this session
    #[arg(short, long, value_name = "ID", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Runs the command.
pub(crate) fn run(global: Global, chat: ChatArgs) -> Result<Exit, CliError> {
    setup::multi_thread_runtime()?.block_on(async {
        let mut conversation = Conversation::open(global, chat).await?;
        let is_text = conversation.global.output_format == OutputFormat::Text;
        let exit = if is_text && terminal::can_chat(&conversation.settings.environment) {
            interactive::run_chat(&mut conversation).await?
        } else {
            line_mode::run_chat(&mut conversation).await?
        };
        if let Some(session) = conversation.session() {
            output::note(&format!("Resume: {}", conversation.hints().chat(session)));
        }
        Ok(exit)
    })
}
