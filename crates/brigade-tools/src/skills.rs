//! Skills: instructions for a kind of work, each in a folder with a `SKILL.md`.
//!
//! The file begins with YAML frontmatter that contains a name and a description. The rest is what an agent reads
//! when it uses the skill, and it can read the other files of the folder too. Agents with `allow_skills` are
//! offered the skills through the tool `skill`.

#[cfg(feature = "skills")]
mod discovery;
#[cfg(feature = "skills")]
mod tool;

use std::sync::Arc;

use brigade_base::pinned_files::PinnedFiles;

use super::{AnyTool, Files};

#[cfg(feature = "skills")]
pub use discovery::{MAX_SKILL_BYTES, MAX_SKILLS, SkillProblem};

/// Name of the tool.
pub const SKILL: &str = "skill";

/// Skills of a runtime. The default is none.
#[derive(Clone, Default)]
pub struct Skills {
    list: Arc<[Skill]>,
    tool: Option<Arc<dyn AnyTool>>,
}

/// Skill that agents can read.
#[derive(Debug, Clone)]
pub struct Skill {
    /// Name that agents use.
    pub name: String,
    /// Purpose of the skill.
    pub description: String,
    /// Instructions for the agent.
    pub body: Arc<str>,
    /// Access to the files of its folder and to no others.
    pub(crate) files: Files,
    /// Content of the files that are used only unchanged.
    pub(crate) pinned: PinnedFiles,
}

impl Skills {
    /// Returns all skills by name.
    pub fn list(&self) -> &[Skill] {
        &self.list
    }

    /// Returns the tool for agents with `allow_skills`; `None` if there are no skills.
    pub fn tool(&self) -> Option<&Arc<dyn AnyTool>> {
        self.tool.as_ref()
    }
}
