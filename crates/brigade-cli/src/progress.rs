//! Progress display of a running tree.

mod canvas;
mod json_stream;
mod lines;
mod live_tree;

use brigade::{ApprovalPolicy, RunEvent};
use brigade_core::{Event, Record};
use unicode_segmentation::UnicodeSegmentation;

use crate::approval_prompt::{InputMode, PromptInput};
use crate::args::{Global, OutputFormat};
use crate::error::CliError;
use crate::follow::RunView;
use crate::output;
use crate::render::{self, fit, truncate_at_word};
use crate::sanitize;
use crate::settings::Environment;
use crate::summary::store_flag;
use crate::terminal::{self, Colour};

pub(crate) use canvas::Footer;
pub(crate) use json_stream::{event_json, message};
pub(crate) use live_tree::LiveTree;

/// Width of the reason for a denial.
const MAX_REASON_COLUMNS: usize = 200;

/// Style of the progress display.
pub(crate) enum Progress {
    /// Live tree that is redrawn in place, for a terminal.
    Tree(live_tree::LiveTree),
    /// One line per important event, for a log.
    Lines(lines::Lines),
    /// All events as JSON on standard output.
    JsonStream(json_stream::JsonStream),
}

impl Progress {
    /// Progress display for the output format and the terminal.
    pub(crate) fn new(global: &Global, environment: &Environment) -> Progress {
        if global.output_format == OutputFormat::StreamJson {
            return Progress::JsonStream(json_stream::JsonStream::default());
        }
        let detail = match (global.verbose, global.output_format) {
            (true, _) => lines::Detail::Calls,
            (false, OutputFormat::Text) => lines::Detail::Denials,
            (false, OutputFormat::Json | OutputFormat::StreamJson) => lines::Detail::Agents,
        };
        if terminal::can_redraw(environment) && !global.verbose {
            return Progress::Tree(live_tree::LiveTree::new(terminal::stderr_colour(environment)));
        }
        Progress::Lines(lines::Lines::new(detail, store_flag(global)))
    }

    /// Replays the records that an earlier process wrote for this tree.
    pub(crate) fn replay(&mut self, records: &[Record], view: &RunView) -> Result<(), CliError> {
        match self {
            Progress::JsonStream(stream) => stream.replay(records, view),
            Progress::Tree(_) | Progress::Lines(_) => Ok(()),
        }
    }

    /// Shows one event.
    pub(crate) fn on_event(&mut self, run_event: &RunEvent, view: &RunView) -> Result<(), CliError> {
        match self {
            Progress::Tree(tree) => {
                let text = message_line(run_event, view).or_else(|| answer_line(run_event, view));
                if let Some(text) = text.or_else(|| denial_line(run_event, view)) {
                    tree.say(view, &text);
                } else if let Some(text) = thought_line(run_event, view) {
                    let text = fit(&text, terminal::size().0.saturating_sub(1));
                    tree.print(view, &tree.colour().paint("2", &text));
                }
                Ok(())
            }
            Progress::Lines(lines) => {
                lines.on_event(run_event, view);
                Ok(())
            }
            Progress::JsonStream(stream) => stream.on_event(run_event, view),
        }
    }

    /// Prints a message to the user beside the display.
    pub(crate) fn say(&mut self, view: &RunView, text: &str) {
        match self {
            Progress::Tree(tree) => tree.say(view, text),
            Progress::Lines(_) | Progress::JsonStream(_) => output::note(text),
        }
    }

    /// Prints lines beside the display. They are sanitized and may contain styles.
    pub(crate) fn print(&mut self, view: &RunView, lines: &[String]) {
        match self {
            Progress::Tree(tree) => tree.print(view, &lines.join("\n")),
            Progress::Lines(_) | Progress::JsonStream(_) => output::note(&lines.join("\n")),
        }
    }

    /// Prints a message that stays below the tree until the end.
    pub(crate) fn announce(&mut self, view: &RunView, text: &str) {
        match self {
            Progress::Tree(_) => {
                let text = render::wrap_text(&sanitize::line(text), terminal::size().0.saturating_sub(1));
                let lines = text.lines().map(str::to_owned).collect();
                self.set_footer(Some(Footer { lines, cursor: None }));
                self.tick(view);
            }
            Progress::Lines(_) | Progress::JsonStream(_) => output::note(text),
        }
    }

    /// Sets or removes the lines below the tree. They appear at the next `tick`; without a tree they are not shown.
    pub(crate) fn set_footer(&mut self, footer: Option<Footer>) {
        if let Progress::Tree(tree) = self {
            tree.set_footer(footer);
        }
    }

    /// Reader of the user's answers that fits this display.
    pub(crate) fn prompt_input(&self, settings: &brigade::Settings) -> PromptInput {
        let can_type = settings.approval_policy == ApprovalPolicy::AskUser && terminal::can_prompt();
        let (input_mode, colour) = match self {
            Progress::Tree(tree) if can_type => (InputMode::Keys, tree.colour()),
            Progress::Lines(_) | Progress::JsonStream(_) if can_type => (InputMode::Lines, Colour::Off),
            Progress::Tree(_) | Progress::Lines(_) | Progress::JsonStream(_) => {
                (InputMode::Unavailable, Colour::Off)
            }
        };
        PromptInput::new(input_mode, colour, settings.workspace.clone())
    }

    /// Redraws what depends on the time.
    pub(crate) fn tick(&mut self, view: &RunView) {
        if let Progress::Tree(tree) = self {
            tree.draw(view);
        }
    }

    /// Writes buffered output.
    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        match self {
            Progress::JsonStream(stream) => stream.flush(),
            Progress::Tree(_) | Progress::Lines(_) => Ok(()),
        }
    }

    /// Ends the display: the run has ended or was detached, or the process is about to be suspended.
    pub(crate) fn end(&mut self) {
        if let Progress::Tree(tree) = self {
            tree.clear();
        }
    }
}

/// Message of an agent as shown to the user. The sender comes from the log, never from the text.
pub(crate) fn message_line(run_event: &RunEvent, view: &RunView) -> Option<String> {
    let RunEvent::Record(record) = run_event else { return None };
    let Event::Said { text, .. } = &record.event else { return None };
    Some(format!("[{}]: {}", view.label(&record.session), indented(text.as_str())))
}

/// Last sentence that the root agent wrote before its tool calls.
pub(crate) fn thought_line(run_event: &RunEvent, view: &RunView) -> Option<String> {
    let RunEvent::Record(record) = run_event else { return None };
    let Event::Replied { reply, .. } = &record.event else { return None };
    if record.session != view.root || reply.calls.is_empty() {
        return None;
    }
    let sentence = last_sentence(reply.text.as_str())?;
    Some(format!("{}: {sentence}", view.label(&record.session)))
}

/// Last sentence of a text, on one line and without surrounding Markdown.
fn last_sentence(text: &str) -> Option<String> {
    let is_fence = |line: &str| line.starts_with("```") || line.starts_with("~~~");
    let lines = text.lines().map(str::trim).filter(|line| !is_fence(line));
    let mut lines = lines.map(|line| line.trim_start_matches(['#', '>', '-', '*', ' ']));
    let last = lines.rfind(|line| line.contains(char::is_alphanumeric))?;
    let is_sentence = |sentence: &&str| sentence.contains(char::is_alphanumeric);
    let sentence = last.unicode_sentences().filter(is_sentence).last().unwrap_or(last);
    Some(sanitize::line(&sentence.trim().replace("**", "")))
}

/// Answer to an approval, with its author.
pub(crate) fn answer_line(run_event: &RunEvent, view: &RunView) -> Option<String> {
    let RunEvent::Record(record) = run_event else { return None };
    let (answer, by, host) = match &record.event {
        Event::Answered { answer, by, .. } => (answer, by, String::new()),
        Event::HostAnswered { host, answer, by, .. } => (answer, by, format!("connection to {host} ")),
        _ => return None,
    };
    Some(format!("{}: {host}{}", view.label(&record.session), render::answer_label(answer, by)))
}

/// Call that a rule or the mode denied, with the reason. A call that the user denied has an answer instead.
pub(crate) fn denial_line(run_event: &RunEvent, view: &RunView) -> Option<String> {
    let RunEvent::Record(record) = run_event else { return None };
    let Event::ToolEnded { call, output, .. } = &record.event else { return None };
    if !output.is_error() || view.has_started(&record.session, *call) {
        return None;
    }
    let what = view.call_label(&record.session, *call);
    let tool = what.split(' ').next().unwrap_or_default();
    let reason = output.text.as_str().strip_prefix(&format!("`{tool}` is not allowed: "))?;
    // The sentences after the reason are advice to the model.
    let reason = truncate_at_word(&sanitize::line(first_sentence(reason)), MAX_REASON_COLUMNS);
    Some(format!("{}: denied {what}: {reason}", view.label(&record.session)))
}

/// First sentence of a text, without its period. A period inside backticks is part of a rule.
fn first_sentence(text: &str) -> &str {
    let is_outside = |end: usize| text[..end].matches('`').count().is_multiple_of(2);
    let end = text.match_indices(". ").map(|(end, _)| end).find(|end| is_outside(*end));
    text[..end.unwrap_or(text.len())].trim_end_matches('.')
}

/// Indents the following lines of a message, so that none looks like a message from another sender.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use brigade_core::message::{Reply, ToolCall};
    use brigade_core::{CallId, SessionId, Spent};

    use super::*;

    #[test]
    fn last_sentence_is_plain_text() {
        for (text, sentence) in [
            ("I read it. Now I run the tests.", "Now I run the tests."),
            ("First:\n\n- one\n- **two** is next\n", "two is next"),
            ("See e.g. the notes in v1.2 first", "See e.g. the notes in v1.2 first"),
            ("# Plan\n```\n", "Plan"),
            ("Then I run:\n```sh\n", "Then I run:"),
            ("So:\n~~~rust\n~~~", "So:"),
            ("Done?  Yes\u{1b}[2J!", "Yes\\u{1b}[2J!"),
            ("最初に読む。次に書く。", "次に書く。"),
        ] {
            assert_eq!(last_sentence(text).as_deref(), Some(sentence));
        }
        assert_eq!(last_sentence(" \n---\n"), None);
    }

    #[test]
    fn first_sentence_ends_outside_backticks() {
        assert_eq!(first_sentence("it is denied. Continue."), "it is denied");
        assert_eq!(
            first_sentence("the rule `shell(cat . x)` forbids it."),
            "the rule `shell(cat . x)` forbids it"
        );
    }

    #[test]
    fn only_words_of_the_top_agent_before_calls_are_a_thought() {
        let root = SessionId::root(1);
        let child = root.child(CallId { turn: 1, index: 0 });
        let view = RunView::new(root.clone());
        let thought = |session: &SessionId, calls: usize| {
            let call = ToolCall { name: "echo".to_owned(), arguments: "{}".into(), provider_id: None };
            let reply = Reply { text: "Now I look.".into(), calls: vec![call; calls], ..Reply::default() };
            let event = Event::Replied { turn: 1, reply, spent: Spent::default(), waited_ms: 0 };
            let record = Record {
                session: session.clone(),
                seq: 0,
                pos: brigade_core::Cursor::new(1),
                at: 0,
                v: 1,
                event,
            };
            thought_line(&RunEvent::Record(record.into()), &view)
        };
        assert_eq!(thought(&root, 1).as_deref(), Some(": Now I look."));
        assert_eq!(thought(&root, 0), None, "that is the result");
        assert_eq!(thought(&child, 1), None);
    }
}
