//! Built-in prompts speak only of tools that the agent has.

use std::collections::BTreeSet;

use brigade::core::Face;
use brigade::core::faces::{DELEGATION_TOOLS, Offer};
use brigade::{Catalogue, Settings};
use serde_json::{Value, json};

use super::{Scene, agent, calls, helper, says, spawn};

/// The delegation tools that a prompt names.
fn named(system: &str) -> Vec<&'static str> {
    DELEGATION_TOOLS.into_iter().filter(|tool| system.contains(&format!("`{tool}`"))).collect()
}

/// The system prompt of the lead under these settings.
async fn lead(tweak: impl Fn(&mut Settings)) -> String {
    let scene = Scene::with(&[json!({ "text": "done" })], tweak);
    scene.run().await;
    scene.requests("lead").remove(0).system
}

fn only(faces: &[Face]) -> Offer {
    Offer::Only(faces.iter().copied().collect::<BTreeSet<_>>())
}

#[tokio::test]
async fn the_lead_is_told_of_the_delegation_tools_that_it_has() {
    let auto = lead(|settings| settings.faces.subagent = None).await;
    assert_eq!(named(&auto), ["delegate", "subagent_spawn", "subagent_delegate"], "{auto}");
    let helpers = lead(|settings| settings.faces.delegation.faces = only(&[Face::Subagent])).await;
    assert_eq!(named(&helpers), ["subagent", "parallel_subagent"], "{helpers}");
    let agents = lead(|settings| {
        settings.faces.delegation.faces = only(&[Face::Dispatch]);
        settings.agents = Catalogue::new().with(agent("reviewer"));
    })
    .await;
    assert_eq!(named(&agents), ["subagent_dispatch"], "{agents}");
}

#[tokio::test]
async fn a_lead_that_cannot_delegate_is_not_invited_to() {
    let off = |settings: &mut Settings| {
        settings.faces.delegation.faces = only(&[Face::Delegate]);
        settings.faces.swarm.enabled = false;
    };
    let flat = |settings: &mut Settings| {
        settings.faces.delegation.faces = only(&[Face::Delegate]);
        settings.faces.swarm.max_depth = 0;
    };
    let denied = |settings: &mut Settings| {
        settings.faces.delegation.faces = only(&[Face::Delegate]);
        settings.permissions.deny = vec!["delegate".parse().unwrap()];
    };
    let none = |settings: &mut Settings| settings.faces.delegation.faces = only(&[]);
    for system in [lead(off).await, lead(flat).await, lead(denied).await, lead(none).await] {
        assert_eq!(named(&system), Vec::<&str>::new(), "{system}");
        assert!(!system.contains("agents") && system.contains("Use your tools"), "{system}");
    }
}

#[tokio::test]
async fn a_helper_at_the_depth_limit_is_not_invited_to_delegate() {
    let scene = Scene::new(&[
        calls("lead", 1, &[helper("one")]),
        calls("one", 1, &[helper("two")]),
        json!({ "text": "done" }),
    ]);
    scene.run().await;
    let (one, two) = (scene.requests("one").remove(0), scene.requests("two").remove(0));
    assert!(named(&one.system).contains(&"subagent"), "{}", one.system);
    // The face stays visible at its limit and refuses there.
    assert!(two.tools.contains(&"subagent".to_owned()), "{:?}", two.tools);
    assert_eq!(named(&two.system), Vec::<&str>::new());
    assert!(two.system.contains("Use your tools") && !two.system.contains("other agents"), "{}", two.system);
}

#[tokio::test]
async fn a_child_without_tools_is_not_told_to_use_tools() {
    let bare: [(&str, Value); 3] = [
        ("delegate", json!({ "role": "Poet", "task": "go", "tools": [] })),
        ("subagent_delegate", json!({ "task": "go", "description": "one answer" })),
        (
            "parallel_subagent",
            json!({ "tasks": [{ "label": "bare", "task_prompt": "go", "allowed_tools": [] }] }),
        ),
    ];
    let scene =
        Scene::with(&[calls("lead", 1, &bare), says("lead", "end"), json!({ "text": "done" })], |settings| {
            settings.faces.subagent.as_mut().unwrap().max_depth = 2;
        });
    scene.run().await;
    for name in ["Poet", "one answer", "bare"] {
        let system = scene.requests(name).remove(0).system;
        assert!(!system.contains("tools") && !system.contains("other agents"), "{name}: {system}");
        assert!(system.contains("caller"), "{name}: {system}");
    }
    // The one tool that a role always has is named.
    assert!(scene.requests("Poet").remove(0).system.contains("`message`"));
}

#[tokio::test]
async fn c09_a_role_is_told_of_message_if_it_has_it() {
    let replies = [
        calls("lead", 1, &[("delegate", json!({ "role": "Poet", "task": "go" }))]),
        json!({ "text": "done" }),
    ];
    let poet = |scene: &Scene| scene.requests("Poet").remove(0);
    let scene = Scene::new(&replies);
    scene.run().await;
    assert!(poet(&scene).system.contains("send it with the `message` tool"), "{}", poet(&scene).system);
    assert!(poet(&scene).system.contains("Use your tools"), "{}", poet(&scene).system);
    let scene =
        Scene::with(&replies, |settings| settings.permissions.deny = vec!["message".parse().unwrap()]);
    scene.run().await;
    assert!(!poet(&scene).tools.contains(&"message".to_owned()));
    assert!(!poet(&scene).system.contains("message"), "{}", poet(&scene).system);
}

/// Nothing is added to a prompt that somebody wrote.
#[tokio::test]
async fn prompts_of_the_user_are_used_as_they_are() {
    let scene = Scene::with(
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
            let swarm = &mut settings.faces.swarm;
            let writer = brigade::core::faces::delegate::SwarmRole {
                system_prompt: "You write.".to_owned(),
                ..Default::default()
            };
            swarm.roles = [("writer".to_owned(), writer)].into();
            swarm.adhoc_prompt = Some("Be {role}.".to_owned());
            settings.faces.spawn.as_mut().unwrap().system_prompt = Some("Go.".to_owned());
        },
    );
    scene.run().await;
    for (name, prompt) in [("Writer", "You write."), ("Poet", "Be Poet."), ("nested", "Go.")] {
        assert_eq!(scene.requests(name).remove(0).system, prompt);
    }
}
