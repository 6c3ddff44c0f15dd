//! Who may reach the network.

use std::collections::BTreeSet;

use brigade::model::script::Script;
use brigade::tool::{Search, WebSettings};
use brigade::{Models, Runtime, Settings, Task, Toolbox, Workspace};
use brigade_core::Authority;
use brigade_core::grant::Access;
use brigade_core::permission::Mode;

use super::server::{Server, settings};

#[test]
fn an_agent_without_the_network_is_not_offered_it() {
    let search = Some(Search::searxng("https://searx.example").unwrap());
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

async fn told(url: &str, tweak: impl FnOnce(&mut Settings)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new("script", Workspace::open(folder.path()).unwrap());
    settings.tools = Toolbox::standard().with_web(super::server::settings());
    tweak(&mut settings);
    let script = format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'web_fetch'\narguments = {{ url = '{url}' }}\n\
         [[reply]]\ntext = '{{results}}'\n"
    );
    let models = Models::default().with("script", Script::parse(&script).unwrap());
    let run = Runtime::in_memory(settings, models).start(Task::new("read it")).await.unwrap();
    run.ending().await.unwrap().outcome.text.to_string()
}

#[tokio::test]
async fn a_page_is_read_in_every_mode_until_a_rule_forbids_it() {
    let server = Server::page("text/html", "<h1>inside</h1>");
    for mode in [Mode::Plan, Mode::Ask, Mode::Edit, Mode::Auto] {
        let text = told(&server.url("/"), |settings| settings.permissions.mode = mode).await;
        assert!(text.contains("# inside"), "{mode}: {text}");
    }
    let rule =
        |settings: &mut Settings| settings.permissions.deny = vec!["web_fetch(127.0.0.1)".parse().unwrap()];
    let text = told(&server.url("/"), rule).await;
    assert!(text.contains("`web_fetch(127.0.0.1)` in permissions.deny forbids this"), "{text}");
    assert_eq!(server.requests().len(), 4);
}
