//! API keys and base URLs of single agents: which provider is used with which key, and where a key must never
//! appear.

use brigade_core::Cursor;
use brigade_testing::{Script, call};
use serde_json::json;
use std::sync::{Arc, Mutex};

use brigade::agents::AgentCatalog;
use brigade::model::{EndpointOverride, Model, ModelUnavailable};
use brigade::store::memory::MemoryStore;
use brigade::{Models, Runtime, Settings, Store, Task, Workspace};

const KEY: &str = "sk-own-0123456789";

fn script() -> Script {
    Script::new()
        .agent("lead", [call("subagent_dispatch", json!({ "agent_id": "keyed", "task": "go" })).turn(1)])
        .agent("keyed", [call("subagent_dispatch", json!({ "agent_id": "plain", "task": "go" })).turn(1)])
        .reply("{role}: {results}")
}

fn write(folder: &std::path::Path, id: &str, head: &str) {
    std::fs::create_dir_all(folder.join(id)).unwrap();
    let text = format!("---\nname: {id}\ndescription: Does {id}\n{head}---\nYou are {id}.\n");
    std::fs::write(folder.join(id).join("AGENT.md"), text).unwrap();
}

/// Runs the tree and returns the settings that each provider was created with.
async fn run(
    folder: &std::path::Path,
    store: &Arc<MemoryStore>,
) -> (Vec<(String, EndpointOverride)>, String) {
    let made: Arc<Mutex<Vec<(String, EndpointOverride)>>> = Arc::default();
    let seen = made.clone();
    let models = Models::default().with_providers(
        ["shared", "other"].map(str::to_owned),
        move |name: &str, own: &EndpointOverride| -> Result<Arc<dyn Model>, ModelUnavailable> {
            seen.lock().unwrap().push((name.to_owned(), own.clone()));
            Ok(Arc::new(script().model()))
        },
    );
    let mut settings = Settings::new("shared/model", Workspace::open(folder).unwrap());
    settings.agents = AgentCatalog::from_folders(&[folder.join("agents")]).0;
    let ending = Runtime::new(store.clone(), settings, models)
        .start(Task::new("go"))
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    let made = made.lock().unwrap().clone();
    (made, ending.outcome.text.to_string())
}

#[tokio::test]
async fn c59_agent_key_and_url_are_used_inherited_and_never_stored() {
    let folder = tempfile::tempdir().unwrap();
    let agents = folder.path().join("agents");
    let own = format!("provider: other\nmodel: fine\napi_key: {KEY}\napi_base: http://127.0.0.1:9/v1\n");
    write(&agents, "keyed", &own);
    write(&agents, "plain", "");
    let store = Arc::new(MemoryStore::new());
    let (made, text) = run(folder.path(), &store).await;
    assert!(text.contains("plain"), "{text}");
    let key_of = |at: usize| made[at].1.key.as_ref().map(|key| key.expose().to_owned());
    // The lead uses the shared provider, the agent its own, and its child the agent's.
    assert_eq!(made.len(), 2, "{made:?}");
    assert_eq!((made[0].0.as_str(), key_of(0), &made[0].1.base_url), ("shared", None, &None));
    assert_eq!((made[1].0.as_str(), key_of(1).as_deref()), ("other", Some(KEY)));
    assert_eq!(made[1].1.base_url.as_deref(), Some("http://127.0.0.1:9/v1"));
    let root = store.roots().await.unwrap().pop().unwrap().root.root_id();
    for record in store.tail(&root, Cursor::START, usize::MAX).await.unwrap() {
        let shown = serde_json::to_string(&record.event).unwrap();
        assert!(!shown.contains(KEY), "{shown}");
        if let brigade::core::Event::Started { agent, .. } = record.event {
            let definition = store.blob(agent).await.unwrap().unwrap();
            assert!(!definition.contains(KEY), "{definition}");
        }
    }
    assert!(!format!("{made:?}").contains(KEY));
}

#[tokio::test]
async fn removed_api_key_is_an_error_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let agents = folder.path().join("agents");
    write(&agents, "keyed", &format!("api_key: {KEY}\n"));
    write(&agents, "plain", "");
    let catalog = AgentCatalog::from_folders(std::slice::from_ref(&agents)).0;
    let agent = catalog.load("keyed").unwrap();
    assert_eq!(agent.key_of.as_deref(), Some("keyed"));
    write(&agents, "keyed", "");
    let models = Models::default().with("shared", script().model());
    let mut settings = Settings::new("shared/model", Workspace::open(folder.path()).unwrap());
    settings.agents = catalog;
    let refused = Runtime::in_memory(settings, models).start(Task::new("go").agent(agent)).await;
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        refused.contains("cannot run the agent 'keyed': its file no longer contains `api_key`"),
        "{refused}"
    );
}
