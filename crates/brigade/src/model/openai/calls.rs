//! Tool calls that arrive in interleaved fragments, in the variants of different servers.

use std::collections::BTreeMap;

use brigade_core::message::Stop;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::http::ChunkBuffer;

/// A fragment of a call.
#[derive(Debug, Deserialize)]
pub(super) struct CallFragment<'a> {
    index: Option<u64>,
    id: Option<String>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct Function<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// The calls of a reply so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Call>,
    /// The highest index so far. A higher one starts a new call without a search among the existing ones.
    highest_index: Option<u64>,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
    extra_content: Option<Value>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.list.iter().map(|call| call.name.len() + call.arguments.len()).sum()
    }

    /// Returns the extra content of calls, by call number.
    pub(super) fn extra_content(&mut self) -> BTreeMap<usize, Value> {
        let calls = self.list.iter_mut().enumerate();
        calls.filter_map(|(number, call)| Some((number, call.extra_content.take()?))).collect()
    }

    pub(super) fn take(&mut self, fragment: CallFragment<'_>) {
        let Function { name, arguments } = fragment.function.unwrap_or_default();
        let name = name.filter(|name| !name.is_empty());
        let id = fragment.id.filter(|id| !id.is_empty());
        // Some servers send an object instead of a string.
        let decode =
            |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
        let arguments: String = arguments.map(decode).unwrap_or_default();
        let is_new = fragment.index.is_some() && fragment.index > self.highest_index;
        self.highest_index = self.highest_index.max(fragment.index);
        let calls = if is_new { &[] } else { self.list.as_slice() };
        let known = calls.iter().rposition(|call| match (fragment.index, &id) {
            (Some(index), _) => call.index == Some(index),
            (None, Some(id)) => call.id.as_ref() == Some(id),
            // Without index and id, a name starts a call, and anything else continues the last one.
            (None, None) => name.is_none(),
        });
        let known = known.filter(|at| {
            self.list.get(*at).is_some_and(|call| !call.is_different_call(&id, &name, &arguments))
        });
        let call = match known.and_then(|at| self.list.get_mut(at)) {
            Some(call) => call,
            None => self.list.push_mut(Call { index: fragment.index, ..Call::default() }),
        };
        call.id = call.id.take().or(id);
        if call.name.is_empty() {
            call.name = name.unwrap_or_default();
        }
        call.arguments.push_str(&arguments);
        let extra_content = fragment.extra_content.and_then(|raw| serde_json::from_str(raw.get()).ok());
        call.extra_content = extra_content.or(call.extra_content.take());
    }

    /// Emits the calls, or returns the reason why they are invalid.
    pub(super) fn emit(&mut self, stop: Stop, chunks: &mut ChunkBuffer) -> Result<(), &'static str> {
        for call in std::mem::take(&mut self.list) {
            if call.name.is_empty() {
                return Err("a tool call has no name");
            }
            chunks.push_call(stop, call.name, call.id, call.arguments);
        }
        Ok(())
    }
}

impl Call {
    /// Whether a fragment with the same index belongs to another call. Some servers give all calls the index
    /// 0.
    fn is_different_call(&self, id: &Option<String>, name: &Option<String>, arguments: &str) -> bool {
        match (&self.id, id) {
            (Some(own), Some(id)) => own != id && name.is_some(),
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                let is_whole = serde_json::from_str::<&RawValue>(&self.arguments).is_ok();
                name.is_some() && !arguments.is_empty() && is_whole
            }
        }
    }
}
