//! Several folders of definitions.

use brigade::agents::{AgentCatalog, ProblemKind, load};

use crate::agents::agent_dir::AgentDir;

#[test]
fn first_folder_wins_for_equal_ids() {
    let dir = AgentDir::new();
    for place in ["project", "home"] {
        let text = format!("---\nname: coder\ndescription: of the {place}\n---\nbody");
        dir.put(&format!("{place}/coder/AGENT.md"), text);
    }
    dir.put("home/other.md", "---\nname: other\ndescription: d\n---\nbody");
    let places = [dir.path("nowhere"), dir.path("project"), dir.path("home"), dir.path("home/../project")];
    let (catalog, problems) = AgentCatalog::from_folders(&places);
    let ids: Vec<&str> = catalog.list().iter().map(|agent| agent.id.as_str()).collect();
    assert_eq!(ids, ["coder", "other"]);
    assert_eq!(catalog.load("coder").unwrap().description, "of the project");
    assert_eq!(catalog.file("coder"), Some(dir.path("project/coder/AGENT.md").as_path()));
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.kind, &problem.file), (ProblemKind::Shadowed, &dir.path("home/coder/AGENT.md")));
    assert!(problem.cause.contains(dir.path("project/coder/AGENT.md").to_str().unwrap()));
}

#[test]
fn duplicate_ids_in_one_folder_are_an_error() {
    let dir = AgentDir::new();
    dir.put("one.md", "---\nname: same\ndescription: d\n---\nbody");
    dir.put("two.md", "---\nname: Same\ndescription: d\n---\nbody");
    dir.put("three.md", "---\nname: three\ndescription: d\n---\nbody");
    let found = dir.discover();
    assert_eq!(found.definitions.len(), 1);
    let [problem] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(problem.kind, ProblemKind::Duplicate);
    let shown = problem.to_string();
    assert!(shown.contains("one.md") && shown.contains("two.md") && shown.contains("`same`"), "{shown}");
    assert!(load(dir.root(), "same").is_err());
    assert_eq!(brigade::agents::lint(dir.root()).1.len(), 1);
}

#[test]
fn folder_names_are_normalized_to_ids() {
    let dir = AgentDir::new();
    for folder in ["Pickle", "my agent", "-dash"] {
        dir.put(&format!("{folder}/AGENT.md"), format!("---\nname: {folder:?}\ndescription: d\n---\nbody"));
    }
    let found = dir.discover();
    assert_eq!(found.problems, []);
    let ids: Vec<&str> = found.definitions.iter().map(|one| one.agent.id.as_str()).collect();
    assert_eq!(ids, ["dash", "my-agent", "pickle"]);
    for name in ["pickle", "Pickle", "my-agent", "my agent", "My Agent"] {
        assert!(load(dir.root(), name).is_ok(), "{name}");
    }
    let (catalog, _) = AgentCatalog::from_folders(&[dir.root()]);
    assert_eq!(catalog.resolve_id("My Agent"), Some("my-agent"));
    assert_eq!(catalog.resolve_id("nobody"), None);
}

#[test]
fn folders_with_the_same_id_are_an_error() {
    let dir = AgentDir::new();
    for folder in ["Pickle", "pickle", "other"] {
        dir.put(&format!("{folder}/AGENT.md"), "---\nname: x\ndescription: d\n---\nbody");
    }
    let found = dir.discover();
    assert_eq!(found.definitions.len(), 1);
    let [problem] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(problem.kind, ProblemKind::Duplicate);
    let shown = problem.to_string();
    assert!(shown.contains("Pickle/AGENT.md") && shown.contains("pickle/AGENT.md"), "{shown}");
    for name in ["pickle", "Pickle"] {
        let refusal = load(dir.root(), name).unwrap_err().to_string();
        assert!(refusal.contains("Neither file is used. Rename one of them."), "{name}: {refusal}");
    }
}

#[test]
fn other_formats_load_by_id() {
    let dir = AgentDir::new();
    dir.put("team/Some One.md", "---\ndescription: d\n---\nbody");
    dir.put("broken.md", "---\nname: broken\ntools: []\n---\nbody");
    assert_eq!(load(dir.root(), "some-one").unwrap().agent.prompt, "body");
    assert!(load(dir.root(), "broken").unwrap_err().to_string().contains("broken.md:3: `tools`"));
}

#[test]
fn files_beside_definitions_are_ignored() {
    let dir = AgentDir::new();
    dir.put("README.md", "# About").put("notes.txt", "x").put(".hidden.md", "x").put("a/image.png", "x");
    dir.agent("cook", "").put("cook/recipes.md", "no frontmatter").put("cook/deep/x.md", "x");
    let found = dir.discover();
    assert_eq!((found.definitions.len(), found.problems), (1, vec![]));
}
