//! Output items of a reply, assembled from events of which servers send different subsets.

use std::mem::discriminant;

use serde_json::{Map, Value};

/// Keys of a reasoning item that are sent back.
const REASONING_KEYS: [&str; 5] = ["type", "id", "summary", "content", "encrypted_content"];

/// The items so far, in order.
#[derive(Debug, Default)]
pub(super) struct Items(Vec<Item>);

#[derive(Debug)]
struct Item {
    index: Option<u64>,
    id: Option<String>,
    content: ItemContent,
}

/// The content of an item.
#[derive(Debug)]
pub(super) enum ItemContent {
    /// Text.
    Message { text: String, phase: Option<String>, refused: bool },
    /// A tool call. Its initial arguments count only if no others arrive.
    Call { id: Option<String>, name: String, initial_arguments: String, arguments: String },
    /// Reasoning that is sent back unchanged.
    Reasoning(Value),
    /// Future item types, and reasoning that cannot be read again.
    Unknown,
}

impl Items {
    /// Starts an item.
    pub(super) fn begin(&mut self, event: &Value) {
        let item = event.get("item").map_or(ItemContent::Unknown, ItemContent::parse);
        self.push(event, item.started());
    }

    /// Appends text to an item.
    pub(super) fn text(&mut self, event: &Value, more: &str) {
        let new = ItemContent::Message { text: String::new(), phase: None, refused: false };
        if let Some(ItemContent::Message { text, .. }) = self.find_or_insert(event, new) {
            text.push_str(more);
        }
    }

    /// Appends arguments to a call.
    pub(super) fn arguments(&mut self, event: &Value, more: &str) {
        if let Some(ItemContent::Call { arguments, .. }) =
            self.find_or_insert(event, ItemContent::call(event).started())
        {
            arguments.push_str(more);
        }
    }

    /// Sets the complete arguments of a call.
    pub(super) fn set_arguments(&mut self, event: &Value) {
        let call = ItemContent::call(event);
        if let Some(known) = self.find_or_insert(event, ItemContent::call(&Value::Null)) {
            known.complete(call);
        }
    }

    /// Completes an item. Returns the part of its text that was not emitted yet.
    pub(super) fn end(&mut self, event: &Value) -> String {
        let Some(whole) = event.get("item").map(ItemContent::parse) else { return String::new() };
        let known = self.find_or_insert(event, whole.empty());
        known.map(|known| known.complete(whole)).unwrap_or_default()
    }

    /// Applies the terminal event, which repeats all items and takes precedence. Some servers omit some or
    /// all of them there. Returns the text that was not emitted yet.
    pub(super) fn reconcile(&mut self, output: &[Value]) -> String {
        let whole: Vec<ItemContent> = output.iter().map(ItemContent::parse).collect();
        let mut emitted = self.0.iter().filter_map(|item| item.content.text());
        let texts = whole.iter().filter_map(ItemContent::text);
        let rest = texts.filter_map(|text| text.strip_prefix(emitted.next().unwrap_or_default())).collect();
        if whole.iter().any(ItemContent::is_call) || (!whole.is_empty() && !self.has_calls()) {
            self.0 = whole.into_iter().map(|content| Item { index: None, id: None, content }).collect();
        }
        rest
    }

    pub(super) fn has_calls(&self) -> bool {
        self.0.iter().any(|item| item.content.is_call())
    }

    /// Whether a message is a refusal.
    pub(super) fn is_refused(&self) -> bool {
        self.0.iter().any(|item| matches!(item.content, ItemContent::Message { refused: true, .. }))
    }

    /// Returns the items in order.
    pub(super) fn emit(self) -> impl Iterator<Item = ItemContent> {
        self.0.into_iter().map(|item| item.content)
    }

    /// Returns the index of the item that an event belongs to. Some servers send no indices, no ids, or one
    /// index for all items.
    fn find(&self, event: &Value) -> Option<usize> {
        match (index(event), id(event)) {
            (Some(index), _) => self.0.iter().rposition(|item| item.index == Some(index)),
            (None, Some(id)) => self.0.iter().rposition(|item| item.id.as_ref() == Some(&id)),
            (None, None) => self.0.len().checked_sub(1),
        }
    }

    /// Returns the item that an event belongs to. Inserts `new` if the start of the item was omitted.
    fn find_or_insert(&mut self, event: &Value, new: ItemContent) -> Option<&mut ItemContent> {
        let known = self.find(event).filter(|at| {
            let known = self.0.get(*at);
            known.is_some_and(|known| discriminant(&known.content) == discriminant(&new))
        });
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.push(event, new);
        }
        self.0.get_mut(at).map(|item| &mut item.content)
    }

    fn push(&mut self, event: &Value, content: ItemContent) {
        self.0.push(Item { index: index(event), id: id(event), content });
    }
}

impl ItemContent {
    fn parse(item: &Value) -> ItemContent {
        match text_field(item, "type").as_deref() {
            Some("message") => ItemContent::message(item),
            Some("function_call") => ItemContent::call(item),
            Some("reasoning") => ItemContent::reasoning(item),
            Some(_) | None => ItemContent::Unknown,
        }
    }

    fn message(item: &Value) -> ItemContent {
        let parts = item.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let words = |part| text_field(part, "text").or_else(|| text_field(part, "refusal"));
        let refused = parts.iter().any(|part| part.get("refusal").is_some_and(Value::is_string));
        ItemContent::Message {
            text: parts.iter().filter_map(words).collect(),
            phase: text_field(item, "phase"),
            refused,
        }
    }

    fn call(item: &Value) -> ItemContent {
        let arguments = match item.get("arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            // Some servers send an object instead of a string.
            Some(other) => other.to_string(),
        };
        let name = text_field(item, "name").unwrap_or_default();
        ItemContent::Call {
            id: text_field(item, "call_id"),
            name,
            initial_arguments: String::new(),
            arguments,
        }
    }

    fn reasoning(item: &Value) -> ItemContent {
        let sealed = text_field(item, "encrypted_content").is_some();
        let open = item.get("content").and_then(Value::as_array).is_some_and(|content| !content.is_empty());
        // Nothing is stored at the provider, so an id alone is useless.
        if !sealed && !open {
            return ItemContent::Unknown;
        }
        let fields =
            |key: &&str| Some(((*key).to_owned(), item.get(*key).filter(|value| !value.is_null())?.clone()));
        let mut fields: Map<String, Value> = REASONING_KEYS.iter().filter_map(fields).collect();
        fields.entry("summary").or_insert_with(|| Value::Array(Vec::new()));
        ItemContent::Reasoning(Value::Object(fields))
    }

    /// Returns the item as it is when it has only started.
    fn started(self) -> ItemContent {
        match self {
            ItemContent::Call { id, name, arguments, .. } => {
                ItemContent::Call { id, name, initial_arguments: arguments, arguments: String::new() }
            }
            ItemContent::Message { phase, .. } => {
                ItemContent::Message { text: String::new(), phase, refused: false }
            }
            ItemContent::Reasoning(_) | ItemContent::Unknown => ItemContent::Unknown,
        }
    }

    /// Returns an empty item of the same kind.
    fn empty(&self) -> ItemContent {
        match self {
            ItemContent::Call { .. } => ItemContent::call(&Value::Null),
            ItemContent::Message { .. } => ItemContent::message(&Value::Null),
            ItemContent::Reasoning(_) | ItemContent::Unknown => ItemContent::Unknown,
        }
    }

    /// Replaces the item with the complete one. Returns the part of its text that was not emitted yet.
    fn complete(&mut self, whole: ItemContent) -> String {
        match (self, whole) {
            (
                ItemContent::Message { text, phase, refused },
                ItemContent::Message { text: whole, phase: later, refused: is_refused },
            ) => {
                let rest = whole.strip_prefix(text.as_str()).unwrap_or_default().to_owned();
                text.push_str(&rest);
                *phase = later.or(phase.take());
                *refused |= is_refused;
                return rest;
            }
            (
                ItemContent::Call { id, name, arguments, .. },
                ItemContent::Call { id: whole, name: named, arguments: all, .. },
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
            ItemContent::Message { text, .. } => Some(text),
            ItemContent::Call { .. } | ItemContent::Reasoning(_) | ItemContent::Unknown => None,
        }
    }

    fn is_call(&self) -> bool {
        matches!(self, ItemContent::Call { .. })
    }
}

fn index(event: &Value) -> Option<u64> {
    event.get("output_index").and_then(Value::as_u64)
}

fn id(event: &Value) -> Option<String> {
    text_field(event, "item_id").or_else(|| text_field(event.get("item")?, "id"))
}

/// Returns the string under a key, if it is not empty.
pub(super) fn text_field(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}
