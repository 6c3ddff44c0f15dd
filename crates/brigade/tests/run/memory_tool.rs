//! Memory entries of an agent whose runner is killed.

use brigade::core::permission::Mode;
use brigade::core::{CallId, SessionId};
use brigade::tool::memory::{Memory, NewEntry};
use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::run::crash::run_until_crash;
use crate::run::support::Harness;

fn remember() -> Script {
    Script::new().turns([
        call("memory_put", json!({ "key": "port", "text": "8080" })),
        call("memory_get", json!({ "key": "port" })),
        reply("{results}"),
    ])
}

/// A stored note is not stored again, so that a resume does not undo what others stored in between.
#[tokio::test]
async fn memory_entry_is_stored_once_whenever_the_runner_dies() {
    let (mut stored_first, mut stored_later) = (0, 0);
    for appends in 1..20 {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::at(&folder.path().join("memory.db"));
        let tools = memory.clone();
        let harness = Harness::with(remember(), move |settings| {
            settings.tools = brigade::Toolbox::standard().with_memory(tools.clone());
            settings.permissions.mode = Mode::Auto;
        });
        let (result, root) = run_until_crash(&harness, None, appends).await;
        if result.is_some() {
            break;
        }
        let root = root.unwrap();
        let was_stored = memory.get("port").unwrap().is_some();
        let other = NewEntry { key: Some("port".to_owned()), text: "9090".to_owned(), tags: Vec::new() };
        memory.put(other, &SessionId::root(1), CallId { turn: 1, index: 0 }).unwrap();
        let (result, _) = run_until_crash(&harness, Some(&root), i64::MAX).await;
        assert!(result.is_some(), "after {appends} appends");
        let now = memory.get("port").unwrap().unwrap();
        if was_stored {
            stored_first += 1;
            assert_eq!(now.text, "9090", "after {appends} appends");
        } else {
            stored_later += 1;
            assert_eq!((now.text.as_str(), now.session.as_str()), ("8080", root.as_str()));
        }
    }
    assert!(stored_first > 1 && stored_later > 0, "{stored_first} {stored_later}");
}
