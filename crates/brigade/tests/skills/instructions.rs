//! Project instructions: included in the prompt of the lead and of its children, and counted.

use std::sync::Arc;

use brigade::core::{Budget, Limit};
use brigade_testing::{Script, delegate};

use super::SkillHarness;

fn one_child() -> Script {
    Script::new().agent("lead", [delegate("Helper", "help").turn(1)]).reply("done")
}

const RULES: &str = "Use tabs.\n\n# Never\n\nNever push.";

#[tokio::test]
async fn instructions_reach_the_lead_and_its_children() {
    let run =
        SkillHarness::new().run(one_child(), |settings| settings.instructions = Some(RULES.into())).await;
    for who in ["lead", "Helper"] {
        let system = &run.request(who).system;
        assert!(system.ends_with(&format!("\n\n{RULES}\n")), "{system}");
        assert!(system.contains("# Project instructions"), "{system}");
    }
    assert!(run.request("lead").system.starts_with("You are the lead"));
}

#[tokio::test]
async fn agent_that_ignores_instructions_does_not_get_them() {
    let ignoring = SkillHarness::new()
        .run(one_child(), |settings| {
            settings.instructions = Some(RULES.into());
            settings.lead.ignore_instructions = true;
        })
        .await;
    let plain = SkillHarness::new().run(one_child(), |_| {}).await;
    let blank =
        SkillHarness::new().run(one_child(), |settings| settings.instructions = Some(" \n".into())).await;
    assert_eq!(ignoring.request("lead").system, plain.request("lead").system);
    assert_eq!(blank.request("Helper").system, plain.request("Helper").system);
    assert!(!ignoring.request("lead").system.contains("tabs"));
    assert!(ignoring.request("Helper").system.contains("Use tabs."), "each agent decides for itself");
}

#[tokio::test]
async fn instructions_count_towards_the_budget() {
    let long: Arc<str> = "rule ".repeat(20_000).into();
    let ends = async |instructions: Option<Arc<str>>| {
        let run = SkillHarness::new()
            .run(Script::new().reply("done"), |settings| {
                settings.instructions = instructions;
                settings.budget = Budget { tokens: Limit::AtMost(20_000), ..Budget::UNLIMITED };
            })
            .await;
        run.requests.len()
    };
    assert_eq!(ends(None).await, 1);
    assert_eq!(ends(Some(long)).await, 0, "the budget does not cover a call with them, so none is made");
}
