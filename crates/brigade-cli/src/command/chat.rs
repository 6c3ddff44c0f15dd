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

use crate::args::{Chat, Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::setup;
use crate::terminal;

use conversation::Conversation;

/// Runs the command.
pub(crate) fn run(global: Global, chat: Chat) -> Result<Exit, CliError> {
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
