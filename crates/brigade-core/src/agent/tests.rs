use serde_json::json;

use super::*;

#[test]
fn id_of_name_keeps_letters_digits_and_separators() {
    for (name, id) in [
        ("My Agent", "my-agent"),
        ("  two   spaces ", "two-spaces"),
        ("v1.2_rc", "v1.2_rc"),
        ("..hidden__", "hidden"),
        ("--help", "help"),
        ("C# and C++", "csharp-and-cpp"),
        ("#1+", "1p"),
        ("+++", ""),
        ("étude n°5", "tude-n-5"),
        ("Ünïcode", "n-code"),
        ("", ""),
    ] {
        assert_eq!(id_of_name(name), id, "{name}");
    }
}

#[test]
fn id_of_name_has_at_most_64_characters() {
    let long = "a".repeat(100);
    assert_eq!(id_of_name(&long), long[..64]);
    assert_eq!(id_of_name(&long[..64]), long[..64]);
    assert_eq!(id_of_name(&format!("{}###", &long[..62])), format!("{}sh", &long[..62]));
    // A separator at the cut is not kept.
    assert_eq!(id_of_name(&format!("{} b", &long[..63])), long[..63]);
}

#[test]
fn normalised_id_is_none_if_more_than_case_and_punctuation_changes() {
    for (name, id) in [
        ("Code Reviewer", Some("code-reviewer")),
        ("a.b_c-d 1", Some("a.b_c-d-1")),
        ("étude", None),
        ("C#", None),
        ("", None),
        (" - ", None),
    ] {
        assert_eq!(normalised_id(name).as_deref(), id, "{name}");
    }
    let long = "a".repeat(65);
    assert_eq!(normalised_id(&long), None);
    assert_eq!(normalised_id(&long[..64]).as_deref(), Some(&long[..64]));
}

#[test]
fn stored_agent_contains_only_fields_that_were_set() {
    let plain = serde_json::to_value(Agent::default()).unwrap();
    assert_eq!(plain, json!({ "id": "", "name": "", "prompt": "", "place": "here" }));
    let agent = Agent {
        guidance: Guidance::Helper,
        allow_skills: true,
        ignore_instructions: true,
        backend: Backend::Acp("gemini".to_owned()),
        ..Agent::default()
    };
    let stored = serde_json::to_value(&agent).unwrap();
    let expected = json!({
        "id": "", "name": "", "prompt": "", "guidance": "helper", "allow_skills": true,
        "ignore_instructions": true, "place": { "acp": "gemini" },
    });
    assert_eq!(stored, expected);
    assert_eq!(serde_json::from_value::<Agent>(stored).unwrap(), agent);
}

#[test]
fn hash_of_an_agent_is_that_of_its_stored_text() {
    let agent = Agent { id: "reviewer".to_owned(), ..Agent::default() };
    assert_eq!(agent.encoded(), r#"{"id":"reviewer","name":"","prompt":"","place":"here"}"#);
    assert_eq!(agent.hash(), Hash::of(agent.encoded().as_bytes()));
    assert_ne!(agent.hash(), Agent::default().hash());
}
