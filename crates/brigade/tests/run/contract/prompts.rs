//! Built-in prompts mention only tools that the agent has.

use std::collections::BTreeSet;

use brigade::core::DelegationStyle;
use brigade::core::delegation_styles::{DELEGATION_TOOLS, EnabledStyles};
use brigade::{AgentCatalog, Settings};
use serde_json::{Value, json};

use super::{ContractHarness, agent, calls, helper, says, spawn};

/// Delegation tools that a prompt names.
fn named(system: &str) -> Vec<&'static str> {
    DELEGATION_TOOLS.into_iter().filter(|tool| system.contains(&format!("`{tool}`"))).collect()
}

/// System prompt of the lead under these settings.
async fn lead(tweak: impl Fn(&mut Settings)) -> String {
    let harness = ContractHarness::with(&[json!({ "text": "done" })], tweak);
    harness.run().await;
    harness.requests("lead").remove(0).system
}

fn only(faces: &[DelegationStyle]) -> EnabledStyles {
    EnabledStyles::Only(faces.iter().copied().collect::<BTreeSet<_>>())
}

#[tokio::test]
async fn lead_prompt_names_the_delegation_tools_it_has() {
    let auto = lead(|settings| settings.delegation_styles.subagent = None).await;
    assert_eq!(named(&auto), ["delegate", "subagent_spawn", "subagent_delegate"], "{auto}");
    let helpers =
        lead(|settings| settings.delegation_styles.delegation.styles = only(&[DelegationStyle::Subagent]))
            .await;
    assert_eq!(named(&helpers), ["subagent", "parallel_subagent"], "{helpers}");
    let agents = lead(|settings| {
        settings.delegation_styles.delegation.styles = only(&[DelegationStyle::Dispatch]);
        settings.agents = AgentCatalog::new().with(agent("reviewer"));
    })
    .await;
    assert_eq!(named(&agents), ["subagent_dispatch"], "{agents}");
}

#[tokio::test]
async fn lead_prompt_without_delegation_tools_mentions_none() {
    let off = |settings: &mut Settings| {
        settings.delegation_styles.delegation.styles = only(&[DelegationStyle::Delegate]);
        settings.delegation_styles.swarm.enabled = false;
    };
    let flat = |settings: &mut Settings| {
        settings.delegation_styles.delegation.styles = only(&[DelegationStyle::Delegate]);
        settings.delegation_styles.swarm.max_depth = 0;
    };
    let denied = |settings: &mut Settings| {
        settings.delegation_styles.delegation.styles = only(&[DelegationStyle::Delegate]);
        settings.permissions.deny = vec!["delegate".parse().unwrap()];
    };
    let none = |settings: &mut Settings| settings.delegation_styles.delegation.styles = only(&[]);
    for system in [lead(off).await, lead(flat).await, lead(denied).await, lead(none).await] {
        assert_eq!(named(&system), Vec::<&str>::new(), "{system}");
        assert!(!system.contains("agents") && system.contains("independent tool calls"), "{system}");
    }
}

#[tokio::test]
async fn subagent_at_the_depth_limit_is_not_told_to_delegate() {
    let harness = ContractHarness::new(&[
        calls("lead", 1, &[helper("one")]),
        calls("one", 1, &[helper("two")]),
        json!({ "text": "done" }),
    ]);
    harness.run().await;
    let (one, two) = (harness.requests("one").remove(0), harness.requests("two").remove(0));
    assert!(named(&one.system).contains(&"subagent"), "{}", one.system);
    // The tool stays visible at its limit and refuses there.
    assert!(two.tools.contains(&"subagent".to_owned()), "{:?}", two.tools);
    assert_eq!(named(&two.system), Vec::<&str>::new());
    assert!(
        two.system.contains("independent tool calls") && !two.system.contains("other agents"),
        "{}",
        two.system
    );
}

#[tokio::test]
async fn child_without_tools_is_not_told_to_use_tools() {
    let bare: [(&str, Value); 3] = [
        ("delegate", json!({ "role": "Poet", "task": "go", "tools": [] })),
        ("subagent_delegate", json!({ "task": "go", "description": "one answer" })),
        (
            "parallel_subagent",
            json!({ "tasks": [{ "label": "bare", "task_prompt": "go", "allowed_tools": [] }] }),
        ),
    ];
    let harness = ContractHarness::with(
        &[calls("lead", 1, &bare), says("lead", "end"), json!({ "text": "done" })],
        |settings| {
            settings.delegation_styles.subagent.as_mut().unwrap().max_depth = 2;
        },
    );
    harness.run().await;
    for name in ["Poet", "one answer", "bare"] {
        let system = harness.requests(name).remove(0).system;
        assert!(!system.contains("tools") && !system.contains("other agents"), "{name}: {system}");
        assert!(system.contains("caller"), "{name}: {system}");
    }
    // The one tool that a role always has is named.
    assert!(harness.requests("Poet").remove(0).system.contains("`message`"));
}

#[tokio::test]
async fn c09_role_prompt_mentions_message_if_available() {
    let replies = [
        calls("lead", 1, &[("delegate", json!({ "role": "Poet", "task": "go" }))]),
        json!({ "text": "done" }),
    ];
    let poet = |harness: &ContractHarness| harness.requests("Poet").remove(0);
    let harness = ContractHarness::new(&replies);
    harness.run().await;
    assert!(
        poet(&harness).system.contains("Send interim updates to the user with `message`"),
        "{}",
        poet(&harness).system
    );
    assert!(poet(&harness).system.contains("independent tool calls"), "{}", poet(&harness).system);
    let harness = ContractHarness::with(&replies, |settings| {
        settings.permissions.deny = vec!["message".parse().unwrap()]
    });
    harness.run().await;
    assert!(!poet(&harness).tools.contains(&"message".to_owned()));
    assert!(!poet(&harness).system.contains("message"), "{}", poet(&harness).system);
}

/// Nothing is added to a prompt that the user wrote.
#[tokio::test]
async fn user_prompts_are_used_unchanged() {
    let harness = ContractHarness::with(
        &[
            calls(
                "lead",
                1,
                &[
                    ("delegate", json!({ "role": "Writer", "task": "go" })),
                    ("delegate", json!({ "role": "Poet", "task": "go" })),
                    spawn("nested"),
                ],
            ),
            says("lead", "end"),
            json!({ "text": "done" }),
        ],
        |settings| {
            let swarm = &mut settings.delegation_styles.swarm;
            let writer = brigade::core::delegation_styles::delegate::SwarmRole {
                system_prompt: "You write.".to_owned(),
                ..Default::default()
            };
            swarm.roles = [("writer".to_owned(), writer)].into();
            swarm.adhoc_prompt = Some("Be {role}.".to_owned());
            settings.delegation_styles.spawn.as_mut().unwrap().system_prompt = Some("Go.".to_owned());
        },
    );
    harness.run().await;
    for (name, prompt) in [("Writer", "You write."), ("Poet", "Be Poet."), ("nested", "Go.")] {
        assert_eq!(harness.requests(name).remove(0).system, prompt);
    }
}
