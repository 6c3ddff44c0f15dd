//! Models, tools and rules of children, and where they come from.

use std::borrow::Cow;

use brigade::core::delegation_styles::delegate::Retention;
use brigade::core::delegation_styles::subagent::SubagentConfig;
use brigade::core::event::Effect;
use brigade::core::permission::Mode;
use brigade::core::{Agent, Event, Purpose, Status, ToolOutput};
use brigade::{AgentCatalog, ResumeOptions, Task, Tool, ToolContext};
use serde_json::{Value, json};

use super::{
    ContractHarness, agent, call_each_style, calls, dispatch, helper, list, says, script, session_of, spawn,
};
use crate::run::support::{Harness, end};

#[tokio::test]
async fn c57_dispatched_session_is_listed_and_resumes_as_its_agent() {
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[dispatch("reviewer")]),
            says("lead", "{results}"),
            json!({ "agent": "reviewer", "turn": 1, "text": "first look" }),
            says("reviewer", "you said: {heard}"),
        ],
        |settings| {
            let reviewer = Agent { tools: Some(list(&["read_file", "grep"])), ..agent("reviewer") };
            settings.agents = AgentCatalog::new().with(reviewer);
        },
    );
    let ending = harness.run().await;
    let result: Value = serde_json::from_str(ending.outcome.text.as_str()).unwrap();
    let child: brigade::core::SessionId = result["session_id"].as_str().unwrap().parse().unwrap();
    let listed = harness.runtime.store().roots().await.unwrap();
    assert!(listed.iter().any(|summary| summary.root == child), "it is in the history");
    assert_eq!(listed.len(), 2);
    harness.runtime.tell(&child, "and the tests?").await.unwrap();
    let again = end(harness.runtime.resume(&child, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!((again.session, again.outcome.text.as_str()), (child, "you said: and the tests?"));
    let last = harness.requests("reviewer").pop().unwrap();
    assert_eq!(last.system, "You are reviewer.");
    assert_eq!(last.tools, ["grep", "read_file"]);
}

/// A session that is resumed on its own keeps the authority it was lent, regardless of its definition.
#[tokio::test]
async fn c57_resumed_session_keeps_its_granted_authority() {
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[dispatch("coder")]),
            says("lead", "{results}"),
            json!({ "agent": "coder", "turn": 1, "text": "first" }),
            says("coder", "again"),
        ],
        |settings| {
            settings.lead.lend = Some(list(&["read_file"]));
            let coder = Agent { tools: Some(list(&["read_file", "write_file"])), ..agent("coder") };
            settings.agents = AgentCatalog::new().with(coder);
        },
    );
    let ending = harness.run().await;
    let child = session_of(&harness.tree(&ending.session).await, "coder");
    harness.runtime.tell(&child, "write it").await.unwrap();
    end(harness.runtime.resume(&child, ResumeOptions::default()).await.unwrap()).await.unwrap();
    for request in harness.requests("coder") {
        assert_eq!(request.tools, ["read_file"]);
    }
}

/// Deny rules of the caller's definition still apply when the session is resumed on its own.
#[tokio::test]
async fn c71_resumed_session_keeps_its_permission_rules() {
    let write = [("write_file", json!({ "path": "x.txt", "content": "x" }))];
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[dispatch("coder")]),
            says("lead", "{results}"),
            json!({ "agent": "coder", "turn": 1, "text": "first" }),
            calls("coder", 2, &write),
            says("coder", "{results}"),
        ],
        |settings| {
            settings.lead.deny = vec!["write_file".parse().unwrap()];
            settings.agents = AgentCatalog::new().with(agent("coder"));
        },
    );
    let ending = harness.run().await;
    let child = session_of(&harness.tree(&ending.session).await, "coder");
    harness.runtime.tell(&child, "write it").await.unwrap();
    let again = end(harness.runtime.resume(&child, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert!(!harness.folder.path().join("x.txt").exists());
    assert!(again.outcome.text.as_str().contains("`write_file` is not allowed"), "{}", again.outcome.text);
}

#[tokio::test]
async fn c59_overrides_of_a_definition_are_applied_and_the_rest_is_inherited() {
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[dispatch("coder"), dispatch("plain"), dispatch("fast")]),
            says("lead", "{results}"),
            calls("coder", 1, &[helper("below")]),
            json!({ "text": "done" }),
        ],
        |settings| {
            let coder = Agent {
                provider: Some("two".to_owned()),
                model: Some("big".to_owned()),
                max_tokens: Some(99),
                ..agent("coder")
            };
            let fast = Agent { model: Some("small".to_owned()), ..agent("fast") };
            settings.agents = AgentCatalog::new().with(coder).with(agent("plain")).with(fast);
        },
    );
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    let used = |name: &str| {
        let request = harness.requests(name).remove(0);
        (request.provider, request.model, request.max_tokens)
    };
    assert_eq!(used("coder"), ("two", "big".to_owned(), 99));
    assert_eq!(used("fast").0, "one");
    assert_eq!(used("fast").1, "small");
    let (lead, plain) = (used("lead"), used("plain"));
    assert_eq!(plain, lead);
    // A helper uses the model of its caller, not that of the root.
    assert_eq!((used("below").0, used("below").1.as_str()), ("two", "big"));
}

#[tokio::test]
async fn c60_a_dispatched_agent_prints_nothing_itself() {
    let words = [("message", json!({ "text": "hear me" }))];
    let harness = ContractHarness::with(
        &[
            calls("lead", 1, &[dispatch("quiet"), dispatch("speaker")]),
            says("lead", "end"),
            calls("quiet", 1, &words),
            calls("speaker", 1, &words),
            json!({ "text": "done" }),
        ],
        |settings| {
            let speaker = Agent { tools: Some(list(&["message"])), ..agent("speaker") };
            settings.agents = AgentCatalog::new().with(agent("quiet")).with(speaker);
        },
    );
    let ending = harness.run().await;
    let tree = harness.tree(&ending.session).await;
    let said: Vec<(&str, &str)> =
        tree.agent_messages().iter().map(|said| (said.role.as_str(), said.text.as_str())).collect();
    assert_eq!(said, [("speaker", "hear me")]);
    let answers = harness.answers(&session_of(&tree, "quiet")).await;
    assert!(answers[0].contains("Unknown tool `message`"), "{answers:?}");
}

/// A rule of the user and a rule of the parent's own definition apply to the children of every style.
#[tokio::test]
async fn c71_the_parents_denial_binds_the_child() {
    for own_rule in [false, true] {
        for call in call_each_style("child") {
            let write = [("write_file", json!({ "path": "x.txt", "content": "x" }))];
            let harness = ContractHarness::with(
                &[calls("lead", 1, &[call]), calls("child", 1, &write), json!({ "text": "{results}" })],
                |settings| {
                    settings.agents =
                        AgentCatalog::new().with(Agent { mode: Some(Mode::Auto), ..agent("child") });
                    settings.permissions.mode = Mode::Auto;
                    let rule = "write_file".parse().unwrap();
                    if own_rule {
                        settings.lead.deny = vec![rule];
                    } else {
                        settings.permissions.deny = vec![rule];
                    }
                },
            );
            let ending = harness.run().await;
            assert!(!harness.folder.path().join("x.txt").exists());
            let child = session_of(&harness.tree(&ending.session).await, "child");
            let answers = harness.answers(&child).await;
            assert!(answers[0].contains("`write_file` is not allowed"), "{answers:?}");
        }
    }
}

/// A child needs approval for everything that its parent needs approval for.
#[tokio::test]
async fn c71_a_child_is_no_freer_than_the_mode_of_its_parent() {
    for call in call_each_style("child") {
        let write = [("write_file", json!({ "path": "x.txt", "content": "x" }))];
        let harness = ContractHarness::with(
            &[calls("lead", 1, &[call]), calls("child", 1, &write), json!({ "text": "{results}" })],
            |settings| {
                settings.agents =
                    AgentCatalog::new().with(Agent { mode: Some(Mode::Auto), ..agent("child") });
                settings.permissions.mode = Mode::Plan;
            },
        );
        harness.run().await;
        assert!(!harness.folder.path().join("x.txt").exists());
    }
}

#[tokio::test]
async fn c83_message_under_a_whitelist_and_with_none() {
    let words = [("message", json!({ "text": "from {role}" }))];
    let harness = ContractHarness::new(&[
        calls(
            "lead",
            1,
            &[
                ("delegate", json!({ "role": "Listed", "task": "go", "tools": ["grep"] })),
                ("delegate", json!({ "role": "Bare", "task": "go", "tools": [] })),
                ("subagent", json!({ "label": "silent", "task_prompt": "go", "allowed_tools": [] })),
                helper("inherits"),
                spawn("spawned"),
            ],
        ),
        says("lead", "end"),
        calls("Listed", 1, &words),
        calls("Bare", 1, &words),
        calls("silent", 1, &words),
        calls("inherits", 1, &words),
        calls("spawned", 1, &words),
        json!({ "text": "done" }),
    ]);
    let ending = harness.run().await;
    let tree = harness.tree(&ending.session).await;
    let mut said: Vec<&str> = tree.agent_messages().iter().map(|said| said.text.as_str()).collect();
    said.sort_unstable();
    assert_eq!(said, ["from Bare", "from Listed", "from inherits", "from spawned"]);
    assert_eq!(harness.requests("Bare")[0].tools, ["message"]);
    assert_eq!(harness.requests("silent")[0].tools, ["subagent", "parallel_subagent"]);
}

#[tokio::test]
async fn c85_planner_lends_unused_tools_unless_restricted() {
    for lends_nothing in [false, true] {
        let harness = ContractHarness::with(
            &[
                calls(
                    "planner",
                    1,
                    &[("write_file", json!({ "path": "p.txt", "content": "x" })), dispatch("coder")],
                ),
                says("planner", "{result:1}"),
                calls("coder", 1, &[("write_file", json!({ "path": "c.txt", "content": "x" }))]),
                says("coder", "done"),
            ],
            |settings| {
                let coder = Agent { tools: Some(list(&["write_file"])), ..agent("coder") };
                settings.agents = AgentCatalog::new().with(coder);
            },
        );
        let lend = lends_nothing.then(Vec::new);
        let planner = Agent { tools: Some(list(&["read_file"])), lend, ..agent("planner") };
        let ending = harness.run_task(Task::new("plan it").agent(planner)).await;
        assert!(!harness.folder.path().join("p.txt").exists());
        assert_eq!(harness.folder.path().join("c.txt").exists(), !lends_nothing);
        let result: Value = serde_json::from_str(ending.outcome.text.as_str()).unwrap();
        let note = if lends_nothing {
            "done\n(warning: tools not granted, because they are unknown or you cannot pass them on: write_file)"
        } else {
            "done"
        };
        assert_eq!(result["result"], note);
    }
}

/// `tools` in an agent file bound its ad-hoc children, also if the agent is the root.
#[tokio::test]
async fn root_with_a_whitelist_lends_ad_hoc_children_no_other_tool() {
    let write = [("write_file", json!({ "path": "x.txt", "content": "x" }))];
    let wants = json!(["read_file", "write_file", "shell"]);
    let made_up = [
        ("delegate", json!({ "role": "Adhoc", "task": "go", "tools": wants })),
        ("delegate", json!({ "role": "Bare", "task": "go" })),
        ("delegate", json!({ "role": "Preset", "task": "go" })),
        ("subagent", json!({ "label": "Helper", "task_prompt": "go", "allowed_tools": wants })),
        helper("Heir"),
        spawn("Spawned"),
        dispatch("open"),
    ];
    let names = ["Adhoc", "Bare", "Preset", "Heir", "Spawned", "open"];
    let mut replies = vec![calls("reader", 1, &made_up), says("reader", "{results}")];
    replies.extend(names.iter().map(|name| calls(name, 1, &write)));
    replies.push(json!({ "text": "done" }));
    let harness = ContractHarness::with(&replies, |settings| {
        settings.permissions.mode = Mode::Auto;
        settings.agents = AgentCatalog::new().with(agent("open"));
        settings.delegation_styles.swarm.roles =
            [("Preset".to_owned(), brigade::core::delegation_styles::delegate::SwarmRole::default())].into();
    });
    let reader = Agent { tools: Some(list(&["read_file"])), ..agent("reader") };
    let ending = harness.run_task(Task::new("read").agent(reader)).await;
    assert!(!harness.folder.path().join("x.txt").exists());
    let answers = harness.answers(&ending.session).await;
    assert_eq!(
        answers[0],
        "[Adhoc]: done\n(warning: tools not granted, because they are unknown or you cannot pass them on: write_file, shell)"
    );
    assert_eq!(answers[3], "Unknown tool in allowed_tools: write_file");
    for name in names {
        let request = harness.requests(name).remove(0);
        let foreign = |tool: &&String| !matches!(tool.as_str(), "read_file" | "message");
        let foreign: Vec<&String> = request.tools.iter().filter(foreign).collect();
        let delegates =
            |tool: &&String| brigade::core::delegation_styles::DELEGATION_TOOLS.contains(&tool.as_str());
        assert!(foreign.iter().all(delegates), "{name} has {foreign:?}");
        assert!(request.tools.iter().any(|tool| tool == "read_file"), "{name}");
    }
}

/// A label may be any text, so it is not refused. Its display distinguishes it from the lead.
#[tokio::test]
async fn label_like_the_lead_is_distinguished_from_it() {
    let harness = ContractHarness::with(
        &[calls("boss", 1, &[helper("Boss"), spawn("lead")]), json!({ "text": "done" })],
        |_| {},
    );
    let boss = Agent { name: "Boss".to_owned(), ..agent("boss") };
    let ending = harness.run_task(Task::new("go").agent(boss)).await;
    let tree = harness.tree(&ending.session).await;
    let helper = tree.node(&session_of(&tree, "Boss (sub-agent)")).unwrap();
    assert_eq!(helper.metadata().unwrap()["subagent_label"], "Boss");
    session_of(&tree, "lead (sub-agent)");
}

#[tokio::test]
async fn role_named_like_the_lead_is_refused() {
    let roles = ["lead", "Lead", " LEAD ", "ｌｅａｄ", "Boss"];
    let made_up: Vec<(&str, Value)> =
        roles.iter().map(|role| ("delegate", json!({ "role": role, "task": "go" }))).collect();
    let harness = ContractHarness::with(&[calls("boss", 1, &made_up), json!({ "text": "done" })], |_| {});
    let boss = Agent { name: "Boss".to_owned(), ..agent("boss") };
    let ending = harness.run_task(Task::new("go").agent(boss)).await;
    let answers = harness.answers(&ending.session).await;
    assert_eq!(answers.len(), made_up.len());
    for answer in answers {
        assert!(answer.contains("is the name of the agent that leads this run"), "{answer}");
    }
    assert_eq!(harness.runtime.store().sessions(&ending.session).await.unwrap().len(), 1);
}

#[tokio::test]
async fn tool_that_a_rule_denies_outright_is_not_offered() {
    let harness = ContractHarness::with(&[json!({ "text": "done" })], |settings| {
        settings.permissions.deny = ["write_file", "message", "delegate", "grep(secret/**)"]
            .map(|rule| rule.parse().unwrap())
            .to_vec();
    });
    harness.run().await;
    let offered = harness.requests("lead").remove(0).tools;
    for denied in ["write_file", "message", "delegate"] {
        assert!(!offered.iter().any(|tool| tool == denied), "{denied} is offered: {offered:?}");
    }
    assert!(offered.iter().any(|tool| tool == "grep"), "a part of it is denied, not all");
}

/// A tool with the name that one of an MCP server has.
struct ListIssues;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct ListIssuesInput {}

impl Tool for ListIssues {
    const NAME: &'static str = "mcp__github__list";
    type Input = ListIssuesInput;

    fn description(&self) -> Cow<'static, str> {
        "List issues.".into()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    async fn run(&self, _: ListIssuesInput, _: &ToolContext) -> ToolOutput {
        ToolOutput::ok("none")
    }
}

#[tokio::test]
async fn mcp_tools_of_the_lead_match_in_any_letter_case() {
    for (name, is_offered) in
        [("mcp__GitHub__List", true), ("MCP__GITHUB__*", true), ("mcp__gitlab__*", false)]
    {
        let harness = ContractHarness::with(&[json!({ "text": "done" })], |settings| {
            settings.tools = settings.tools.clone().with(ListIssues);
        });
        let boss = Agent { tools: Some(list(&[name])), ..agent("boss") };
        harness.run_task(Task::new("go").agent(boss)).await;
        let offered = harness.requests("boss").remove(0).tools;
        assert_eq!(offered.iter().any(|tool| tool == ListIssues::NAME), is_offered, "{name}: {offered:?}");
    }
}

#[tokio::test]
async fn definition_that_lacks_requested_tools_is_reported_to_the_caller() {
    let call = ("delegate", json!({ "role": "Coder", "task": "go", "tools": ["read_file", "write_file"] }));
    let harness = ContractHarness::with(
        &[calls("lead", 1, &[call]), says("lead", "{results}"), json!({ "text": "done" })],
        |settings| {
            let coder = Agent { tools: Some(list(&["read_file"])), ..agent("coder") };
            settings.agents = AgentCatalog::new().with(coder);
        },
    );
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    assert_eq!(
        answers[0],
        "[Coder]: done\n(warning: tools not granted, because 'coder' does not have them: write_file)"
    );
}

/// Summaries and single generations have no tools.
#[tokio::test]
async fn c65_reports_and_single_generations_are_asked_without_tools() {
    let harness = ContractHarness::new(&[
        calls(
            "lead",
            1,
            &[helper("h"), ("subagent_delegate", json!({ "task": "go", "description": "single" }))],
        ),
        json!({ "text": "done" }),
    ]);
    harness.run().await;
    let helper = harness.requests("h");
    assert_eq!((helper[0].purpose, helper[1].purpose), (Purpose::Turn, Purpose::Summary));
    assert!(!helper[0].tools.is_empty() && helper[1].tools.is_empty());
    let single = harness.requests("single");
    assert_eq!((single.len(), single[0].tools.len()), (1, 0));
}

#[tokio::test]
async fn definition_bounds_its_rounds_wherever_they_start() {
    let endless =
        |agent: &str| json!({ "agent": agent, "call": [{ "tool": "echo", "arguments": { "text": "x" } }] });
    let bounded = Agent { max_turns: Some(2), ..agent("bounded") };
    let last = json!({ "purpose": "grace", "text": "so far" });
    let incomplete = Status::Incomplete { limit: brigade::core::delegation::LimitKind::Turns };
    let definition = bounded.clone();
    let harness = ContractHarness::with(
        &[calls("lead", 1, &[dispatch("bounded")]), says("lead", "{results}"), last, endless("bounded")],
        move |settings| settings.agents = AgentCatalog::new().with(definition.clone()),
    );
    // As a child, as a root, and when its session is resumed.
    let ending = harness.run().await;
    assert!(ending.outcome.text.as_str().contains("so far\\n(incomplete: turns)"), "{}", ending.outcome.text);
    let top = harness.run_task(Task::new("go").agent(bounded)).await;
    assert_eq!((top.outcome.status, top.spent.turns), (incomplete.clone(), 3));
    let child = session_of(&harness.tree(&ending.session).await, "bounded");
    harness.runtime.tell(&child, "go on").await.unwrap();
    let again = end(harness.runtime.resume(&child, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!((again.outcome.status, again.spent.turns), (incomplete, 3));
}

/// Sessions that are kept only while the root runs are removed, by style. A dispatched session stays, with its
/// ancestors.
#[tokio::test]
async fn keep_none_removes_only_sessions_of_its_style() {
    let replies = [
        calls(
            "lead",
            1,
            &[("delegate", json!({ "role": "A", "task": "go" })), helper("B"), helper("over"), dispatch("c")],
        ),
        calls("over", 1, &[dispatch("deep")]),
        calls("c", 1, &[helper("under")]),
        json!({ "text": "done" }),
    ];
    for (swarm, subagent, gone) in [
        (Retention::None, Retention::Root, vec!["A"]),
        (Retention::Root, Retention::None, vec!["B", "under"]),
        (Retention::None, Retention::None, vec!["A", "B", "under"]),
    ] {
        let harness = ContractHarness::with(&replies, |settings| {
            settings.agents = AgentCatalog::new().with(agent("c")).with(agent("deep"));
            settings.delegation_styles.swarm.keep = swarm;
            settings.delegation_styles.subagent =
                Some(SubagentConfig { keep: subagent, ..SubagentConfig::default() });
        });
        let root = end(harness.runtime.start(Task::new("go")).await.unwrap()).await.unwrap().session;
        let left = harness.runtime.store().sessions(&root).await.unwrap();
        let mut labels: Vec<String> = Vec::new();
        for session in left {
            let first = harness.runtime.store().read(&session, 0).await.unwrap().remove(0);
            if let Event::Started { delegation, .. } = first.event {
                labels.push(delegation.role.clone().or_else(|| delegation.agent.clone()).unwrap());
            }
        }
        labels.sort_unstable();
        let mut expected = vec!["A", "B", "c", "deep", "lead", "over", "under"];
        expected.retain(|label| !gone.contains(label));
        assert_eq!(labels, expected);
    }
}

/// A helper whose session the user resumed has started twice. It is removed once.
#[tokio::test]
async fn keep_none_removes_a_continued_session() {
    let replies = [calls("lead", 1, &[helper("h")]), json!({ "text": "done" })];
    let harness = |keep: Retention| {
        let keeps = move |settings: &mut brigade::Settings| {
            settings.delegation_styles.subagent = Some(SubagentConfig { keep, ..SubagentConfig::default() });
        };
        Harness::with(script(&replies), keeps)
    };
    let (first, mut second) = (harness(Retention::Root), harness(Retention::None));
    second.store = first.store.clone();
    let root = first.run().await.session;
    let child: brigade::core::SessionId = format!("{root}.1-0").parse().unwrap();
    first.runtime().tell(&child, "more").await.unwrap();
    end(first.runtime().resume(&child, ResumeOptions::default()).await.unwrap()).await.unwrap();
    second.runtime().tell(&root, "and now?").await.unwrap();
    let ending = end(second.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(ending.outcome.status, Status::Done);
}
