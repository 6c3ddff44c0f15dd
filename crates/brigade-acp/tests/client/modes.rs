//! The mode of the tree holds for an external agent: it is put into its strictest mode, or not started.

use brigade::core::Status;
use brigade::core::permission::Mode;
use brigade::live::Live;
use brigade::{Settings, Task};
use brigade_acp::client::Server;

use super::world::{begins, child_end, notes, stage};

/// The modes that the agent was put into, how its session ended, and what the user was warned of.
async fn under(
    mode: Mode,
    offers: &'static str,
    tweak: impl Fn(&mut Server) + 'static,
) -> (Vec<String>, Status, Vec<String>) {
    let stage = stage(&["!say one", "!say two"], move |settings: &mut Settings, server| {
        settings.permissions.mode = mode;
        begins(server, offers);
        tweak(server);
    });
    let prepared = stage.runtime().prepare(Task::new("the task")).await.unwrap();
    let mut watch = prepared.watch();
    let ending = super::support::end(prepared.start()).await.unwrap();
    let mut warnings = Vec::new();
    while let Some(live) = watch.next().await {
        if let Live::Waiting { why, .. } = live
            && why.starts_with("warning")
        {
            warnings.push(why);
        }
    }
    let put =
        notes(&stage).lines().filter_map(|line| line.strip_prefix("mode ").map(str::to_owned)).collect();
    (put, child_end(&stage, &ending).await.0.status, warnings)
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_in_plan_and_ask_is_put_into_its_strictest_mode() {
    for mode in [Mode::Plan, Mode::Ask] {
        let (put, status, warnings) = under(mode, "modes:auto,full-access,read-only", |_| {}).await;
        assert_eq!((put, status, warnings.len()), (vec!["read-only".to_owned(); 2], Status::Done, 0));
        let wide = |server: &mut Server| server.choice.mode = Some("yolo".to_owned());
        let (put, status, _) = under(mode, "modes:default,yolo", wide).await;
        assert_eq!((put, status), (vec!["default".to_owned(); 2], Status::Done));
    }
    let (put, _, _) = under(Mode::Edit, "modes:auto,read-only", |_| {}).await;
    assert_eq!(put, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_without_a_safe_mode_is_refused_in_plan_unless_the_user_allows_it() {
    let (put, status, _) = under(Mode::Plan, "modes:auto,yolo", |_| {}).await;
    assert!(put.is_empty());
    let Status::Failed { cause } = status else { panic!("{status:?}") };
    assert!(cause.contains("acp.servers.fix.allow_in_plan = true"), "{cause}");
    assert!(cause.contains("auto, yolo"), "{cause}");
    let (_, status, _) = under(Mode::Plan, "modes:", |server| server.allow_in_plan = true).await;
    assert_eq!(status, Status::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_without_a_safe_mode_is_started_in_ask_with_one_warning() {
    let (_, status, warnings) = under(Mode::Ask, "modes:auto", |_| {}).await;
    assert_eq!(status, Status::Done);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("it may act without asking"), "{warnings:?}");
}
