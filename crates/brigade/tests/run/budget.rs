//! Budgets are reserved before they are spent.

use std::time::Duration;

use brigade::core::delegation::Which;
use brigade::core::{Budget, Event, Limit, Status};
use brigade::{More, Task};

use crate::support::{Stage, check_laws, end};

fn tokens(tokens: u64) -> Budget {
    Budget { tokens: Limit::AtMost(tokens), usd: Limit::Unlimited, agents: Limit::AtMost(100) }
}

#[tokio::test]
async fn forty_children_on_one_budget_all_get_a_share_or_a_clear_refusal() {
    let script = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Child", task = "part {n}" }
repeat = 40
[[reply]]
agent = "lead"
text = "{results}"
[[reply]]
agent = "Child"
text = "did {task}"
"#;
    for budget in [30_000, 60_000, 120_000, 2_000_000] {
        for cap in [1, 3, 40] {
            let stage = Stage::with(script, move |settings| settings.faces.swarm.max_concurrent = cap);
            let ending = stage.run_task(Task::new("split").budget(tokens(budget))).await;
            let answers = stage.answers(&ending.session).await;
            assert_eq!(answers.len(), 40);
            for (n, answer) in answers.iter().enumerate() {
                let served = *answer == format!("[Child]: did part {n}");
                let incomplete = answer.ends_with("(incomplete: tokens)");
                assert!(served || incomplete || answer.starts_with("Not delegated: the budget"), "{answer}");
            }
            if budget == 2_000_000 {
                assert!(answers.iter().all(|answer| answer.starts_with("[Child]: did")));
            }
            assert!(ending.spent.amount().tokens <= budget);
            check_laws(&stage.log(&ending.session).await);
        }
    }
}

const ENDLESS: &str = r#"
[[reply]]
purpose = "grace"
text = "achieved: {turn}"
[[reply]]
text = "working"
[[reply.call]]
tool = "echo"
arguments = { text = "0123456789012345678901234567890123456789" }
"#;

#[tokio::test]
async fn the_turn_limit_grants_one_last_word_without_tools() {
    let stage = Stage::new(ENDLESS);
    let ending = stage.run_task(Task::new("go").turns(3)).await;
    assert_eq!(ending.outcome.status, Status::Incomplete { limit: Which::Turns });
    assert_eq!(ending.outcome.text.as_str(), "achieved: 4");
    assert_eq!(ending.spent.turns, 4);
    check_laws(&stage.log(&ending.session).await);
    let more = More { turns: Some(2), ..More::default() };
    let run = stage.runtime().resume(&ending.session, more).await.unwrap();
    let again = end(run).await.unwrap();
    assert_eq!(again.outcome.text.as_str(), "achieved: 7");
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn tokens_run_out_into_a_last_word_that_the_reserve_pays() {
    let stage = Stage::new(ENDLESS);
    let ending = stage.run_task(Task::new("go").budget(tokens(12_000))).await;
    assert_eq!(ending.outcome.status, Status::Incomplete { limit: Which::Tokens });
    assert!(ending.outcome.text.as_str().starts_with("achieved"), "{}", ending.outcome.text);
    assert!(ending.spent.amount().tokens <= 12_000);
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn a_budget_below_one_call_ends_without_any() {
    let stage = Stage::new(ENDLESS);
    let ending = stage.run_task(Task::new("go").budget(tokens(10))).await;
    assert_eq!(ending.outcome.status, Status::Incomplete { limit: Which::Tokens });
    assert_eq!(stage.replies.count(), 0);
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn money_runs_out_too() {
    let script = format!("price = {{ input = 3.0, output = 15.0 }}\n{ENDLESS}");
    let stage = Stage::new(&script);
    let budget = Budget { usd: Limit::AtMost(200_000_000), ..tokens(10_000_000) };
    let ending = stage.run_task(Task::new("go").budget(budget).turns(10_000)).await;
    assert_eq!(ending.outcome.status, Status::Incomplete { limit: Which::Usd });
    assert!(ending.spent.usd > 50_000_000, "{}", ending.spent.usd);
    assert!(ending.spent.usd <= 200_000_000);
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn agents_are_counted_over_the_tree() {
    let script = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Child", task = "part {n}" }
repeat = 5
[[reply]]
agent = "lead"
text = "{results}"
[[reply]]
text = "ok"
"#;
    let stage = Stage::new(script);
    let budget = Budget { agents: Limit::AtMost(3), ..tokens(1_000_000) };
    let ending = stage.run_task(Task::new("split").budget(budget)).await;
    let answers = stage.answers(&ending.session).await;
    assert_eq!(answers.iter().filter(|answer| *answer == "[Child]: ok").count(), 3);
    assert_eq!(answers.iter().filter(|answer| answer.contains("not enough agents")).count(), 2);
    assert_eq!(ending.spent.agents, 3);
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn usage_above_the_reserve_is_an_overrun_and_ends_the_session() {
    let script = r#"
[[reply]]
text = "greedy"
usage = { input = 900000, output = 5 }
[[reply.call]]
tool = "echo"
arguments = { text = "never" }
"#;
    let stage = Stage::new(script);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Incomplete { limit: Which::Tokens });
    assert!(ending.spent.overrun.tokens > 0);
    let log = stage.log(&ending.session).await;
    assert!(!log.iter().any(|record| matches!(record.event, Event::ToolStarted { .. })));
}

#[tokio::test]
async fn c77_a_timeout_ends_the_tree_with_partial_results() {
    let script = r#"
[[reply]]
agent = "lead"
turn = 1
text = "splitting"
[[reply.call]]
tool = "delegate"
arguments = { role = "Stuck", task = "x" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Quick", task = "x" }
[[reply]]
agent = "Quick"
text = "quick"
[[reply]]
agent = "Stuck"
purpose = "grace"
text = "nothing yet"
[[reply]]
agent = "Stuck"
fault = "hang"
[[reply]]
agent = "lead"
text = "got {results}"
"#;
    let stage = Stage::new(script);
    let ending = stage.run_task(Task::new("go").timeout(Duration::from_millis(600))).await;
    let answers = stage.answers(&ending.session).await;
    assert_eq!(answers, ["[Stuck]: nothing yet\n(incomplete: time)", "[Quick]: quick"]);
    assert_eq!(ending.outcome.status, Status::Done, "the children end early enough for the lead to go on");
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn c77_a_session_that_hangs_itself_gets_a_last_word() {
    let script = r#"
[[reply]]
purpose = "grace"
text = "I was stuck"
[[reply]]
fault = "hang"
"#;
    let stage = Stage::new(script);
    let ending = stage.run_task(Task::new("go").timeout(Duration::from_millis(200))).await;
    assert_eq!(ending.outcome.status, Status::Incomplete { limit: Which::Time });
    assert_eq!(ending.outcome.text.as_str(), "I was stuck");
    assert!(ending.spent.in_doubt.tokens > 0, "the call that was given up may have cost its reserve");
    check_laws(&stage.log(&ending.session).await);
}

/// A model whose price nobody knows.
struct Unpriced(brigade::model::script::Script);

impl brigade::Model for Unpriced {
    fn stream(
        &self,
        request: brigade::model::Request,
    ) -> futures::stream::BoxStream<'static, Result<brigade::model::Chunk, brigade::model::ModelError>> {
        self.0.stream(request)
    }

    fn about(&self, _model: &str) -> brigade::model::About {
        brigade::model::About::default()
    }
}

#[tokio::test]
async fn a_budget_in_dollars_is_refused_where_the_price_is_not_known() {
    let script = "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
                  arguments = { role = 'Child', task = 'go' }\n[[reply]]\ntext = 'end {results}'\n";
    let parse = || brigade::model::script::Script::parse(script).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let start = async |lead: &str, usd: brigade::core::Limit| {
        let workspace = brigade::Workspace::open(folder.path()).unwrap();
        let mut settings = brigade::Settings::new(lead, workspace);
        settings.faces.swarm.model = Some("unpriced".to_owned());
        settings.budget.usd = usd;
        let models = brigade::Models::default().with("unpriced", Unpriced(parse())).with("priced", parse());
        let runtime = brigade::Runtime::in_memory(settings, models);
        match runtime.start(brigade::Task::new("go")).await {
            Ok(run) => Ok(run.ending().await.unwrap().outcome.text.to_string()),
            Err(error) => Err(error.to_string()),
        }
    };
    let refusal = start("unpriced", brigade::core::Limit::AtMost(1_000)).await.unwrap_err();
    assert!(refusal.contains("the price of the model 'unpriced' is not known"), "{refusal}");
    let child = start("priced", brigade::core::Limit::AtMost(1_000_000_000)).await.unwrap();
    assert!(child.contains("Sub-agent 'Child' failed: the price of the model 'unpriced'"), "{child}");
    assert_eq!(start("unpriced", brigade::core::Limit::Unlimited).await.unwrap(), "end [Child]: end ");
}
