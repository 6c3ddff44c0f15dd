//! Key `sandbox` of MCP servers and external agents.

use std::path::PathBuf;

use brigade::sandbox::{Network, SandboxMode, ServerAccess, ServerOrigin, ServerSandbox};
use brigade_sandbox::GuardCommand;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Settings;
use super::sandbox::absolute;
use crate::error::CliError;

/// Sandbox of a server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawServerSandbox {
    /// Sandbox of the program: workspace, read-only or off; by default that of `sandbox.mode`.
    mode: Option<SandboxMode>,
    /// Secrets that the program can read, in addition to those of `sandbox.read`.
    read: Vec<String>,
    /// Directories that it can write to in addition to the workspace; ignored in mode read-only.
    write: Vec<String>,
    /// Directories with its own state, which it can write to in every mode; missing ones are created. Those of well-known
    /// agents need not be listed.
    state: Vec<String>,
    /// UNIX sockets that it can connect to, in addition to those of `sandbox.sockets`.
    sockets: Vec<String>,
    /// Whether it can use the network; by default true, or false for a server of a project.
    network: Option<bool>,
}

/// Kind of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerKind {
    Mcp,
    /// An external agent, which may bring a sandbox of its own.
    Agent,
}

/// Program of a server, and the origin of its entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerEntry<'a> {
    pub(super) kind: ServerKind,
    pub(super) origin: ServerOrigin,
    pub(super) command: &'a str,
    pub(super) guard: &'a GuardCommand,
}

impl RawServerSandbox {
    /// Resolves the sandbox of a server. A project can only narrow it.
    pub(super) fn resolve(
        &self,
        entry: ServerEntry<'_>,
        settings: &Settings,
    ) -> Result<ServerSandbox, CliError> {
        if entry.origin == ServerOrigin::Project
            && let Some(key) = self.widens(settings.sandbox.mode)
        {
            return Err(CliError::usage(format!(
                "a project cannot widen the sandbox of a server with `sandbox.{key}`. Define the server in your own \
                 configuration."
            )));
        }
        let RawServerSandbox { mode, read, write, state, sockets, network } = self;
        let paths =
            |names: &[String]| names.iter().map(|name| absolute(&settings.environment, name)).collect();
        let is_of_user = entry.origin == ServerOrigin::User;
        // Brigade confines its own agents, and needs the sessions that a sandbox hides.
        let is_brigade = is_this_program(&entry, settings);
        let is_confined = mode.unwrap_or(settings.sandbox.mode) != SandboxMode::Off;
        if is_brigade && is_confined && (!is_of_user || mode.is_some()) {
            let fix = match is_of_user {
                true => "Remove `sandbox.mode` from its entry, because Brigade confines its own agents.",
                false => "Define the server in your own configuration.",
            };
            return Err(CliError::usage(format!(
                "cannot run brigade in the sandbox of a server: the sandbox hides its sessions. {fix}"
            )));
        }
        let access = ServerAccess {
            mode: *mode,
            origin: entry.origin,
            read: paths(read),
            write: paths(write),
            state: paths(state),
            sockets: paths(sockets),
            network: match network.unwrap_or(is_of_user) {
                true => Network::On,
                false => Network::Off,
            },
            nested_namespaces: entry.kind == ServerKind::Agent,
            confines_itself: is_brigade && is_of_user,
        };
        let workspace = settings.folder.canonicalize().unwrap_or_else(|_| settings.folder.clone());
        Ok(ServerSandbox::new(settings.sandbox.clone(), workspace, settings.permissions.clone(), access))
    }

    /// The first key that gives more access than the default.
    fn widens(&self, default: SandboxMode) -> Option<&'static str> {
        let RawServerSandbox { mode, read, write, state, sockets, network } = self;
        [
            ("mode", mode.is_some_and(|mode| mode > default)),
            ("read", !read.is_empty()),
            ("write", !write.is_empty()),
            ("state", !state.is_empty()),
            ("sockets", !sockets.is_empty()),
            ("network", *network == Some(true)),
        ]
        .into_iter()
        .find_map(|(key, widens)| widens.then_some(key))
    }
}

/// Whether a server is this executable.
fn is_this_program(entry: &ServerEntry<'_>, settings: &Settings) -> bool {
    let program = PathBuf::from(entry.command);
    let search = settings.environment.variable("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = match entry.command.contains('/') {
        true => vec![settings.folder.join(program)],
        false => std::env::split_paths(&search).map(|folder| folder.join(&program)).collect(),
    };
    let found = candidates.into_iter().find(|file| file.is_file()).and_then(|file| file.canonicalize().ok());
    found.is_some() && found == entry.guard.program.canonicalize().ok()
}
