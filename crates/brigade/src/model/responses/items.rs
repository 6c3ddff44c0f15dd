//! The items of a reply, put together from events that servers send and leave out as they like.

use std::mem::discriminant;

use serde_json::{Map, Value};

/// What of an item of reasoning goes back.
const REASONING: [&str; 5] = ["type", "id", "summary", "content", "encrypted_content"];

/// The items so far, in order.
#[derive(Debug, Default)]
pub(super) struct Items(Vec<Item>);

#[derive(Debug)]
struct Item {
    index: Option<u64>,
    id: Option<String>,
    what: What,
}

/// One item.
#[derive(Debug)]
pub(super) enum What {
    /// Words.
    Message { text: String, phase: Option<String>, refused: bool },
    /// A call. What was said of its arguments when it began counts only where nothing else was said.
    Call { id: Option<String>, name: String, early: String, arguments: String },
    /// Reasoning that goes back as it is.
    Reasoning(Value),
    /// Whatever is added to the API, and reasoning that nobody could read again.
    Unknown,
}

impl Items {
    /// An item begins.
    pub(super) fn begin(&mut self, event: &Value) {
        let item = event.get("item").map_or(What::Unknown, What::of);
        self.push(event, item.begun());
    }

    /// More text of an item.
    pub(super) fn text(&mut self, event: &Value, more: &str) {
        let new = What::Message { text: String::new(), phase: None, refused: false };
        if let Some(What::Message { text, .. }) = self.place(event, new) {
            text.push_str(more);
        }
    }

    /// More arguments of a call.
    pub(super) fn arguments(&mut self, event: &Value, more: &str) {
        if let Some(What::Call { arguments, .. }) = self.place(event, What::call(event).begun()) {
            arguments.push_str(more);
        }
    }

    /// All arguments of a call.
    pub(super) fn whole_arguments(&mut self, event: &Value) {
        let call = What::call(event);
        if let Some(known) = self.place(event, What::call(&Value::Null)) {
            known.complete(call);
        }
    }

    /// An item is whole. Gives the text of it that was not said yet.
    pub(super) fn end(&mut self, event: &Value) -> String {
        let Some(whole) = event.get("item").map(What::of) else { return String::new() };
        let known = self.place(event, whole.hollow());
        known.map(|known| known.complete(whole)).unwrap_or_default()
    }

    /// The terminal event says all items again, and its word counts; but some servers leave some or all of them out.
    /// Gives the text that was not said yet.
    pub(super) fn settle(&mut self, output: &[Value]) -> String {
        let whole: Vec<What> = output.iter().map(What::of).collect();
        let mut said = self.0.iter().filter_map(|item| item.what.text());
        let texts = whole.iter().filter_map(What::text);
        let rest = texts.filter_map(|text| text.strip_prefix(said.next().unwrap_or_default())).collect();
        if whole.iter().any(What::is_call) || (!whole.is_empty() && !self.has_calls()) {
            self.0 = whole.into_iter().map(|what| Item { index: None, id: None, what }).collect();
        }
        rest
    }

    pub(super) fn has_calls(&self) -> bool {
        self.0.iter().any(|item| item.what.is_call())
    }

    /// Whether a message is a refusal.
    pub(super) fn is_refused(&self) -> bool {
        self.0.iter().any(|item| matches!(item.what, What::Message { refused: true, .. }))
    }

    /// Gives the items out.
    pub(super) fn give(self) -> impl Iterator<Item = What> {
        self.0.into_iter().map(|item| item.what)
    }

    /// The item that an event belongs to: there are servers without indices, without ids, and with one index for all.
    fn find(&self, event: &Value) -> Option<usize> {
        match (index(event), id(event)) {
            (Some(index), _) => self.0.iter().rposition(|item| item.index == Some(index)),
            (None, Some(id)) => self.0.iter().rposition(|item| item.id.as_ref() == Some(&id)),
            (None, None) => self.0.len().checked_sub(1),
        }
    }

    /// The item of this kind that an event belongs to; a new one where its beginning was left out.
    fn place(&mut self, event: &Value, new: What) -> Option<&mut What> {
        let known = self.find(event).filter(|at| {
            let known = self.0.get(*at);
            known.is_some_and(|known| discriminant(&known.what) == discriminant(&new))
        });
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.push(event, new);
        }
        self.0.get_mut(at).map(|item| &mut item.what)
    }

    fn push(&mut self, event: &Value, what: What) {
        self.0.push(Item { index: index(event), id: id(event), what });
    }
}

impl What {
    fn of(item: &Value) -> What {
        match word(item, "type").as_deref() {
            Some("message") => What::message(item),
            Some("function_call") => What::call(item),
            Some("reasoning") => What::reasoning(item),
            Some(_) | None => What::Unknown,
        }
    }

    fn message(item: &Value) -> What {
        let parts = item.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let words = |part| word(part, "text").or_else(|| word(part, "refusal"));
        let refused = parts.iter().any(|part| part.get("refusal").is_some_and(Value::is_string));
        What::Message { text: parts.iter().filter_map(words).collect(), phase: word(item, "phase"), refused }
    }

    fn call(item: &Value) -> What {
        let arguments = match item.get("arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            // Some servers write the object itself.
            Some(other) => other.to_string(),
        };
        let name = word(item, "name").unwrap_or_default();
        What::Call { id: word(item, "call_id"), name, early: String::new(), arguments }
    }

    fn reasoning(item: &Value) -> What {
        let sealed = word(item, "encrypted_content").is_some();
        let open = item.get("content").and_then(Value::as_array).is_some_and(|content| !content.is_empty());
        // Nothing is stored there, so an id alone leads nowhere.
        if !sealed && !open {
            return What::Unknown;
        }
        let kept =
            |key: &&str| Some(((*key).to_owned(), item.get(*key).filter(|value| !value.is_null())?.clone()));
        let mut kept: Map<String, Value> = REASONING.iter().filter_map(kept).collect();
        kept.entry("summary").or_insert_with(|| Value::Array(Vec::new()));
        What::Reasoning(Value::Object(kept))
    }

    /// The same item when it has only begun.
    fn begun(self) -> What {
        match self {
            What::Call { id, name, arguments, .. } => {
                What::Call { id, name, early: arguments, arguments: String::new() }
            }
            What::Message { phase, .. } => What::Message { text: String::new(), phase, refused: false },
            What::Reasoning(_) | What::Unknown => What::Unknown,
        }
    }

    /// An item of the same kind, with nothing in it.
    fn hollow(&self) -> What {
        match self {
            What::Call { .. } => What::call(&Value::Null),
            What::Message { .. } => What::message(&Value::Null),
            What::Reasoning(_) | What::Unknown => What::Unknown,
        }
    }

    /// Takes the whole item; gives the text of it that was not said yet.
    fn complete(&mut self, whole: What) -> String {
        match (self, whole) {
            (
                What::Message { text, phase, refused },
                What::Message { text: whole, phase: later, refused: is_refused },
            ) => {
                let rest = whole.strip_prefix(text.as_str()).unwrap_or_default().to_owned();
                text.push_str(&rest);
                *phase = later.or(phase.take());
                *refused |= is_refused;
                return rest;
            }
            (
                What::Call { id, name, arguments, .. },
                What::Call { id: whole, name: named, arguments: all, .. },
            ) => {
                *id = whole.or(id.take());
                for (known, whole) in [(name, named), (arguments, all)] {
                    if !whole.is_empty() {
                        *known = whole;
                    }
                }
            }
            (known, whole) => *known = whole,
        }
        String::new()
    }

    fn text(&self) -> Option<&str> {
        match self {
            What::Message { text, .. } => Some(text),
            What::Call { .. } | What::Reasoning(_) | What::Unknown => None,
        }
    }

    fn is_call(&self) -> bool {
        matches!(self, What::Call { .. })
    }
}

fn index(event: &Value) -> Option<u64> {
    event.get("output_index").and_then(Value::as_u64)
}

fn id(event: &Value) -> Option<String> {
    word(event, "item_id").or_else(|| word(event.get("item")?, "id"))
}

/// The text of a key, where there is any.
pub(super) fn word(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}
