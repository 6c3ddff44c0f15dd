//! Permissions that an external agent was denied during a prompt.

use brigade::core::text::truncate_bytes;

/// Maximum number of denied calls that are listed.
const MAX_NAMED: usize = 3;
/// Maximum length of a reason.
const MAX_REASON_BYTES: usize = 600;

/// Denied calls. The first few are listed with their reasons, the others are counted.
#[derive(Default)]
pub(super) struct Denied {
    named: Vec<String>,
    more: usize,
}

impl Denied {
    /// Adds a denied call and the reason. The protocol has no field for the reason, so the caller has to read
    /// it.
    pub(super) fn add(&mut self, call: &str, why: &str) {
        if self.named.len() >= MAX_NAMED {
            self.more += 1;
            return;
        }
        let call = if call.is_empty() { "a call without a description" } else { call };
        let why: String = truncate_bytes(why, MAX_REASON_BYTES)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let named = format!("(denied: {call}. Reason: {})", why.trim());
        if !self.named.contains(&named) {
            self.named.push(named);
        }
    }

    /// Returns the note for the caller: each call, why it was denied and how to allow it. `None` if nothing
    /// was denied.
    pub(super) fn note(&self) -> Option<String> {
        let mut note = self.named.join("\n");
        if self.more > 0 {
            let calls = if self.more == 1 { "call was" } else { "calls were" };
            note.push_str(&format!("\n({} more {calls} denied)", self.more));
        }
        (!note.is_empty()).then_some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_denied_calls_are_named_and_the_rest_counted() {
        let mut denied = Denied::default();
        assert_eq!(denied.note(), None);
        denied.add("make it", "not allowed:\nno rule");
        denied.add("make it", "not allowed:\nno rule");
        denied.add("", "no");
        assert_eq!(
            denied.note().as_deref(),
            Some(
                "(denied: make it. Reason: not allowed: no rule)\n(denied: a call without a description. Reason: no)"
            )
        );
        for number in 0..10 {
            denied.add(&number.to_string(), &"x".repeat(5000));
        }
        let note = denied.note().unwrap();
        assert!(note.ends_with("\n(9 more calls were denied)") && note.len() < 2000, "{note}");
    }
}
