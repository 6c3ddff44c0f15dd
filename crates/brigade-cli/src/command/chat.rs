//! `brigade chat`: a conversation with an agent, on a terminal or line by line.

mod answers;
mod attach;
mod commands;
mod history;
mod line;
mod plain;
mod room;
mod screen;
mod search;
mod talk;
mod voice;

use crate::args::{Chat, Global, OutputFormat};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::terminal;

use talk::Talk;

/// Runs it.
pub(crate) fn run(global: Global, chat: Chat) -> Result<Exit, Failure> {
    engine::many_threads()?.block_on(async {
        let mut talk = Talk::open(global, chat).await?;
        let is_text = talk.global.output_format == OutputFormat::Text;
        let exit = if is_text && terminal::can_chat(&talk.settings.environment) {
            room::converse(&mut talk).await?
        } else {
            plain::converse(&mut talk).await?
        };
        if let Some(session) = talk.session() {
            output::note(&format!("To go on: {}", talk.hints().chat(session)));
        }
        Ok(exit)
    })
}
