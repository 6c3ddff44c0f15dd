//! Agents that each style builds, the authority they request, and results of parallel calls.

use std::sync::Arc;

use super::*;
use crate::agent::Guidance;
use crate::delegation_styles::looks_like;
use crate::grant::AuthorityRequest;

fn roles() -> DelegationStyles {
    let swarm = serde_json::from_value(json!({
        "model": "local/usual",
        "roles": {
            "Writer": { "system_prompt": "You write.", "tools": ["read_file"], "lend": ["grep", "cat"],
                        "tokens": 500, "usd": 2, "model": "local/big" },
            "Outside": { "system_prompt": "Be brief.", "acp": "gemini", "tokens": 700 },
        }
    }));
    DelegationStyles { swarm: swarm.unwrap(), ..all_styles() }
}

fn prepared(style: DelegationStyle, role: &str) -> (Agent, AuthorityRequest) {
    let delegation = Delegation { style, role: Some(role.to_owned()), ..Delegation::default() };
    roles().prepare_child(&delegation, &TestAgent::root().caller(), None)
}

#[test]
fn agent_of_a_role_has_its_settings() {
    let (agent, request) = prepared(DelegationStyle::Delegate, "WRITER");
    assert_eq!(
        (agent.id.as_str(), agent.name.as_str(), agent.prompt.as_str()),
        ("writer", "WRITER", "You write.")
    );
    assert_eq!((agent.budget, agent.guidance), (Budget::of(Some(500), Some(2_000_000_000)), Guidance::None));
    assert_eq!((agent.model.as_deref(), agent.backend), (Some("local/big"), Backend::Here));
    assert_eq!(
        (request.tools, request.lend),
        (Some(list(&["read_file"])), Some(list(&["grep", "read_file"])))
    );
    let (agent, request) = prepared(DelegationStyle::Delegate, "Painter");
    assert_eq!(
        (agent.model.as_deref(), agent.guidance, agent.budget),
        (Some("local/usual"), Guidance::Role, None)
    );
    assert!(agent.prompt.starts_with("You are Painter, a sub-agent."));
    assert_eq!((request.tools, request.lend), (None, None));
}

#[test]
fn external_agent_of_a_role_has_its_settings() {
    let (agent, _) = prepared(DelegationStyle::Delegate, "Outside");
    assert_eq!(
        (agent.id.as_str(), agent.name.as_str(), agent.prompt.as_str()),
        ("outside", "Outside", "Be brief.")
    );
    assert_eq!((agent.budget, agent.model), (Budget::of(Some(700), None), None));
    assert_eq!(agent.backend, Backend::Acp("gemini".to_owned()));
}

#[test]
fn role_with_an_external_agent_and_a_model_is_a_problem() {
    let mut styles = roles();
    assert_eq!(styles.swarm.problem(), None);
    if let Some(role) = styles.swarm.roles.get_mut("Outside") {
        role.model = Some("local/big".to_owned());
    }
    assert!(styles.swarm.problem().unwrap().contains("`model` cannot be combined with `acp`"));
}

#[test]
fn names_look_alike_if_case_width_and_composition_are_ignored() {
    assert!(looks_like("Writer", " writer ") && looks_like("\u{ff37}riter", "writer"));
    assert!(looks_like("\u{e9}", "e\u{301}") && !looks_like("writer", "writers"));
}

#[test]
fn helpers_have_a_name_and_the_guidance_of_their_style() {
    for style in [DelegationStyle::Subagent, DelegationStyle::Spawn] {
        let (agent, _) = prepared(style, "Look Here");
        assert_eq!((agent.id.as_str(), agent.name.as_str()), ("look here", "Look Here"));
        assert_eq!(agent.guidance, Guidance::Helper);
        assert!(!agent.prompt.is_empty());
    }
    let arguments = r#"{"task":" Go there ","description":"Go"}"#;
    let plan = all_styles().plan(spawn::NAME, &TestAgent::root().caller(), arguments).unwrap();
    assert_eq!(plan.delegations[0].task.as_str(), "Go there");
}

#[test]
fn helper_has_the_tools_of_its_style_once_if_its_caller_may_use_and_lend_them() {
    let own = [subagent::NAME, subagent::PARALLEL_NAME];
    let delegation = Delegation { style: DelegationStyle::Subagent, ..Delegation::default() };
    let requested = |agent: &TestAgent, tools: Option<&[&str]>| {
        let delegation = Delegation { tools: tools.map(list), ..delegation.clone() };
        let tools = all_styles().prepare_child(&delegation, &agent.caller(), None).1.tools.unwrap();
        tools.into_iter().filter(|tool| own.contains(&tool.as_str())).collect::<Vec<_>>()
    };
    let mut agent = TestAgent::root();
    let mut both = requested(&agent, None);
    both.sort();
    assert_eq!(both, [subagent::PARALLEL_NAME, subagent::NAME]);
    assert_eq!(requested(&agent, Some(&["grep"])), own);
    agent.authority.lend.remove(subagent::NAME);
    agent.authority.tools.remove(subagent::PARALLEL_NAME);
    assert_eq!(requested(&agent, Some(&["grep"])), Vec::<String>::new());
}

#[test]
fn parallel_call_has_at_most_1000_tasks() {
    let planned = |count: usize| {
        let task = json!({ "label": "a", "task_prompt": "x" });
        let arguments = json!({ "tasks": vec![task; count] }).to_string();
        let plan = all_styles().plan(subagent::PARALLEL_NAME, &TestAgent::root().caller(), &arguments);
        plan.map(|plan| plan.delegations.len()).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(planned(1000), Ok(1000));
    assert_eq!(planned(1001), Err("`tasks` has 1001 entries, more than the limit of 1000".to_owned()));
}

#[test]
fn call_of_a_helper_records_the_size_of_its_report() {
    let plan = all_styles().plan(subagent::NAME, &TestAgent::root().caller(), CALLS[1].1).unwrap();
    assert_eq!(plan.delegations[0].report_bytes, Some(SubagentConfig::default().output_max_size));
}

#[test]
fn parallel_reports_share_the_limit_only_if_they_exceed_it() {
    let ended = |status: Status, bytes: usize| {
        let delegation = Delegation { role: Some("a".to_owned()), ..Delegation::default() };
        let outcome = Outcome::new(status, "x".repeat(bytes));
        (Arc::new(delegation), ChildResult { outcome, tokens: 7, duration_ms: 9 })
    };
    let failed = Status::Failed { cause: "no key".to_owned() };
    let children = [ended(Status::Done, 600), ended(failed, 400), ended(Status::Done, 200)];
    let rendered = |limit: usize| -> Value {
        let output = SubagentConfig::default().render_parallel(&children, 11, limit);
        serde_json::from_str(output.text.as_str()).unwrap()
    };
    let size = |value: &Value| value["results"][0]["output"].as_str().unwrap().len();
    let whole = rendered(1200);
    assert_eq!(size(&whole), 600);
    assert_eq!((&whole["successful"], &whole["failed"]), (&json!(2), &json!(1)));
    assert_eq!(
        (&whole["results"][1]["success"], &whole["results"][1]["error"]),
        (&json!(false), &json!("no key"))
    );
    let marker = "\n... (truncated)".len();
    assert_eq!(size(&rendered(1199)), 399 + marker);
    assert_eq!(size(&rendered(300)), 256 + marker, "each report has a minimum size");
}
