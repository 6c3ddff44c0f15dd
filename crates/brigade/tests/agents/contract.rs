//! Contract C: definitions and the loader.

use brigade::agents::{Catalogue, LoadError, ProblemKind, discover, load};
use brigade::core::Agent;

use crate::agents::shelf::Shelf;

#[test]
fn c49_description_is_loaded() {
    let shelf = Shelf::new();
    shelf.agent("reviewer", "");
    let definition = load(shelf.root(), "reviewer").unwrap();
    let Agent { id, name, description, prompt, .. } = definition.agent;
    assert_eq!(
        (id.as_str(), name.as_str(), description.as_str(), prompt.as_str()),
        ("reviewer", "reviewer", "about reviewer", "You are reviewer.")
    );
}

#[test]
fn c50_discover_finds_all_and_skips_invalid_ones_with_a_warning() {
    let shelf = Shelf::new();
    shelf.agent("writer", "").agent("coder", "");
    shelf.put("broken/AGENT.md", "---\nname: broken\n---\nNo description.\n");
    let found = shelf.discover();
    let ids: Vec<&str> = found.definitions.iter().map(|definition| definition.agent.id.as_str()).collect();
    assert_eq!(ids, ["coder", "writer"]);
    let [problem] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(problem.file, shelf.path("broken/AGENT.md"));
    assert_eq!(problem.kind, ProblemKind::Refused);
    assert!(problem.cause.contains("`description` is missing"), "{problem}");
}

#[test]
fn c50_a_missing_directory_is_empty() {
    let shelf = Shelf::new();
    let found = discover(&shelf.path("nowhere"));
    assert!(found.definitions.is_empty() && found.problems.is_empty());
    assert_eq!(load(&shelf.path("nowhere"), "x").unwrap_err(), LoadError::NotFound("x".into()));
}

#[test]
fn c58_an_unknown_id_is_not_found() {
    let shelf = Shelf::new();
    shelf.agent("coder", "").put("secret/AGENT.md", "x");
    for id in ["nobody", "", "..", "../secret", "Codér", "a/b", "coder\n"] {
        let error = load(shelf.root(), id).unwrap_err();
        assert_eq!(error.to_string(), format!("Agent '{id}' not found"));
    }
    // Names are normalised, so that this is the id of the same agent.
    assert_eq!(load(shelf.root(), "Coder").unwrap().agent.id, "coder");
    let (catalogue, _) = Catalogue::from_places(&[shelf.root()]);
    assert_eq!(catalogue.load("nobody").unwrap_err().to_string(), "Agent 'nobody' not found");
}

#[test]
fn c58_an_invalid_one_names_file_and_cause() {
    let shelf = Shelf::new();
    shelf.agent("hot", "temperature: 2.5");
    let LoadError::Invalid(problem) = load(shelf.root(), "hot").unwrap_err() else { panic!() };
    assert_eq!((problem.file, problem.line), (shelf.path("hot/AGENT.md"), Some(4)));
    assert_eq!(problem.cause, "`temperature` has to be a number from 0 to 2");
}

#[test]
fn c59_overrides_are_applied_and_absent_ones_inherit() {
    let shelf = Shelf::new();
    shelf.agent("plain", "");
    shelf.agent(
        "own",
        "provider: local\nmodel: big\napi_base: http://127.0.0.1:1/v1\napi_key: sk-sesame\ntemperature: 0\n\
         max_tokens: 9\nallow_skills: true\nmax_concurrency: 2\nmax_turns: 7\ntools: [read_file]\nlend: []\n\
         timeout: 90s\nmode: plan\ndeny: [\"shell(git push)\"]",
    );
    let plain = load(shelf.root(), "plain").unwrap().agent;
    assert_eq!((plain.provider, plain.model, plain.api_base, plain.tools, plain.lend), Default::default());
    assert_eq!((plain.temperature, plain.max_tokens), (None, None));
    assert_eq!((plain.max_turns, plain.max_concurrency, plain.timeout, plain.mode), Default::default());
    assert!(!plain.allow_skills && plain.deny.is_empty());
    let own = load(shelf.root(), "own").unwrap();
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
    let shelf = Shelf::new();
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
        let refusal = shelf.refused("x/AGENT.md", format!("---\nname: x\ndescription: d\n{line}\n---\nbody"));
        assert!(refusal.problem.cause.contains(key), "{line}: {}", refusal.problem);
        assert_eq!(refusal.problem.line, Some(4), "{line}");
    }
}

#[test]
fn c59_the_key_is_nowhere_but_where_it_is_asked_for() {
    let shelf = Shelf::new();
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
        shelf.agent("x", &lines);
        let found = shelf.discover();
        let (reports, problems) = brigade::agents::lint(shelf.root());
        let shown = format!("{found:?} {reports:?} {problems:?} {:?}", load(shelf.root(), "x"));
        assert!(!shown.contains(secret), "{lines}: {shown}");
        for definition in found.definitions {
            assert!(!definition.agent.encoded().contains(secret), "{lines}");
        }
    }
}

#[test]
fn a_definition_is_read_again_at_each_call() {
    let shelf = Shelf::new();
    shelf.agent("coder", "max_turns: 3");
    let (catalogue, problems) = Catalogue::from_places(&[shelf.root()]);
    assert!(problems.is_empty());
    let catalogue = catalogue.with(Agent { id: "built".into(), ..Agent::default() });
    assert_eq!(catalogue.load("coder").unwrap().max_turns, Some(3));
    shelf.agent("coder", "max_turns: 4");
    assert_eq!(catalogue.load("coder").unwrap().max_turns, Some(4));
    assert_eq!(catalogue.list().len(), 2);
    shelf.agent("coder", "tools: []");
    assert!(matches!(catalogue.load("coder"), Err(LoadError::Invalid(_))));
    std::fs::remove_file(shelf.path("coder/AGENT.md")).unwrap();
    assert_eq!(catalogue.load("coder"), Err(LoadError::NotFound("coder".into())));
    assert_eq!(catalogue.load("built").unwrap().id, "built");
}

#[test]
fn the_built_in_lead_is_no_definition() {
    let shelf = Shelf::new();
    shelf.agent("lead", "");
    let found = shelf.discover();
    assert!(found.definitions.is_empty());
    assert!(found.problems[0].cause.contains("lead"));
}
