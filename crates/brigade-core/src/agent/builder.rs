//! Agent definitions in code.

use super::Agent;
use crate::grant::Budget;
use crate::permission::Mode;

/// Definitions in code. The methods set the fields of the same names.
///
/// ```
/// use brigade_core::Agent;
/// let reviewer = Agent::new("reviewer", "Reviews a change and lists its defects.")
///     .tools(["read_file", "grep"])
///     .max_turns(20);
/// assert_eq!(reviewer.id, "reviewer");
/// ```
impl Agent {
    /// Creates an agent. Callers read the description to choose an agent. It is also the system prompt, unless
    /// [`Agent::prompt`] sets another.
    ///
    /// The id consists of 1 to 64 lower-case letters, digits, `.`, `_` and `-`.
    pub fn new(id: impl Into<String>, description: impl Into<String>) -> Agent {
        let (id, description) = (id.into(), description.into());
        Agent { name: id.clone(), prompt: description.clone(), id, description, ..Agent::default() }
    }

    /// Sets the system prompt.
    pub fn prompt(self, prompt: impl Into<String>) -> Agent {
        Agent { prompt: prompt.into(), ..self }
    }

    /// Sets the model, as `provider/model`. Without it the agent uses the model of its caller.
    pub fn model(self, model: impl Into<String>) -> Agent {
        Agent { model: Some(model.into()), ..self }
    }

    /// Sets the tools that the agent may use. Without them it has those of its caller.
    pub fn tools<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Agent {
        Agent { tools: Some(tools.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the maximum number of model calls in one round.
    pub fn max_turns(self, turns: u32) -> Agent {
        Agent { max_turns: Some(turns), ..self }
    }

    /// Sets the budget of one round, children included.
    pub fn budget(self, budget: Budget) -> Agent {
        Agent { budget: Some(budget), ..self }
    }

    /// Sets the permission mode, if it is narrower than the caller's.
    pub fn mode(self, mode: Mode) -> Agent {
        Agent { mode: Some(mode), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_sets_its_field_and_keeps_the_others() {
        let plain = Agent::new("reviewer", "Reviews.");
        let expected = Agent {
            id: "reviewer".to_owned(),
            name: "reviewer".to_owned(),
            description: "Reviews.".to_owned(),
            prompt: "Reviews.".to_owned(),
            ..Agent::default()
        };
        assert_eq!(plain, expected);
        let complete = plain
            .prompt("Be strict.")
            .model("anthropic/claude")
            .tools(["grep", "read_file"])
            .max_turns(20)
            .budget(Budget::UNLIMITED)
            .mode(Mode::Plan);
        let expected = Agent {
            prompt: "Be strict.".to_owned(),
            model: Some("anthropic/claude".to_owned()),
            tools: Some(vec!["grep".to_owned(), "read_file".to_owned()]),
            max_turns: Some(20),
            budget: Some(Budget::UNLIMITED),
            mode: Some(Mode::Plan),
            ..expected
        };
        assert_eq!(complete, expected);
    }
}
