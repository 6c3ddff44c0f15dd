//! Sentences of built-in prompts that depend on the tools of an agent.

use super::{DELEGATION_TOOLS, MESSAGE_TOOL};
use crate::agent::Guidance;
use crate::message::ToolSpec;

/// Returns the sentences of a built-in prompt about tools, only for those that are offered. `delegation` contains
/// the delegation tools that work for the agent; see
/// [`DelegationStyles::usable_tools`](super::DelegationStyles::usable_tools).
pub fn guidance(kind: Guidance, offered: &[ToolSpec], delegation: &[&str]) -> String {
    let is_work =
        |spec: &&ToolSpec| spec.name != MESSAGE_TOOL && !DELEGATION_TOOLS.contains(&spec.name.as_str());
    let has_tools = offered.iter().any(|spec| is_work(&spec));
    let mut sentences = Vec::new();
    match kind {
        Guidance::None => return String::new(),
        Guidance::Lead if has_tools && !delegation.is_empty() => {
            sentences.push("Do small tasks yourself, with independent tool calls in one reply.".to_owned());
        }
        Guidance::Lead | Guidance::Role | Guidance::Helper if has_tools => {
            sentences.push("Make independent tool calls in one reply.".to_owned());
        }
        Guidance::Lead | Guidance::Role | Guidance::Helper => {}
    }
    if !delegation.is_empty() {
        sentences.push(format!(
            "Use {} to delegate work that is large, needs a specialist or can run in parallel; start independent tasks in one reply. A sub-agent sees nothing of this conversation: give it the goal, the context, the files, the constraints and the format of the result. Verify what it reports before you use it.",
            join_with_or(delegation)
        ));
    }
    let speaks = offered.iter().any(|spec| spec.name == MESSAGE_TOOL);
    if kind == Guidance::Role && speaks {
        sentences.push(format!("Send interim updates to the user with `{MESSAGE_TOOL}`."));
    }
    sentences.join(" ")
}

/// Joins names as `a`, `b` or `c`.
fn join_with_or(names: &[&str]) -> String {
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
    use crate::delegation_styles::testing::{TestAgent, all_styles};
    use crate::message::Category;

    fn spec(name: &str) -> ToolSpec {
        let (description, schema) = (String::new(), serde_json::Value::Null);
        ToolSpec { name: name.to_owned(), description, schema, category: Category::Other }
    }

    fn guidance_for(kind: Guidance, offered: &[&str], delegation: &[&str]) -> String {
        let offered: Vec<ToolSpec> = offered.iter().map(|name| spec(name)).collect();
        guidance(kind, &offered, delegation)
    }

    #[test]
    fn guidance_names_only_usable_delegation_tools() {
        let text = guidance_for(
            Guidance::Lead,
            &["grep", "subagent", "parallel_subagent"],
            &["subagent", "parallel_subagent"],
        );
        assert!(
            text.starts_with(
                "Do small tasks yourself, with independent tool calls in one reply. Use `subagent` or"
            ),
            "{text}"
        );
        assert!(text.contains("Use `subagent` or `parallel_subagent` to delegate work"), "{text}");
        assert!(!text.contains("`delegate`"), "{text}");
        let three = guidance_for(Guidance::Lead, &["grep"], &["delegate", "subagent", "subagent_spawn"]);
        assert!(three.contains("`delegate`, `subagent` or `subagent_spawn`"), "{three}");
        let none = guidance_for(Guidance::Lead, &["grep", MESSAGE_TOOL], &[]);
        assert_eq!(none, "Make independent tool calls in one reply.");
    }

    #[test]
    fn guidance_without_tools_is_empty() {
        for kind in [Guidance::Lead, Guidance::Role, Guidance::Helper] {
            assert_eq!(guidance_for(kind, &[], &[]), "", "{kind:?}");
        }
        // A tool that refuses at its limit is offered but not recommended.
        assert_eq!(guidance_for(Guidance::Helper, &["subagent", "parallel_subagent"], &[]), "");
        assert_eq!(guidance_for(Guidance::None, &["grep", MESSAGE_TOOL], &["delegate"]), "");
    }

    #[test]
    fn guidance_mentions_message_only_to_roles_that_have_it() {
        assert!(guidance_for(Guidance::Role, &[MESSAGE_TOOL], &[]).contains("`message`"));
        assert!(!guidance_for(Guidance::Role, &["grep"], &[]).contains("message"));
        assert!(!guidance_for(Guidance::Helper, &["grep", MESSAGE_TOOL], &[]).contains("message"));
    }

    #[test]
    fn style_at_its_depth_limit_is_visible_but_not_usable() {
        let styles = all_styles();
        let helper = r#"{"label":"h","task_prompt":"x"}"#;
        let one = TestAgent::root().child(&styles, "subagent", helper);
        let two = one.child(&styles, "subagent", helper);
        let usable = |test_agent: &TestAgent| {
            let offered = styles.specs(&test_agent.caller());
            styles
                .usable_tools(&test_agent.caller(), &offered)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert!(usable(&one).contains(&"subagent".to_owned()));
        assert_eq!(two.offered(&styles), ["subagent", "parallel_subagent"]);
        assert_eq!(usable(&two), Vec::<String>::new());
    }
}
