//! Agents with and without network access.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use brigade::store::memory::MemoryStore;
use brigade::store::{Append, Expect, Owner};
use brigade::tool::{SearchEngine, WebSettings};
use brigade::{Models, ResumeOptions, Runtime, Settings, Store, Task, Toolbox, Workspace};
use brigade_core::grant::Access;
use brigade_core::permission::Mode;
use brigade_core::{Authority, Event};
use brigade_testing::{Script, call, reply};
use serde_json::json;

use super::server::{Server, settings};

#[test]
fn agent_without_network_is_not_offered_web_tools() {
    let search = Some(SearchEngine::searxng("https://searx.example").unwrap());
    let toolbox = Toolbox::standard().with_web(WebSettings { search, ..settings() });
    let tools: BTreeSet<String> = toolbox.iter().map(|tool| tool.spec().name.clone()).collect();
    let offered = |network| {
        let authority = Authority { tools: tools.clone(), network, ..Authority::default() };
        toolbox.specs(&authority).into_iter().map(|spec| spec.name).collect::<BTreeSet<_>>()
    };
    assert_eq!(offered(Access::Allowed), tools);
    let fewer = offered(Access::Denied);
    let missing: Vec<&String> = tools.difference(&fewer).collect();
    assert_eq!(missing, ["web_fetch", "web_search"]);
}

/// Creates a runtime whose agent fetches this page and then repeats the result.
fn runtime(store: &Arc<MemoryStore>, folder: &Path, url: &str, tweak: impl FnOnce(&mut Settings)) -> Runtime {
    let mut settings = Settings::new("script", Workspace::open(folder).unwrap());
    settings.tools = Toolbox::standard().with_web(super::server::settings());
    tweak(&mut settings);
    let script = Script::new().turns([call("web_fetch", json!({ "url": url })), reply("{results}")]);
    let models = Models::default().with("script", script.model());
    Runtime::new(store.clone(), settings, models)
}

async fn run_fetch(url: &str, tweak: impl FnOnce(&mut Settings)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime(&Arc::default(), folder.path(), url, tweak);
    let run = runtime.start(Task::new("read it")).await.unwrap();
    run.result().await.unwrap().outcome.text.to_string()
}

#[tokio::test]
async fn page_is_read_in_every_mode_unless_denied() {
    let server = Server::page("text/html", "<h1>inside</h1>");
    for mode in [Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto] {
        let text = run_fetch(&server.url("/"), |settings| settings.permissions.mode = mode).await;
        assert!(text.contains("# inside"), "{mode}: {text}");
    }
    let rule =
        |settings: &mut Settings| settings.permissions.deny = vec!["web_fetch(127.0.0.1)".parse().unwrap()];
    let text = run_fetch(&server.url("/"), rule).await;
    assert!(text.contains("the rule `web_fetch(127.0.0.1)` in `permissions.deny` forbids it."), "{text}");
    assert_eq!(server.requests().len(), 4);
}

/// A model may call a tool that it was not offered. The session starts, loses network access and resumes.
#[tokio::test]
async fn agent_without_network_cannot_call_web_tools() {
    let server = Server::page("text/html", "<h1>inside</h1>");
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    let run =
        runtime(&store, folder.path(), &server.url("/"), |_| {}).start(Task::new("read it")).await.unwrap();
    let session = run.session().clone();
    run.result().await.unwrap();
    assert_eq!(server.requests().len(), 1);

    let mut first = store.read(&session, 0).await.unwrap().remove(0);
    let Event::Started { agent, grant, .. } = &mut first.event else { panic!("{first:?}") };
    let blob = store.blob(grant.authority).await.unwrap().unwrap();
    let authority: Authority = serde_json::from_str(&blob).unwrap();
    let authority = Authority { network: Access::Denied, ..authority };
    grant.authority = authority.hash();
    let agent = store.blob(*agent).await.unwrap().unwrap();
    let other = Arc::new(MemoryStore::new());
    let owner = Owner { pid: 999_999_999, start_time: 1, ..Owner::this_process() };
    let lease = other.lease(&session, &owner, 1).await.unwrap();
    let begun = Append {
        session: session.clone(),
        expect: Expect::Length(0),
        events: Arc::new(vec![first.event]),
        blobs: vec![agent, authority.encoded().into()],
        lease: Some(lease.clone()),
        at: 1,
    };
    other.append(begun).await.unwrap();
    other.release(&lease).await.unwrap();
    let runtime = runtime(&other, folder.path(), &server.url("/"), |_| {});
    let ending = runtime.resume(&session, ResumeOptions::default()).await.unwrap().result().await.unwrap();
    let text = ending.outcome.text.to_string();
    assert!(text.contains("`web_fetch` needs network access, which this agent does not have"), "{text}");
    assert_eq!(server.requests().len(), 1);
}
