//! Small streams assembled from events.

/// A stream with these events and its terminal event.
pub(super) fn openai(events: &[&str]) -> String {
    format!("{}data: [DONE]\n\n", openai_without_end(events))
}

pub(super) fn openai_without_end(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// One event with a delta.
pub(super) fn delta(delta: &str, finish: &str) -> String {
    let finish = if finish.is_empty() { "null".to_owned() } else { format!("\"{finish}\"") };
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#)
}
