//! `brigade agents new`: creates an agent file from a template.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use brigade::agents::is_id;
use serde_json::json;

use crate::error::{CliError, Exit};
use crate::output;
use crate::private_files;
use crate::sanitize;
use crate::settings::{LEAD_AGENT, PROJECT_AGENTS, Settings};

/// Owner of the new agent.
pub(super) enum AgentScope {
    /// The user.
    User,
    /// The project.
    Project,
}

/// Template of the file, with `{id}` as a placeholder.
const TEMPLATE: &str = "\
---
name: {id}
description: What {id} is good at, and when to delegate a task to it
# Allowed tools, by default those that its parent can pass on. List all tools with: brigade tools list
tools: [read_file, list_dir, grep, glob]
# model: provider/model        # default: the model of its parent
# fallbacks: [provider/model]  # used in this order if the model fails permanently
# temperature: 0.7             # from 0 to 2
# max_tokens: 8000             # maximum output tokens per reply
# max_turns: 20                # maximum model calls per task
# timeout: 10m                 # maximum duration of a task
# mode: plan                   # maximum mode: plan, ask, edit or auto
# deny: [\"read_file(**/.env*)\"]
# allow_skills: false
# max_concurrency: 2           # maximum number of running instances
---

You are {id}. Replace this sentence with instructions: what to do, how to work and what a good result looks like.
";

/// Runs the command.
pub(super) fn run(settings: &Settings, id: &str, scope: AgentScope, is_text: bool) -> Result<Exit, CliError> {
    if !is_id(id) || id == LEAD_AGENT {
        return Err(CliError::usage(format!(
            "cannot create the agent '{id}': invalid id. Use 1 to 64 characters from a-z, 0-9, `.`, `_` and `-`, starting with a letter or digit. `{LEAD_AGENT}` is reserved."
        )));
    }
    let folder = match scope {
        AgentScope::Project => settings.folder.join(PROJECT_AGENTS).components().collect(),
        AgentScope::User => user_agents_folder(settings)?,
    };
    let file = folder.join(id).join("AGENT.md");
    write(&file, &TEMPLATE.replace("{id}", id), scope)?;
    if is_text {
        output::text(&sanitize::path(&file))?;
        output::note("Edit it, then check it with: brigade agents lint");
    } else {
        output::json(&json!({ "id": id, "file": file }))?;
    }
    Ok(Exit::Done)
}

fn user_agents_folder(settings: &Settings) -> Result<PathBuf, CliError> {
    let nowhere = || {
        CliError::usage(
            "cannot determine the agents directory: neither BRIGADE_HOME nor HOME is set. Set one of them.",
        )
    };
    settings.agent_folders.user.clone().ok_or_else(nowhere)
}

/// Writes a new file. Fails if it exists. A project is shared with others, so the umask decides there.
fn write(file: &Path, text: &str, scope: AgentScope) -> Result<(), CliError> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => CliError::usage(format!(
            "cannot create {}: it already exists. Choose another id, or edit the file.",
            file.display()
        )),
        _ => CliError::failed(format!("cannot write {}: {error}", file.display())),
    };
    if let Some(folder) = file.parent() {
        let created = match scope {
            AgentScope::Project => std::fs::create_dir_all(folder),
            AgentScope::User => private_files::create_directory(folder),
        };
        created.map_err(|error| CliError::failed(format!("cannot create {}: {error}", folder.display())))?;
    }
    let mut options = match scope {
        AgentScope::Project => std::fs::OpenOptions::new(),
        AgentScope::User => private_files::options(),
    };
    let mut opened = options.write(true).create_new(true).open(file).map_err(failed)?;
    opened.write_all(text.as_bytes()).map_err(failed)
}
