//! The mode of the tree applies to an external agent: its strictest mode is selected, or it is not started.

use brigade::core::Status;
use brigade::core::permission::Mode;
use brigade::event_stream::RunEvent;
use brigade::{Settings, Task};
use brigade_acp::client::AgentServer;

use super::setup::{child_end, harness, notes, start_as};

/// Returns the modes that were selected, the outcome of the session, and the warnings to the user.
async fn run_in_mode(
    mode: Mode,
    offers: &'static str,
    tweak: impl Fn(&mut AgentServer) + 'static,
) -> (Vec<String>, Status, Vec<String>) {
    let harness = harness(&["!say one", "!say two"], move |settings: &mut Settings, server| {
        settings.permissions.mode = mode;
        start_as(server, offers);
        tweak(server);
    });
    let mut run = harness.runtime().start(Task::new("the task")).await.unwrap();
    let mut watch = run.take_events();
    let ending = super::support::end(run).await.unwrap();
    let mut warnings = Vec::new();
    while let Some(live) = watch.next().await {
        if let RunEvent::Waiting { why, .. } = live
            && why.starts_with("warning")
        {
            warnings.push(why);
        }
    }
    let modes_set =
        notes(&harness).lines().filter_map(|line| line.strip_prefix("mode ").map(str::to_owned)).collect();
    (modes_set, child_end(&harness, &ending).await.0.status, warnings)
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_in_plan_and_ask_is_put_into_its_strictest_mode() {
    for mode in [Mode::Plan, Mode::Ask] {
        let (modes_set, status, warnings) =
            run_in_mode(mode, "modes:auto,full-access,read-only", |_| {}).await;
        assert_eq!((modes_set, status, warnings.len()), (vec!["read-only".to_owned(); 2], Status::Done, 0));
        let wide = |server: &mut AgentServer| server.options.mode = Some("yolo".to_owned());
        let (modes_set, status, _) = run_in_mode(mode, "modes:default,yolo", wide).await;
        assert_eq!((modes_set, status), (vec!["default".to_owned(); 2], Status::Done));
    }
    let (modes_set, _, _) = run_in_mode(Mode::Edit, "modes:auto,read-only", |_| {}).await;
    assert_eq!(modes_set, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_without_a_safe_mode_is_refused_in_plan_unless_the_user_allows_it() {
    let (modes_set, status, _) = run_in_mode(Mode::Plan, "modes:auto,yolo", |_| {}).await;
    assert!(modes_set.is_empty());
    let Status::Failed { cause } = status else { panic!("{status:?}") };
    assert!(cause.contains("acp.servers.fix.allow_in_plan = true"), "{cause}");
    assert!(cause.contains("auto, yolo"), "{cause}");
    let (_, status, _) = run_in_mode(Mode::Plan, "modes:", |server| server.allow_in_plan = true).await;
    assert_eq!(status, Status::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_without_a_safe_mode_is_started_in_ask_with_one_warning() {
    let (_, status, warnings) = run_in_mode(Mode::Ask, "modes:auto", |_| {}).await;
    assert_eq!(status, Status::Done);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("it may act without asking"), "{warnings:?}");
}
