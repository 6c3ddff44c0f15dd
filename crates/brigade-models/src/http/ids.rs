//! Ids and arguments of tool calls in a form that every provider accepts.

use std::borrow::Cow;
use std::collections::HashSet;

use brigade_core::Reply;
use serde_json::Value;
use serde_json::value::RawValue;

const MAX_ID_BYTES: usize = 64;

/// Returns the call ids of the reply at `position` in the conversation. A provider's id is kept if it is
/// unique and has only plain characters. Other ids are generated deterministically.
pub(in super::super) fn call_ids(position: usize, reply: &Reply) -> Vec<Cow<'_, str>> {
    let mut taken = HashSet::new();
    let calls = reply.calls.iter().enumerate();
    calls
        .map(|(index, call)| match call.provider_id.as_deref() {
            Some(id) if is_plain(id) && taken.insert(id) => Cow::Borrowed(id),
            Some(_) | None => Cow::Owned(format!("call_{position}_{index}")),
        })
        .collect()
}

fn is_plain(id: &str) -> bool {
    let letters = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    letters && !id.is_empty() && id.len() <= MAX_ID_BYTES
}

/// Returns the arguments of a call as a JSON object. Servers reject a conversation with anything else, so
/// invalid arguments are wrapped in an object.
pub(in super::super) fn arguments_object(text: &str) -> Cow<'_, str> {
    let whole = serde_json::from_str::<&RawValue>(text).is_ok();
    if whole && text.trim_start().starts_with('{') {
        return Cow::Borrowed(text);
    }
    let key = "unreadable_arguments".to_owned();
    Cow::Owned(Value::Object([(key, Value::String(text.to_owned()))].into_iter().collect()).to_string())
}
