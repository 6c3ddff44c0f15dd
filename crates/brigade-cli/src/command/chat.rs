//! `brigade chat`: a conversation with an agent, on a terminal or line by line.

mod answers;
mod commands;
mod editor;
mod history;
mod plain;
mod talk;

use crate::args::{Chat, Global};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::output;

use talk::Talk;

/// Runs it.
pub(crate) fn run(global: Global, chat: Chat) -> Result<Exit, Failure> {
    engine::many_threads()?.block_on(async {
        let mut talk = Talk::open(global, chat).await?;
        let exit = plain::converse(&mut talk).await?;
        if let Some(session) = talk.session() {
            output::note(&format!("To go on: {}", talk.hints().chat(session)));
        }
        Ok(exit)
    })
}
