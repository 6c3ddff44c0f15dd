//! Tools as a provider wants them written, kept for all that are offered the same.

use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::ToolSpec;
use serde_json::value::RawValue;

/// How many sets of tools are remembered.
const SETS: usize = 8;

/// What was written last. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<Set>>>);

#[derive(Debug)]
struct Set {
    tools: Arc<[ToolSpec]>,
    text: Arc<RawValue>,
}

impl Written {
    /// The tools in the words of the provider; `write` is asked when they are new.
    pub(super) fn tools(
        &self,
        tools: &Arc<[ToolSpec]>,
        write: impl FnOnce(&[ToolSpec]) -> serde_json::Result<Box<RawValue>>,
    ) -> serde_json::Result<Arc<RawValue>> {
        // Siblings of one definition share their tools, so that the same place in memory is the same set.
        let known =
            |sets: &[Set]| sets.iter().find(|set| Arc::ptr_eq(&set.tools, tools)).map(|set| set.text.clone());
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known(&lock()) {
            return Ok(text);
        }
        let text: Arc<RawValue> = write(tools)?.into();
        let mut sets = lock();
        if known(&sets).is_none() {
            sets.truncate(SETS - 1);
            sets.insert(0, Set { tools: tools.clone(), text: text.clone() });
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_tools_are_written_once_and_others_anew() {
        let written = Written::default();
        let sets: Vec<Arc<[ToolSpec]>> = (0..SETS + 1).map(|_| Arc::from(Vec::new())).collect();
        let text = |set: usize, say: &str| {
            let raw = || RawValue::from_string(format!("\"{say}\""));
            written.tools(&sets[set], |_| raw()).unwrap().get().to_owned()
        };
        assert_eq!(text(0, "first"), "\"first\"");
        assert_eq!(text(0, "again"), "\"first\"");
        for set in 1..=SETS {
            assert_eq!(text(set, "other"), "\"other\"");
        }
        assert_eq!(text(0, "forgotten"), "\"forgotten\"");
    }
}
