//! Sentences of built-in prompts that depend on the tools of an agent.

use super::{DELEGATION_TOOLS, MESSAGE};
use crate::agent::Guidance;
use crate::message::ToolSpec;

/// The sentences that a built-in prompt has about tools: only about those that are offered. `delegation` names the
/// delegation tools that work for the agent; see [`Faces::usable`](super::Faces::usable).
pub fn guidance(kind: Guidance, offered: &[ToolSpec], delegation: &[&str]) -> String {
    let is_work = |spec: &&ToolSpec| spec.name != MESSAGE && !DELEGATION_TOOLS.contains(&spec.name.as_str());
    let has_tools = offered.iter().any(|spec| is_work(&spec));
    let mut sentences = Vec::new();
    match kind {
        Guidance::None => return String::new(),
        Guidance::Lead if has_tools && !delegation.is_empty() => {
            sentences.push("Do small things yourself with your tools.".to_owned());
        }
        Guidance::Lead | Guidance::Role | Guidance::Helper if has_tools => {
            sentences.push("Use your tools for the work.".to_owned());
        }
        Guidance::Lead | Guidance::Role | Guidance::Helper => {}
    }
    if !delegation.is_empty() {
        sentences.push(format!(
            "Hand parts that stand on their own to other agents with {}, several in one reply if they can run in \
             parallel, and tell each agent everything it needs to know. Check what comes back and combine the results.",
            either(delegation)
        ));
    }
    let speaks = offered.iter().any(|spec| spec.name == MESSAGE);
    if kind == Guidance::Role && speaks {
        sentences.push(format!(
            "If the user should hear something while you work, send it with the `{MESSAGE}` tool."
        ));
    }
    sentences.join(" ")
}

/// `a`, `b` or `c`.
fn either(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::testing::{Someone, all_faces};
    use crate::message::Category;

    fn spec(name: &str) -> ToolSpec {
        let (description, schema) = (String::new(), serde_json::Value::Null);
        ToolSpec { name: name.to_owned(), description, schema, category: Category::Other }
    }

    fn told(kind: Guidance, offered: &[&str], delegation: &[&str]) -> String {
        let offered: Vec<ToolSpec> = offered.iter().map(|name| spec(name)).collect();
        guidance(kind, &offered, delegation)
    }

    #[test]
    fn names_exactly_the_delegation_tools_that_work() {
        let text = told(
            Guidance::Lead,
            &["grep", "subagent", "parallel_subagent"],
            &["subagent", "parallel_subagent"],
        );
        assert!(text.starts_with("Do small things yourself with your tools. Hand parts"), "{text}");
        assert!(text.contains("with `subagent` or `parallel_subagent`, several"), "{text}");
        assert!(!text.contains("`delegate`"), "{text}");
        let three = told(Guidance::Lead, &["grep"], &["delegate", "subagent", "subagent_spawn"]);
        assert!(three.contains("`delegate`, `subagent` or `subagent_spawn`"), "{three}");
        let none = told(Guidance::Lead, &["grep", MESSAGE], &[]);
        assert_eq!(none, "Use your tools for the work.");
    }

    #[test]
    fn no_tools_no_sentences_about_them() {
        for kind in [Guidance::Lead, Guidance::Role, Guidance::Helper] {
            assert_eq!(told(kind, &[], &[]), "", "{kind:?}");
        }
        // A tool that refuses at its limit is offered, and is not praised.
        assert_eq!(told(Guidance::Helper, &["subagent", "parallel_subagent"], &[]), "");
        assert_eq!(told(Guidance::None, &["grep", MESSAGE], &["delegate"]), "");
    }

    #[test]
    fn only_a_role_is_told_of_message_and_only_if_it_has_it() {
        assert!(told(Guidance::Role, &[MESSAGE], &[]).contains("`message`"));
        assert!(!told(Guidance::Role, &["grep"], &[]).contains("message"));
        assert!(!told(Guidance::Helper, &["grep", MESSAGE], &[]).contains("message"));
    }

    #[test]
    fn a_face_at_its_limit_is_visible_and_not_usable() {
        let faces = all_faces();
        let helper = r#"{"label":"h","task_prompt":"x"}"#;
        let one = Someone::root().child(&faces, "subagent", helper);
        let two = one.child(&faces, "subagent", helper);
        let usable = |someone: &Someone| {
            let offered = faces.specs(&someone.caller());
            faces.usable(&someone.caller(), &offered).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(usable(&one).contains(&"subagent".to_owned()));
        assert_eq!(two.offered(&faces), ["subagent", "parallel_subagent"]);
        assert_eq!(usable(&two), Vec::<String>::new());
    }
}
