//! Approval prompts in a chat. They receive the keys if no message is being typed.

use brigade_core::view::Tree;

use super::super::conversation::Conversation;
use super::ChatUi;
use crate::approval_prompt::{ApprovalPrompt, PromptAction};
use crate::attention::Attention;
use crate::error::Exit;
use crate::keyboard::editor::Layout;
use crate::keyboard::keys::Key;
use crate::store_advice;
use crate::terminal::Colour;

/// Notice while an approval is pending and a message is being typed.
const PENDING_NOTICE: &str = "An agent requests approval. Press Esc to answer.";

/// Pending approvals, and the target of typed keys.
pub(super) struct ApprovalPrompts {
    pub(super) dialogue: ApprovalPrompt,
    pub(super) attention: Attention,
    /// Whether keys go to the prompt instead of the message.
    is_answering: bool,
}

impl ApprovalPrompts {
    /// Creates the state without pending approvals.
    pub(super) fn new(conversation: &Conversation, colour: Colour) -> ApprovalPrompts {
        ApprovalPrompts {
            dialogue: ApprovalPrompt::new(Some(conversation.runtime.settings().workspace.clone()), colour),
            attention: Attention::new(&conversation.settings, &conversation.runtime),
            is_answering: false,
        }
    }

    /// Whether keys go to the prompt.
    pub(super) fn takes_keys(&self) -> bool {
        self.is_answering && self.dialogue.is_open()
    }

    /// Notice about a pending approval.
    pub(super) fn notice(&self) -> Option<&'static str> {
        (self.dialogue.is_open() && !self.is_answering).then_some(PENDING_NOTICE)
    }

    /// Prompt and the answer that is being typed, if there is one.
    pub(super) fn layout(&self, tree: &Tree, columns: usize) -> Option<Layout> {
        if !self.takes_keys() {
            return None;
        }
        let footer = self.dialogue.footer(tree, columns)?;
        Some(Layout { cursor: footer.cursor.unwrap_or_default(), lines: footer.lines })
    }
}

impl ChatUi<'_> {
    /// Updates the pending approvals, and shows a new one.
    pub(super) fn update_approvals(&mut self) {
        let columns = self.columns();
        let Some(view) = &self.conversation.view else { return };
        let was_open = self.approvals.dialogue.is_open();
        let lines = self.approvals.dialogue.look(&view.tree, columns);
        self.approvals.attention.look(&view.tree);
        if !was_open {
            // A message that is being typed is finished first.
            self.approvals.is_answering = self.line.is_empty();
        }
        if let Some(lines) = lines {
            self.print_block(lines);
        }
    }

    /// Switches between the prompt and the message.
    pub(super) fn toggle_approval(&mut self) {
        self.approvals.is_answering = self.approvals.dialogue.is_open() && !self.approvals.is_answering;
    }

    /// Handles a key for the prompt.
    pub(super) async fn answer_key(&mut self, key: Key) -> Option<Exit> {
        let Some(view) = &self.conversation.view else { return None };
        match self.approvals.dialogue.key(key, &view.tree) {
            PromptAction::Nothing => {}
            PromptAction::Interrupt => return self.interrupt().await,
            PromptAction::Leave => self.toggle_approval(),
            PromptAction::Say(text) => self.note(&text),
            PromptAction::Show(lines) => self.print_block(lines),
            PromptAction::Answers(given) => {
                for given in given {
                    if let Err(error) = self.conversation.answer(&given).await {
                        self.approvals.dialogue.failed(&given);
                        self.note(&store_advice::describe_run(&error));
                    }
                }
                self.update_approvals();
            }
        }
        None
    }
}
