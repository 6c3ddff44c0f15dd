//! Compares JSON from an earlier version with its round trip through this version.

use serde_json::Value;

/// Returns the first path at which `now` lacks or changes something of `then`. Keys that only `now` has are
/// additions.
pub(crate) fn lost(then: &Value, now: &Value, place: &str) -> Option<String> {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            then.iter().find_map(|(key, value)| match now.get(key) {
                Some(now) => lost(value, now, &format!("{place}.{key}")),
                None => Some(format!("{place}.{key} is missing")),
            })
        }
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => then
            .iter()
            .zip(now)
            .enumerate()
            .find_map(|(index, (then, now))| lost(then, now, &format!("{place}[{index}]"))),
        _ if then == now => None,
        _ => Some(format!("{place} was {then} and is {now}")),
    }
}
