//! Redaction of events: before they are recorded, and when they are shown.

use std::borrow::Cow;

use brigade_core::delegation::{Outcome, Status};
use brigade_core::event::{CallFault, Event, Speaker};
use brigade_core::text::Text;

use super::Redactor;

impl Redactor {
    /// Redacts the secrets in an event that is about to be recorded: in results, in texts of models, and in errors.
    ///
    /// Arguments of calls keep keys of known shapes, because an interrupted edit is planned again from them. A configured
    /// secret in them is redacted: such a call is refused and never runs. Messages of the user are recorded as they are.
    pub fn redact_event(&self, event: &mut Event) {
        match event {
            Event::ToolEnded { output, .. } => self.redact_text(&mut output.text),
            Event::Replied { reply, .. } => {
                self.redact_text(&mut reply.text);
                let arguments = reply.calls.iter_mut().map(|call| &mut call.arguments);
                for json in arguments.chain(&mut reply.opaque) {
                    if let Some(redacted) = self.redact_arguments(json.as_str()) {
                        *json = redacted.into();
                    }
                }
            }
            Event::CallFailed { cause, partial, .. } => {
                self.redact_fault(cause);
                partial.iter_mut().for_each(|text| self.redact_text(text));
            }
            Event::Heard { from: Speaker::Parent | Speaker::Child(_) | Speaker::Runtime, text }
            | Event::Said { text, .. } => self.redact_text(text),
            Event::Compacted { summary, .. } => self.redact_text(summary),
            Event::Returned { outcome, .. } | Event::Ended { outcome, .. } => self.redact_outcome(outcome),
            Event::Heard { from: Speaker::Person, .. }
            | Event::Started { .. }
            | Event::Delegated { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::HostAsked { .. }
            | Event::HostAnswered { .. }
            | Event::Resumed { .. }
            | Event::Called { .. }
            | Event::ToolStarted { .. }
            | Event::LimitReached { .. }
            | Event::CancelAsked { .. } => {}
        }
    }

    /// Returns an event as it is shown to users: without secrets in any text, arguments included.
    pub fn shown<'e>(&self, event: &'e Event) -> Cow<'e, Event> {
        let mut shown = event.clone();
        let mut is_changed = false;
        shown.texts_mut(&mut |text| {
            if let Cow::Owned(redacted) = self.redact_json(text.as_str()) {
                (*text, is_changed) = (redacted.into(), true);
            }
        });
        if is_changed { Cow::Owned(shown) } else { Cow::Borrowed(event) }
    }

    /// Redacts the secrets in the cause of a failed model call.
    pub fn redact_fault(&self, cause: &mut CallFault) {
        match cause {
            CallFault::Transient { message }
            | CallFault::Fatal { message }
            | CallFault::Overflow { message }
            | CallFault::GivenUp { message, .. }
            | CallFault::Cut { message } => self.redact_string(message),
            CallFault::Interrupted | CallFault::Stopped | CallFault::Unaffordable => {}
        }
    }

    fn redact_outcome(&self, outcome: &mut Outcome) {
        self.redact_text(&mut outcome.text);
        outcome.warnings.iter_mut().for_each(|warning| self.redact_string(warning));
        match &mut outcome.status {
            Status::Failed { cause } | Status::Lost { cause } => self.redact_string(cause),
            Status::Done | Status::Incomplete { .. } | Status::Cancelled { .. } | Status::Detached => {}
        }
    }

    fn redact_text(&self, text: &mut Text) {
        if let Cow::Owned(redacted) = self.redact(text.as_str()) {
            *text = redacted.into();
        }
    }

    fn redact_string(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.redact(text) {
            *text = redacted;
        }
    }
}
