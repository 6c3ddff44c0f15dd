//! Signals for a user who looks elsewhere: the terminal bell, the terminal title and the program in `notify`.

use std::collections::HashSet;
use std::io::IsTerminal;

use brigade::{RunError, RunResult, Runtime};
use brigade_core::view::{PendingApproval, Tree};
use brigade_core::{Outcome, Status};

use crate::follow::RunView;
use crate::notify::Notifier;
use crate::output;
use crate::render::{approval_view, fit};
use crate::sanitize;
use crate::settings::Settings;
use crate::store_advice;
use crate::terminal;

const BELL: &str = "\u{7}";
/// Saves and restores the window title. A terminal that does not support this keeps [`IDLE_TITLE`].
const PUSH_TITLE: &str = "\u{1b}[22;2t";
const POP_TITLE: &str = "\u{1b}[23;2t";
const IDLE_TITLE: &str = "brigade";
/// Columns of a title.
const MAX_TITLE_COLUMNS: usize = 80;

/// Notifies the user. The default does nothing.
#[derive(Default)]
pub(crate) struct Attention {
    /// Whether standard error is a terminal with a bell.
    has_bell: bool,
    /// Whether standard error is a terminal with a title.
    has_title: bool,
    notifier: Option<Notifier>,
    /// Approvals that the user was notified of: the name, and the time of the request.
    announced: HashSet<(String, u64)>,
    /// Whether the title shows that an approval is pending.
    is_titled: bool,
}

impl Attention {
    /// Signals that the settings and the terminal support.
    pub(crate) fn new(settings: &Settings, runtime: &Runtime) -> Attention {
        let shell = runtime.settings().shell.as_ref();
        let term = settings.environment.term.as_deref();
        Attention {
            has_bell: std::io::stderr().is_terminal(),
            // The Linux console has no title.
            has_title: terminal::can_redraw(&settings.environment) && term != Some("linux"),
            notifier: settings
                .notify
                .as_deref()
                .zip(shell)
                .map(|(command, shell)| Notifier::new(command, shell)),
            announced: HashSet::new(),
            is_titled: false,
        }
    }

    /// Checks the pending approvals of the run. Notifies the user of new ones, and restores the title when none is
    /// left.
    pub(crate) fn look(&mut self, tree: &Tree) {
        self.alert(tree);
        if tree.pending_approvals().next().is_none() {
            self.restore_title();
        }
    }

    /// Notifies the user of approvals that were requested since the last check. If there are several, the first is
    /// named.
    pub(crate) fn alert(&mut self, tree: &Tree) {
        let mut new =
            tree.pending_approvals().filter(|open| self.announced.insert((open.name(), open.asked_at)));
        let Some(first) = new.next() else { return };
        // The others count as announced, too.
        new.for_each(drop);
        self.announce(first, tree, tree.pending_approvals().count());
    }

    fn announce(&mut self, open: &PendingApproval, tree: &Tree, count: usize) {
        let headline = approval_view::headline(open, tree);
        if self.has_bell {
            output::write_stderr(BELL);
        }
        if self.has_title {
            let push = if self.is_titled { "" } else { PUSH_TITLE };
            output::write_stderr(&format!("{push}{}", title(&format!("? {headline}"))));
            self.is_titled = true;
        }
        if let Some(notifier) = &mut self.notifier {
            notifier.start(&[
                ("EVENT", "question".to_owned()),
                ("TITLE", "brigade: approval required".to_owned()),
                ("MESSAGE", headline),
                ("AGENT", approval_view::lineage(open, tree)),
                ("SESSION", open.session.root_id().to_string()),
                ("QUESTION", open.name()),
                ("COUNT", count.to_string()),
            ]);
        }
    }

    /// Notifies the user of the end of a run, or of a round of a chat.
    pub(crate) fn ended(&mut self, view: &RunView, result: &Result<RunResult, RunError>) {
        self.restore_title();
        let Some(notifier) = &mut self.notifier else { return };
        let (status, message) = match result {
            Ok(result) => (result.outcome.status.as_str(), outcome_message(&result.outcome)),
            Err(error) => ("failed", store_advice::describe_run(error)),
        };
        let node = view.tree.node(&view.root);
        notifier.start(&[
            ("EVENT", "run_ended".to_owned()),
            ("TITLE", format!("brigade: run {status}")),
            ("MESSAGE", message),
            ("AGENT", node.map_or_else(String::new, |node| node.label.clone())),
            ("SESSION", view.root.to_string()),
            ("STATUS", status.to_owned()),
        ]);
    }

    /// Waits for running programs, and reports a problem.
    pub(crate) async fn finish(&mut self) {
        self.restore_title();
        if let Some(notifier) = &mut self.notifier
            && let Some(problem) = notifier.finish().await
        {
            output::note(&format!("warning: the `notify` program failed: {problem}"));
        }
    }

    /// Restores the previous window title.
    pub(crate) fn restore_title(&mut self) {
        if std::mem::take(&mut self.is_titled) {
            output::write_stderr(&format!("{}{POP_TITLE}", title(IDLE_TITLE)));
        }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        self.restore_title();
    }
}

/// Cause of a failure, or the first line of the result.
fn outcome_message(outcome: &Outcome) -> String {
    match &outcome.status {
        Status::Failed { cause } | Status::Lost { cause } => cause.clone(),
        Status::Done | Status::Incomplete { .. } | Status::Cancelled { .. } | Status::Detached => {
            outcome.text.as_str().trim().lines().next().unwrap_or_default().to_owned()
        }
    }
}

/// Escape sequence that sets the window title.
fn title(text: &str) -> String {
    format!("\u{1b}]2;{}\u{1b}\\", fit(&sanitize::line(text), MAX_TITLE_COLUMNS))
}
