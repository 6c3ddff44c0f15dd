//! Common parts of the delegation styles: which tools are offered, extra parameters, models and rendering.

mod children;

use std::collections::BTreeSet;

use super::child_model::choose_model;
use super::testing::{TestAgent, all_styles, list, named};
use super::titles::Title;
use super::*;
use crate::delegation::{Execution, LimitKind};
use crate::grant::Limit;
use crate::permission::Mode;
use crate::{Budget, Status};
use serde_json::{Value, json};

const CALLS: [(&str, &str); 6] = [
    (delegate::NAME, r#"{"role":"Writer","task":"Write"}"#),
    (subagent::NAME, r#"{"label":"Look","task_prompt":"Look"}"#),
    (subagent::PARALLEL_NAME, r#"{"tasks":[{"label":"Look","task_prompt":"Look"}]}"#),
    (dispatch::NAME, r#"{"agent_id":"reader","task":"Read"}"#),
    (spawn::NAME, r#"{"task":"Go","description":"Go"}"#),
    (spawn::DELEGATE_NAME, r#"{"task":"Ask","description":"Ask"}"#),
];

fn style_of_tool(tool: &str) -> Option<DelegationStyle> {
    all_styles().of_tool(tool).map(|style| style.info().id)
}

fn styles_of(json: Value) -> Result<EnabledStyles, String> {
    serde_json::from_value(json).map_err(|error| error.to_string())
}

fn with_extras(extras: &[ExtraParameter]) -> DelegationStyles {
    let delegation =
        DelegationConfig { extras: extras.iter().copied().collect(), ..DelegationConfig::default() };
    DelegationStyles { delegation, ..all_styles() }
}

fn only(styles: &[DelegationStyle]) -> DelegationStyles {
    let styles = EnabledStyles::Only(styles.iter().copied().collect());
    let delegation = DelegationConfig { styles, ..DelegationConfig::default() };
    DelegationStyles { delegation, ..all_styles() }
}

#[test]
fn styles_of_a_list_are_exactly_these_with_default_settings() {
    let styles = DelegationStyles::from([DelegationStyle::Subagent, DelegationStyle::Spawn]);
    assert_eq!(styles.delegation, only(&[DelegationStyle::Subagent, DelegationStyle::Spawn]).delegation);
    assert_eq!(
        DelegationStyles { delegation: DelegationConfig::default(), ..styles },
        DelegationStyles::default()
    );
}

/// Plans a `delegate` call with one more argument.
fn planned(styles: &DelegationStyles, argument: &str) -> Result<Delegation, String> {
    let arguments = format!(r#"{{"role":"Writer","task":"Write",{argument}}}"#);
    let plan = styles.plan(delegate::NAME, &TestAgent::root().caller(), &arguments);
    plan.map(|plan| plan.delegations[0].clone()).map_err(|refusal| refusal.to_string())
}

#[test]
fn styles_are_read_from_a_word_a_list_in_text_or_a_list() {
    use DelegationStyle::{Delegate, Dispatch, Spawn, Subagent};
    let only = |styles: &[DelegationStyle]| Ok(EnabledStyles::Only(styles.iter().copied().collect()));
    assert_eq!(styles_of(json!("auto")), Ok(EnabledStyles::Auto));
    assert_eq!(styles_of(json!("delegate, spawn")), only(&[Delegate, Spawn]));
    assert_eq!(styles_of(json!(["dispatch", "subagent"])), only(&[Dispatch, Subagent]));
    let error = styles_of(json!(["auto"])).unwrap_err();
    assert!(error.contains("unknown delegation style 'auto'"), "{error}");
    assert!(styles_of(json!("run")).is_err());
    for styles in [json!("auto"), json!(["delegate", "spawn"])] {
        assert_eq!(serde_json::to_value(styles_of(styles.clone()).unwrap()).unwrap(), styles);
    }
}

#[test]
fn section_of_a_style_that_is_not_listed_is_reported() {
    assert_eq!(all_styles().warnings(), Vec::<String>::new());
    let mut styles = only(&[DelegationStyle::Dispatch]);
    let reported = |styles: &DelegationStyles| styles.warnings().join("\n");
    assert!(
        reported(&styles)
            .contains("[subagent] has no effect: `delegation.faces` does not include `subagent`")
    );
    assert!(reported(&styles).contains("[spawn]") && !reported(&styles).contains("[swarm]"));
    styles.swarm.max_concurrent += 1;
    assert!(
        reported(&styles).contains("[swarm] has no effect: `delegation.faces` does not include `delegate`")
    );
    (styles.subagent, styles.spawn) = (None, None);
    assert_eq!(styles.warnings().len(), 1);
    assert!(only(&[DelegationStyle::Subagent, DelegationStyle::Spawn]).warnings().is_empty());
}

#[test]
fn extra_parameters_are_offered_for_calls_with_one_child_of_this_runtime() {
    let styles = with_extras(&[
        ExtraParameter::Background,
        ExtraParameter::Schema,
        ExtraParameter::Tokens,
        ExtraParameter::Usd,
    ]);
    let agent = TestAgent::with_agents(&[named("reader")]);
    for spec in styles.specs(&agent.caller()) {
        let is_plain = [subagent::PARALLEL_NAME, spawn::DELEGATE_NAME].contains(&spec.name.as_str());
        for name in ["background", "schema", "tokens", "usd"] {
            assert_eq!(spec.schema["properties"].get(name).is_none(), is_plain, "{}: {name}", spec.name);
        }
    }
    assert_eq!(agent.offered(&styles).len(), CALLS.len());
}

#[test]
fn usable_tools_are_those_whose_style_may_start_a_child() {
    let styles = all_styles();
    let mut agent = TestAgent::with_agents(&[named("reader")]);
    let usable = |agent: &TestAgent| -> Vec<String> {
        let offered = styles.specs(&agent.caller());
        styles.usable_tools(&agent.caller(), &offered).into_iter().map(str::to_owned).collect()
    };
    assert_eq!(usable(&agent), CALLS.map(|(name, _)| name));
    agent.authority.max_depth = 0;
    assert_eq!(usable(&agent), Vec::<String>::new());
    assert_eq!(agent.offered(&styles), [subagent::NAME, subagent::PARALLEL_NAME]);
    let foreign = ToolSpec { name: "shell".to_owned(), ..styles.swarm.spec(&[]) };
    assert!(styles.usable_tools(&TestAgent::root().caller(), &[foreign]).is_empty());
}

#[test]
fn call_of_a_style_that_is_not_enabled_or_lent_is_refused() {
    let agent = TestAgent::with_agents(&[named("reader")]);
    for (tool, arguments) in CALLS {
        let style = style_of_tool(tool).unwrap();
        let others: Vec<DelegationStyle> = CALLS
            .iter()
            .filter_map(|(name, _)| style_of_tool(name))
            .filter(|other| *other != style)
            .collect();
        let refusal = agent.refused(&only(&others), tool, arguments);
        assert!(refusal.contains("is not available"), "{tool}: {refusal}");
        assert!(!agent.offered(&only(&others)).contains(&tool.to_owned()), "{tool}");
        assert!(only(&[style]).plan(tool, &agent.caller(), arguments).is_ok(), "{tool}");
        let mut without = agent.clone();
        without.authority.tools.remove(tool);
        assert!(without.refused(&all_styles(), tool, arguments).contains("is not available"), "{tool}");
        assert!(!without.offered(&all_styles()).contains(&tool.to_owned()), "{tool}");
    }
    assert!(agent.refused(&all_styles(), "shell", "{}").contains("`shell` is not available"));
}

#[test]
fn background_argument_selects_the_execution() {
    let styles = with_extras(&[ExtraParameter::Background]);
    let execution = |argument: &str| planned(&styles, argument).map(|delegation| delegation.execution);
    for (argument, expected) in [
        (r#""background":true"#, Execution::Background),
        (r#""background":false"#, Execution::Foreground),
        (r#""background":null"#, Execution::Foreground),
        (r#""background":"detach""#, Execution::Detachable),
    ] {
        assert_eq!(execution(argument), Ok(expected), "{argument}");
    }
    for wrong in [r#""background":"later""#, r#""background":1"#] {
        assert!(execution(wrong).unwrap_err().contains("Invalid 'background' argument"), "{wrong}");
    }
    // A parameter that is not enabled is ignored.
    let delegation = planned(&all_styles(), r#""background":true,"tokens":5"#).unwrap();
    assert_eq!((delegation.execution, delegation.budget), (Execution::Foreground, None));
}

#[test]
fn budget_and_schema_arguments_are_read() {
    let styles = with_extras(&[ExtraParameter::Schema, ExtraParameter::Tokens, ExtraParameter::Usd]);
    let delegation = planned(&styles, r#""tokens":"50k","usd":0.5,"schema":{"type":"object"}"#).unwrap();
    let budget =
        Budget { tokens: Limit::AtMost(50_000), usd: Limit::AtMost(500_000_000), agents: Limit::Unlimited };
    assert_eq!(delegation.budget, Some(budget));
    assert_eq!(delegation.schema.unwrap().as_str(), r#"{"type":"object"}"#);
    assert_eq!(planned(&styles, r#""usd":null"#).unwrap().budget, None);
    for (wrong, cause) in [
        (r#""tokens":0"#, "Invalid 'tokens' argument"),
        (r#""usd":-1"#, "Invalid 'usd' argument"),
        (r#""schema":"object""#, "Invalid 'schema' argument"),
    ] {
        assert!(planned(&styles, wrong).unwrap_err().contains(cause), "{wrong}");
    }
}

#[test]
fn single_generation_has_no_extra_parameters() {
    let styles = with_extras(&[ExtraParameter::Background]);
    let plan = |tool: &str, arguments: &str| {
        styles.plan(tool, &TestAgent::root().caller(), arguments).unwrap().delegations[0].execution
    };
    let arguments = r#"{"task":"Ask","description":"Ask","background":true}"#;
    assert_eq!(plan(spawn::DELEGATE_NAME, arguments), Execution::Foreground);
    assert_eq!(plan(spawn::NAME, arguments), Execution::Background);
}

#[test]
fn depth_refusal_names_the_setting() {
    let agent = TestAgent::at(10);
    for (tool, arguments, setting) in [
        (dispatch::NAME, CALLS[3].1, "with `limits.max_depth`"),
        (spawn::NAME, CALLS[4].1, "with `spawn.max_depth` or `limits.max_depth`"),
        (spawn::DELEGATE_NAME, CALLS[5].1, "with `spawn.max_depth` or `limits.max_depth`"),
    ] {
        let refusal = agent.refused(&all_styles(), tool, arguments);
        assert!(refusal.contains("maximum depth (10)") && refusal.contains(setting), "{tool}: {refusal}");
    }
}

#[test]
fn caller_may_name_all_permitted_agents_but_itself() {
    let mut agent = TestAgent::with_agents(&[named("lead"), named("reader"), named("writer")]);
    let callable =
        |agent: &TestAgent| agent.caller().callable_agents().iter().map(|agent| agent.id.clone()).collect();
    let names: Vec<String> = callable(&agent);
    assert_eq!(names, ["reader", "writer"]);
    agent.authority.agents = crate::grant::Names::Only(BTreeSet::from(["writer".to_owned()]));
    let names: Vec<String> = callable(&agent);
    assert_eq!(names, ["writer"]);
}

#[test]
fn child_of_the_same_provider_inherits_the_address_and_the_key() {
    let mut agent = TestAgent::root();
    agent.agent.model = Some("local/big".to_owned());
    agent.agent.api_base = Some("http://caller".to_owned());
    agent.agent.key_of = Some("lead".to_owned());
    let delegation = Delegation { style: DelegationStyle::Dispatch, ..Delegation::default() };
    let child = |definition: Agent| {
        let (agent, request) =
            all_styles().prepare_child(&delegation, &agent.caller(), Some(definition.clone()));
        (agent.model.unwrap_or_default(), agent.api_base, agent.key_of, request.model)
    };
    let text = |text: &str| Some(text.to_owned());
    let inherited = (text("http://caller"), text("lead"));
    let (model, address, key, requested) = child(named("reader"));
    assert_eq!((model.as_str(), (address, key), requested), ("local/big", inherited.clone(), None));
    let (model, address, key, requested) = child(Agent { model: text("local/small"), ..named("reader") });
    assert_eq!((model.as_str(), (address, key)), ("local/small", inherited));
    assert_eq!(requested, text("local/small"), "another model must be permitted");
    let (_, address, key, _) = child(Agent { model: text("other/small"), ..named("reader") });
    assert_eq!((address, key), (None, None));
    let (_, address, key, _) = child(Agent { api_base: text("http://own"), ..named("reader") });
    assert_eq!((address, key), (text("http://own"), None), "the key belongs to the other address");
    let (_, address, key, _) = child(Agent { key_of: text("reader"), ..named("reader") });
    assert_eq!((address, key), (text("http://caller"), text("reader")));
}

#[test]
fn external_child_chooses_its_own_model() {
    let mut agent = TestAgent::root();
    agent.agent.model = Some("local/big".to_owned());
    let delegation = Delegation { style: DelegationStyle::Dispatch, ..Delegation::default() };
    let external = Agent { backend: Backend::Acp("gemini".to_owned()), ..named("reader") };
    let (child, request) = all_styles().prepare_child(&delegation, &agent.caller(), Some(external));
    assert_eq!((child.model, request.model), (None, None));
}

#[test]
fn resolve_model_completes_fallbacks_and_inherits_them_only_with_the_model() {
    let text = |text: &str| Some(text.to_owned());
    let parent =
        Agent { model: text("local/big"), fallbacks: list(&["other/spare", "small"]), ..named("lead") };
    let resolved = |agent: Agent| {
        let mut agent = agent;
        resolve_model(&mut agent, &parent);
        (agent.model.unwrap_or_default(), agent.provider, agent.fallbacks)
    };
    let inherited = list(&["other/spare", "local/small"]);
    assert_eq!(resolved(named("a")), ("local/big".to_owned(), None, inherited));
    let own = Agent { model: text("tiny"), ..named("a") };
    assert_eq!(resolved(own), ("local/tiny".to_owned(), None, vec![]));
    let moved = Agent { provider: text("cloud"), ..named("a") };
    assert_eq!(resolved(moved), ("cloud/big".to_owned(), None, vec![]));
    let spare = Agent { fallbacks: list(&["spare"]), ..named("a") };
    assert_eq!(resolved(spare), ("local/big".to_owned(), None, list(&["local/spare"])));
}

#[test]
fn choose_model_combines_provider_and_model() {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    for (provider, model, inherited, expected) in [
        ("", "", "local/big", "local/big"),
        ("", "", "relay/local/big", "local/big"),
        ("cloud", "tiny", "local/big", "cloud/tiny"),
        ("cloud", "cloud/tiny", "local/big", "cloud/tiny"),
        ("cloud", "", "local/big", "cloud/big"),
        ("cloud", "", "cloud", "cloud"),
        ("cloud", "", "", "cloud"),
        ("", "tiny", "local/big", "local/tiny"),
        ("", "tiny", "script:/tmp/a", "tiny"),
        ("", "other/tiny", "local/big", "other/tiny"),
    ] {
        let agent = Agent { provider: text(provider), model: text(model), ..Agent::default() };
        let parent = Agent { model: text(inherited), ..Agent::default() };
        assert_eq!(choose_model(&agent, &parent), text(expected), "{provider} {model} {inherited}");
    }
}

#[test]
fn child_at_the_depth_limit_is_not_lent_delegation_tools() {
    let mut agent = TestAgent::root();
    let delegation = Delegation { style: DelegationStyle::Dispatch, ..Delegation::default() };
    let excluded = |agent: &TestAgent, delegation: &Delegation| {
        all_styles().prepare_child(delegation, &agent.caller(), Some(named("reader"))).1.excluded
    };
    agent.authority.max_depth = 2;
    assert_eq!(excluded(&agent, &delegation), [MESSAGE_TOOL]);
    agent.authority.max_depth = 1;
    let all: Vec<String> = [MESSAGE_TOOL].into_iter().chain(DELEGATION_TOOLS).map(str::to_owned).collect();
    assert_eq!(excluded(&agent, &delegation), all);
    let helper = Delegation { style: DelegationStyle::Subagent, ..Delegation::default() };
    let others = [delegate::NAME, dispatch::NAME, spawn::NAME, spawn::DELEGATE_NAME];
    assert_eq!(excluded(&agent, &helper), others, "this style refuses the call itself");
}

#[test]
fn defined_agent_keeps_its_mode_and_messages_only_if_its_definition_lists_the_tool() {
    let agent = TestAgent::root();
    let delegation = Delegation { style: DelegationStyle::Dispatch, ..Delegation::default() };
    let request =
        |definition: Agent| all_styles().prepare_child(&delegation, &agent.caller(), Some(definition)).1;
    let plain = request(Agent { mode: Some(Mode::Plan), tools: Some(list(&["read_file"])), ..named("a") });
    assert_eq!((plain.mode, plain.excluded), (Some(Mode::Plan), list(&[MESSAGE_TOOL])));
    let speaking = request(Agent { tools: Some(list(&["read_file", MESSAGE_TOOL])), ..named("a") });
    assert_eq!((speaking.mode, speaking.excluded), (None, vec![]));
}

#[test]
fn result_of_a_detached_child_names_its_session() {
    let outcome = Outcome::new(Status::Detached, "so far");
    for style in [
        DelegationStyle::Delegate,
        DelegationStyle::Subagent,
        DelegationStyle::Dispatch,
        DelegationStyle::Spawn,
    ] {
        let delegation = Delegation { style, role: Some("Writer".to_owned()), ..Delegation::default() };
        let output = all_styles().render(&delegation, &outcome, 1000, "handle");
        let text = output.text.as_str();
        assert!(text.contains("still running in the background") && text.contains("handle"), "{text}");
        assert!(!text.contains("so far") && !output.is_error(), "{text}");
    }
}

#[test]
fn result_of_each_style_has_the_text_and_the_cause() {
    let limit = LimitKind::Turns;
    let outcomes = [
        Outcome::new(Status::Done, "The result."),
        Outcome::new(Status::Incomplete { limit }, "A part."),
        Outcome::new(Status::Failed { cause: "no key".to_owned() }, ""),
        Outcome::new(Status::Lost { cause: "killed".to_owned() }, "A part."),
    ];
    let mut lines = Vec::new();
    for (tool, _) in CALLS {
        let style = style_of_tool(tool).unwrap();
        let (role, agent) = (Some("Writer".to_owned()), Some("reader".to_owned()));
        let delegation = Delegation { style, role, agent, ..Delegation::default() };
        for outcome in &outcomes {
            let output = all_styles().render(&delegation, outcome, 8, "handle");
            lines.push(format!("{tool}: {:?} {:?}", output.status, output.text));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn title_is_one_line_of_at_most_64_characters() {
    let display = |text: &str| Title::of(text).map(|title| (title.display, title.original.is_some()));
    assert_eq!(display("  Look  "), Some(("Look".to_owned(), false)));
    assert_eq!(display(" \n"), None);
    assert_eq!(display("a\nb [c]"), Some(("a\\nb \\[c\\]".to_owned(), true)));
    let long = "a".repeat(64);
    assert_eq!(display(&long), Some((long.clone(), false)));
    assert_eq!(display(&format!("{long}b")), Some((format!("{}\u{2026}", &long[..63]), true)));
    // An escaped character is not cut in half.
    assert_eq!(display(&format!("{}[b", &long[..63])), Some((format!("{}\u{2026}", &long[..63]), true)));
    assert_eq!(display(&format!("{}[b", &long[..62])), Some((format!("{}\u{2026}", &long[..62]), true)));
}

#[test]
fn tool_names_of_a_whitelist_are_resolved_once_each() {
    let lend: BTreeSet<String> =
        list(&["read_file", "list_dir", "mcp__a__x", "mcp__a__y", "mcp__b__z", "Read"]).into_iter().collect();
    let resolve = |names: &[&str]| crate::tool_names::resolve_list(&list(names), &lend);
    assert_eq!(resolve(&["cat", "read_file", "file_ops"]), list(&["read_file", "list_dir"]));
    assert_eq!(resolve(&["Read"]), list(&["Read"]), "an exact name means itself");
    assert_eq!(resolve(&["mcp__a__*"]), list(&["mcp__a__x", "mcp__a__y"]));
    assert_eq!(resolve(&["MCP__B__Z"]), list(&["mcp__b__z"]));
    assert_eq!(resolve(&["shell", "teleport"]), list(&["shell", "teleport"]), "they are reported");
}

#[test]
fn registered_styles_have_each_delegation_tool_once() {
    let styles = testing::all_styles();
    let tools: Vec<&str> = styles.all().iter().flat_map(|style| style.info().tools).copied().collect();
    assert_eq!(tools, DELEGATION_TOOLS);
    for style in styles.all() {
        let delegation = Delegation { style: style.info().id, ..Delegation::default() };
        assert_eq!(styles.of(&delegation).info().tools, style.info().tools);
    }
}

#[test]
fn facts_of_styles_are_those_of_their_sections() {
    let styles = all_styles();
    let parallel = |tool: &str| styles.parallel(tool).is_some();
    assert_eq!(CALLS.map(|(tool, _)| parallel(tool)), [false, false, true, false, false, false]);
    assert!(styles.is_any_numbered());
    assert!(!only(&[DelegationStyle::Delegate, DelegationStyle::Dispatch]).is_any_numbered());
    let mut limited = all_styles();
    limited.swarm.max_concurrent = 7;
    assert_eq!(limited.max_active().collect::<Vec<_>>(), [(DelegationStyle::Delegate, 7)]);
    assert_eq!(styles.unkept(), []);
    limited.swarm.keep = delegate::Retention::None;
    assert_eq!(limited.unkept(), [DelegationStyle::Delegate]);
}

#[test]
fn style_without_definitions_names_none_and_its_mode_is_its_name() {
    let (styles, agent) = (all_styles(), TestAgent::root());
    for (id, mode) in [(DelegationStyle::Subagent, "subagent"), (DelegationStyle::Dispatch, "dispatch")] {
        let delegation = Delegation { style: id, ..Delegation::default() };
        assert_eq!(styles.of(&delegation).mode(&delegation), mode);
    }
    for id in [DelegationStyle::Subagent, DelegationStyle::Spawn] {
        let delegation = Delegation { style: id, agent: Some("reader".to_owned()), ..Delegation::default() };
        assert_eq!(styles.of(&delegation).definition(&delegation, &agent.caller()), None);
    }
}
