//! Several folders of definitions.

use brigade::agents::{Catalogue, ProblemKind, load};

use crate::agents::shelf::Shelf;

#[test]
fn the_folder_that_comes_first_counts() {
    let shelf = Shelf::new();
    for place in ["project", "home"] {
        let text = format!("---\nname: coder\ndescription: of the {place}\n---\nbody");
        shelf.put(&format!("{place}/coder/AGENT.md"), text);
    }
    shelf.put("home/other.md", "---\nname: other\ndescription: d\n---\nbody");
    let places =
        [shelf.path("nowhere"), shelf.path("project"), shelf.path("home"), shelf.path("home/../project")];
    let (catalogue, problems) = Catalogue::from_places(&places);
    let ids: Vec<&str> = catalogue.list().iter().map(|agent| agent.id.as_str()).collect();
    assert_eq!(ids, ["coder", "other"]);
    assert_eq!(catalogue.load("coder").unwrap().description, "of the project");
    assert_eq!(catalogue.file("coder"), Some(shelf.path("project/coder/AGENT.md").as_path()));
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.kind, &problem.file), (ProblemKind::Shadowed, &shelf.path("home/coder/AGENT.md")));
    assert!(problem.cause.contains(shelf.path("project/coder/AGENT.md").to_str().unwrap()));
}

#[test]
fn two_files_of_one_id_in_one_folder_are_an_error_that_names_both() {
    let shelf = Shelf::new();
    shelf.put("one.md", "---\nname: same\ndescription: d\n---\nbody");
    shelf.put("two.md", "---\nname: Same\ndescription: d\n---\nbody");
    shelf.put("three.md", "---\nname: three\ndescription: d\n---\nbody");
    let found = shelf.discover();
    assert_eq!(found.definitions.len(), 1);
    let [problem] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(problem.kind, ProblemKind::Duplicate);
    let shown = problem.to_string();
    assert!(shown.contains("one.md") && shown.contains("two.md") && shown.contains("`same`"), "{shown}");
    assert!(load(shelf.root(), "same").is_err());
    assert_eq!(brigade::agents::lint(shelf.root()).1.len(), 1);
}

#[test]
fn folders_of_any_spelling_give_an_id() {
    let shelf = Shelf::new();
    for folder in ["Pickle", "my agent", "-dash"] {
        shelf.put(&format!("{folder}/AGENT.md"), format!("---\nname: {folder:?}\ndescription: d\n---\nbody"));
    }
    let found = shelf.discover();
    assert_eq!(found.problems, []);
    let ids: Vec<&str> = found.definitions.iter().map(|one| one.agent.id.as_str()).collect();
    assert_eq!(ids, ["dash", "my-agent", "pickle"]);
    for name in ["pickle", "Pickle", "my-agent", "my agent", "My Agent"] {
        assert!(load(shelf.root(), name).is_ok(), "{name}");
    }
    let (catalogue, _) = Catalogue::from_places(&[shelf.root()]);
    assert_eq!(catalogue.id_of("My Agent"), Some("my-agent"));
    assert_eq!(catalogue.id_of("nobody"), None);
}

#[test]
fn folders_that_give_the_same_id_are_an_error_that_names_both() {
    let shelf = Shelf::new();
    for folder in ["Pickle", "pickle", "other"] {
        shelf.put(&format!("{folder}/AGENT.md"), "---\nname: x\ndescription: d\n---\nbody");
    }
    let found = shelf.discover();
    assert_eq!(found.definitions.len(), 1);
    let [problem] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(problem.kind, ProblemKind::Duplicate);
    let shown = problem.to_string();
    assert!(shown.contains("Pickle/AGENT.md") && shown.contains("pickle/AGENT.md"), "{shown}");
    for name in ["pickle", "Pickle"] {
        let refusal = load(shelf.root(), name).unwrap_err().to_string();
        assert!(refusal.contains("neither is used until one is renamed"), "{name}: {refusal}");
    }
}

#[test]
fn other_formats_load_by_id_too() {
    let shelf = Shelf::new();
    shelf.put("team/Some One.md", "---\ndescription: d\n---\nbody");
    shelf.put("broken.md", "---\nname: broken\ntools: []\n---\nbody");
    assert_eq!(load(shelf.root(), "some-one").unwrap().agent.prompt, "body");
    assert!(load(shelf.root(), "broken").unwrap_err().to_string().contains("broken.md:3: `tools`"));
}

#[test]
fn files_beside_definitions_are_left_alone() {
    let shelf = Shelf::new();
    shelf.put("README.md", "# About").put("notes.txt", "x").put(".hidden.md", "x").put("a/image.png", "x");
    shelf.agent("cook", "").put("cook/recipes.md", "no frontmatter").put("cook/deep/x.md", "x");
    let found = shelf.discover();
    assert_eq!((found.definitions.len(), found.problems), (1, vec![]));
}
