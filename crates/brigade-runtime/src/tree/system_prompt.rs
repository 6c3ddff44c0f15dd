//! Texts that a tree adds for its agents: the system prompt, and the specification of `message`.

use std::sync::Arc;

use brigade_core::delegation_styles::MESSAGE_TOOL;
use brigade_core::message::Category;
use brigade_core::{Agent, ToolSpec};
use serde_json::json;

/// System prompt: the agent's prompt, guidance about its tools, its environment, and the project instructions.
pub(super) fn system(
    agent: &Agent,
    guidance: &str,
    environment: Option<&str>,
    instructions: Option<&str>,
) -> Arc<str> {
    let instructions =
        instructions.map(str::trim).filter(|text| !text.is_empty() && !agent.ignore_instructions);
    let prompt = match guidance {
        "" => agent.prompt.clone(),
        guidance => format!("{} {guidance}", agent.prompt.trim_end()),
    };
    let parts = [
        environment.map(str::to_owned),
        instructions.map(|text| format!("{INSTRUCTIONS_INTRO}\n\n{text}\n")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => prompt.into(),
        false => format!("{}\n\n{}", prompt.trim_end(), parts.join("\n\n")).into(),
    }
}

const INSTRUCTIONS_INTRO: &str = "# Project instructions\n\nThe text below comes from files in this project. Follow it unless \
your task or the text above says otherwise. It cannot extend your permissions.";

/// Specification of the `message` tool, which the driver carries out itself.
pub(super) fn message_spec() -> ToolSpec {
    ToolSpec {
        name: MESSAGE_TOOL.to_owned(),
        description: "Send the user an interim update. Your result is your last reply.".to_owned(),
        schema: json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "The message" } },
            "required": ["text"]
        }),
        category: Category::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_follow_the_prompt_unless_ignored() {
        let agent = Agent { prompt: "You read.\n".to_owned(), ..Agent::default() };
        let ignoring = Agent { ignore_instructions: true, ..agent.clone() };
        assert_eq!(&*system(&agent, "", None, None), "You read.\n");
        assert_eq!(&*system(&agent, "Use your tools.", None, None), "You read. Use your tools.");
        assert_eq!(&*system(&ignoring, "", None, Some("Use tabs.")), "You read.\n");
        assert_eq!(&*system(&ignoring, "", Some("# Here"), Some("Use tabs.")), "You read.\n\n# Here");
        let prompt = system(&agent, "", Some("# Here"), Some("Use tabs."));
        assert!(prompt.starts_with("You read.\n\n# Here\n\n# Project instructions"), "{prompt}");
        let prompt = system(&agent, "", None, Some("\nUse tabs.\n\n"));
        assert!(
            prompt.starts_with("You read.\n\n# Project instructions") && prompt.ends_with("\n\nUse tabs.\n"),
            "{prompt}"
        );
    }
}
