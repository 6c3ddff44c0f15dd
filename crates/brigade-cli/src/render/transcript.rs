//! What was said and done in one session, for people.

use std::fmt::Write;

use brigade_core::delegation::Status;
use brigade_core::event::{Answer, Speaker};
use brigade_core::{CallId, Event, Limit, Record, Reply, Spent};

use crate::safe;
use crate::units;

/// How many lines of an output are shown.
const FOLDED_LINES: usize = 12;

/// How much of long texts is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// Their first lines.
    Folded,
    /// All of them.
    Whole,
}

/// The records of a session as text.
pub(crate) fn transcript(records: &[Record], outputs: Outputs) -> String {
    let mut text = String::new();
    let lines = match outputs {
        Outputs::Folded => FOLDED_LINES,
        Outputs::Whole => usize::MAX,
    };
    for record in records {
        // Writing to a String does not fail.
        let _ = entry(&mut text, record, lines);
    }
    text
}

fn entry(text: &mut String, record: &Record, lines: usize) -> std::fmt::Result {
    match &record.event {
        Event::Started { delegation, grant, parent, depth, .. } => {
            let who = delegation.role.as_deref().or(delegation.agent.as_deref()).unwrap_or("lead");
            writeln!(text, "{} {}", heading(record.seq), safe::line(who))?;
            if let Some(parent) = parent {
                writeln!(text, "  delegated by {parent}, depth {depth}, through {}", delegation.face)?;
            }
            writeln!(text, "  may use: {} turns{}", grant.turns, budget(grant.budget))?;
            warnings(text, &delegation.warnings)?;
            if !delegation.task.is_empty() {
                block(text, "task", delegation.task.as_str(), usize::MAX)?;
            }
            if let Some(context) = &delegation.context {
                block(text, "context", context.as_str(), lines)?;
            }
            Ok(())
        }
        Event::Resumed { epoch, downtime } => {
            writeln!(
                text,
                "{} resumed after {} (runner {epoch})",
                heading(record.seq),
                units::elapsed(*downtime)
            )
        }
        Event::Heard { from, text: words } => {
            let who = match from {
                Speaker::Person => "the person".to_owned(),
                Speaker::Parent => "the parent".to_owned(),
                Speaker::Child(child) => child.to_string(),
                Speaker::Runtime => "the runtime".to_owned(),
            };
            block(text, &format!("{} heard from {who}", heading(record.seq)), words.as_str(), lines)
        }
        Event::Called { .. } | Event::ToolStarted { .. } => Ok(()),
        Event::Replied { turn, reply, spent } => replied(text, record.seq, *turn, reply, spent, lines),
        Event::CallFailed { turn, attempt, cause, .. } => {
            let cause = safe::line(&cause.to_string());
            writeln!(text, "{} turn {turn}, attempt {attempt} failed: {cause}", heading(record.seq))
        }
        Event::ToolEnded { call, output } => {
            let how = if output.is_error() { "failed" } else { "gave" };
            block(text, &format!("{} call {call} {how}", heading(record.seq)), output.text.as_str(), lines)
        }
        Event::Delegated { call, child, delegation, grant, .. } => {
            let role = delegation.role.as_deref().or(delegation.agent.as_deref()).unwrap_or_default();
            writeln!(
                text,
                "{} call {call} delegated to {} as {child}, lent {} turns{}",
                heading(record.seq),
                safe::line(role),
                grant.turns,
                budget(grant.budget)
            )
        }
        Event::Returned { child, outcome, spent } => {
            let status = outcome.status.word();
            writeln!(text, "{} {child} returned {status}, used {}", heading(record.seq), cost(spent))
        }
        Event::Asked { call, what, .. } => {
            block(text, &format!("{} call {call} asks", heading(record.seq)), what.as_str(), lines)
        }
        Event::Answered { call, answer, by } => {
            let answer = match answer {
                Answer::Once => "yes".to_owned(),
                Answer::Always(rule) => format!("always: {}", safe::line(rule)),
                Answer::Deny { word } => format!("no {}", safe::line(word.as_deref().unwrap_or_default())),
            };
            writeln!(text, "{} call {call} answered by {}: {answer}", heading(record.seq), safe::line(by))
        }
        Event::Said { text: words, .. } => {
            block(text, &format!("{} said to the person", heading(record.seq)), words.as_str(), lines)
        }
        Event::LimitReached { which } => {
            writeln!(text, "{} the limit of {which} is reached", heading(record.seq))
        }
        Event::Compacted { summary, keep_from } => block(
            text,
            &format!("{} turns before {keep_from} became a summary", heading(record.seq)),
            summary.as_str(),
            lines,
        ),
        Event::CancelAsked { by } => {
            writeln!(text, "{} asked to stop by {}", heading(record.seq), safe::line(by))
        }
        Event::Ended { outcome, spent } => {
            let status = match &outcome.status {
                Status::Incomplete { limit } => format!("incomplete: {limit}"),
                Status::Failed { cause } => format!("failed: {}", safe::line(cause)),
                Status::Lost { cause } => format!("lost: {}", safe::line(cause)),
                Status::Cancelled { by } => format!("cancelled by {}", safe::line(by)),
                status @ (Status::Done | Status::Detached) => status.word().to_owned(),
            };
            writeln!(text, "{} ended: {status}; used {} with all below", heading(record.seq), cost(spent))?;
            warnings(text, &outcome.warnings)?;
            if outcome.text.is_empty() {
                Ok(())
            } else {
                block(text, "result", outcome.text.as_str(), usize::MAX)
            }
        }
    }
}

fn replied(
    text: &mut String,
    seq: u64,
    turn: u32,
    reply: &Reply,
    spent: &Spent,
    lines: usize,
) -> std::fmt::Result {
    writeln!(text, "{} turn {turn}, {}", heading(seq), cost(spent))?;
    if !reply.text.is_empty() {
        block(text, "says", reply.text.as_str(), lines)?;
    }
    for (index, call) in (0..).zip(&reply.calls) {
        let id = CallId { turn, index };
        writeln!(
            text,
            "  call {id}: {} {}",
            safe::line(&call.name),
            folded_line(call.arguments.as_str(), lines)
        )?;
    }
    Ok(())
}

fn folded_line(arguments: &str, lines: usize) -> String {
    let line = safe::line(arguments);
    let room = if lines == usize::MAX { usize::MAX } else { 400 };
    let count = line.chars().count();
    if count <= room {
        return line;
    }
    let kept: String = line.chars().take(room).collect();
    format!("{kept}… ({} characters more)", count - room)
}

fn warnings(text: &mut String, warnings: &[String]) -> std::fmt::Result {
    warnings.iter().try_for_each(|warning| writeln!(text, "  warning: {}", safe::line(warning)))
}

fn heading(seq: u64) -> String {
    format!("#{seq}")
}

fn budget(budget: brigade_core::Budget) -> String {
    let mut text = String::new();
    if let Limit::AtMost(tokens) = budget.tokens {
        text.push_str(&format!(", {tokens} tokens"));
    }
    if let Limit::AtMost(usd) = budget.usd {
        text.push_str(&format!(", ${}", units::exact_dollars(usd)));
    }
    if let Limit::AtMost(agents) = budget.agents {
        text.push_str(&format!(", {agents} agents"));
    }
    text
}

fn cost(spent: &Spent) -> String {
    let usage = spent.usage;
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let doubt = match spent.in_doubt.tokens {
        0 => String::new(),
        tokens => format!(", {tokens} in doubt"),
    };
    format!("{input} tokens in, {} out{doubt}, ${}", usage.output, units::exact_dollars(spent.usd))
}

/// A heading and indented lines below it, folded.
fn block(text: &mut String, heading: &str, body: &str, lines: usize) -> std::fmt::Result {
    let indent = if heading.starts_with('#') { "  " } else { "    " };
    writeln!(text, "{}{heading}:", &indent[2..])?;
    let all: Vec<&str> = body.lines().collect();
    for line in all.iter().take(lines) {
        writeln!(text, "{indent}{}", safe::lines(line))?;
    }
    if all.len() > lines {
        writeln!(text, "{indent}… and {} more (-v shows all)", units::lines(all.len() - lines))?;
    }
    Ok(())
}
