//! Contract C: definitions and the loader.

use brigade::agents::{AgentCatalog, LoadError, ProblemKind, discover, load};
use brigade::core::Agent;

use crate::agents::agent_dir::AgentDir;

#[test]
fn c49_description_is_loaded() {
    let dir = AgentDir::new();
    dir.agent("reviewer", "");
    let definition = load(dir.root(), "reviewer").unwrap();
    let Agent { id, name, description, prompt, .. } = definition.agent;
    assert_eq!(
        (id.as_str(), name.as_str(), description.as_str(), prompt.as_str()),
        ("reviewer", "reviewer", "about reviewer", "You are reviewer.")
    );
}

#[test]
fn c50_discover_finds_all_and_skips_invalid_ones_with_a_warning() {
    let dir = AgentDir::new();
    dir.agent("writer", "").agent("coder", "");
    dir.put("broken/AGENT.md", "---\nname: broken\n---\nNo description.\n");
    let found = dir.discover();
    let ids: Vec<&str> = found.definitions.iter().map(|definition| definition.agent.id.as_str()).collect();
    assert_eq!(ids, ["coder", "writer"]);
    let [problem] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(problem.file, dir.path("broken/AGENT.md"));
    assert_eq!(problem.kind, ProblemKind::Refused);
    assert!(problem.cause.contains("`description` is missing"), "{problem}");
}

#[test]
fn c50_missing_directory_is_empty() {
    let dir = AgentDir::new();
    let found = discover(&dir.path("nowhere"));
    assert!(found.definitions.is_empty() && found.problems.is_empty());
    assert_eq!(load(&dir.path("nowhere"), "x").unwrap_err(), LoadError::NotFound("x".into()));
}

#[test]
fn c58_unknown_id_is_not_found() {
    let dir = AgentDir::new();
    dir.agent("coder", "").put("secret/AGENT.md", "x");
    for id in ["nobody", "", "..", "../secret", "Codér", "a/b", "coder\n"] {
        let error = load(dir.root(), id).unwrap_err();
        assert_eq!(error.to_string(), format!("Agent '{id}' not found"));
    }
    // Names are normalised, so this is the id of the same agent.
    assert_eq!(load(dir.root(), "Coder").unwrap().agent.id, "coder");
    let (catalog, _) = AgentCatalog::from_folders(&[dir.root()]);
    assert_eq!(catalog.load("nobody").unwrap_err().to_string(), "Agent 'nobody' not found");
}

#[test]
fn c58_invalid_definition_names_file_and_cause() {
    let dir = AgentDir::new();
    dir.agent("hot", "temperature: 2.5");
    let LoadError::Invalid(problem) = load(dir.root(), "hot").unwrap_err() else { panic!() };
    assert_eq!((problem.file, problem.line), (dir.path("hot/AGENT.md"), Some(4)));
    assert_eq!(problem.cause, "`temperature` must be a number from 0 to 2");
}

#[test]
fn c59_overrides_are_applied_and_absent_ones_inherit() {
    let dir = AgentDir::new();
    dir.agent("plain", "");
    dir.agent(
        "own",
        "provider: local\nmodel: big\napi_base: http://127.0.0.1:1/v1\napi_key: sk-sesame\ntemperature: 0\n\
         max_tokens: 9\nallow_skills: true\nmax_concurrency: 2\nmax_turns: 7\ntools: [read_file]\nlend: []\n\
         timeout: 90s\nmode: plan\ndeny: [\"shell(git push)\"]",
    );
    let plain = load(dir.root(), "plain").unwrap().agent;
    assert_eq!((plain.provider, plain.model, plain.api_base, plain.tools, plain.lend), Default::default());
    assert_eq!((plain.temperature, plain.max_tokens), (None, None));
    assert_eq!((plain.max_turns, plain.max_concurrency, plain.timeout, plain.mode), Default::default());
    assert!(!plain.allow_skills && plain.deny.is_empty());
    let own = load(dir.root(), "own").unwrap();
    let agent = own.agent;
    assert_eq!((agent.provider.as_deref(), agent.model.as_deref()), (Some("local"), Some("big")));
    assert_eq!(agent.api_base.as_deref(), Some("http://127.0.0.1:1/v1"));
    assert_eq!((agent.temperature, agent.max_tokens), (Some(0.0), Some(9)));
    assert_eq!((agent.max_turns, agent.max_concurrency, agent.timeout), (Some(7), Some(2), Some(90_000)));
    assert_eq!(agent.tools, Some(vec!["read_file".to_owned()]));
    assert_eq!(agent.lend, Some(Vec::new()));
    assert_eq!(agent.mode.map(|mode| mode.to_string()).as_deref(), Some("plan"));
    assert_eq!(agent.deny.len(), 1);
    assert!(agent.allow_skills);
    assert_eq!(own.api_key.unwrap().expose(), "sk-sesame");
}

#[test]
fn c59_bounds_are_checked() {
    let dir = AgentDir::new();
    for line in [
        "temperature: -0.1",
        "temperature: warm",
        "temperature: .nan",
        "max_tokens: 0",
        "max_tokens: -3",
        "max_tokens: 1.5",
        "max_concurrency: 0",
        "max_turns: 0",
        "allow_skills: perhaps",
        "timeout: soon",
        "mode: yolo",
        "deny: [\"shell(\"]",
    ] {
        let key = line.split(':').next().unwrap();
        let refusal = dir.load_err("x/AGENT.md", format!("---\nname: x\ndescription: d\n{line}\n---\nbody"));
        assert!(refusal.problem.cause.contains(key), "{line}: {}", refusal.problem);
        assert_eq!(refusal.problem.line, Some(4), "{line}");
    }
}

#[test]
fn c59_api_key_is_never_shown() {
    let dir = AgentDir::new();
    let secret = "sk-very-secret";
    for lines in [
        format!("api_key: {secret}"),
        format!("api-key: \"{secret}\""),
        format!("apiKey: '{secret}'"),
        format!("llm:\n  api_key: {secret}\n  model: m"),
        format!("api_key: {secret}\ntools: {secret}"),
        format!("api_key: {secret}\nmodel: [{secret}"),
        format!("api_key: {secret}\ntemperature: {secret}"),
        format!("api_key: {secret}: {secret}"),
        format!("api_key: &{secret} *{secret}"),
        format!("api_key: {secret}\napi_key: {secret}"),
        format!("api_key: [{secret}]"),
        format!("description: a: b\napi_key: {secret}"),
    ] {
        dir.agent("x", &lines);
        let found = dir.discover();
        let (reports, problems) = brigade::agents::lint(dir.root());
        let shown = format!("{found:?} {reports:?} {problems:?} {:?}", load(dir.root(), "x"));
        assert!(!shown.contains(secret), "{lines}: {shown}");
        for definition in found.definitions {
            assert!(!definition.agent.encoded().contains(secret), "{lines}");
        }
    }
}

#[test]
fn definition_is_reread_at_each_load() {
    let dir = AgentDir::new();
    dir.agent("coder", "max_turns: 3");
    let (catalog, problems) = AgentCatalog::from_folders(&[dir.root()]);
    assert!(problems.is_empty());
    let catalog = catalog.with(Agent { id: "built".into(), ..Agent::default() });
    assert_eq!(catalog.load("coder").unwrap().max_turns, Some(3));
    dir.agent("coder", "max_turns: 4");
    assert_eq!(catalog.load("coder").unwrap().max_turns, Some(4));
    assert_eq!(catalog.list().len(), 2);
    dir.agent("coder", "tools: []");
    assert!(matches!(catalog.load("coder"), Err(LoadError::Invalid(_))));
    std::fs::remove_file(dir.path("coder/AGENT.md")).unwrap();
    assert_eq!(catalog.load("coder"), Err(LoadError::NotFound("coder".into())));
    assert_eq!(catalog.load("built").unwrap().id, "built");
}

#[test]
fn built_in_lead_cannot_be_defined_by_a_file() {
    let dir = AgentDir::new();
    dir.agent("lead", "");
    let found = dir.discover();
    assert!(found.definitions.is_empty());
    assert!(found.problems[0].cause.contains("lead"));
}
