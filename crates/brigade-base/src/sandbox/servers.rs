//! Sandbox of MCP servers and external agents.
//!
//! Unlike a command, a server runs for as long as its sessions. So it gets no placeholders in the workspace, which the user
//! would see all the time.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_core::permission::{Mode, Permissions};
use brigade_sandbox::{Confinement, Network, Sandbox};

use super::program_state::ProgramState;
use super::scan::ScanCache;
use super::temporary::TemporaryDirectory;
use super::{
    CACHES, SandboxError, SandboxMode, SandboxSettings, contains_any, existing, os_strings, places,
    protected, secrets,
};

/// Sandbox of a server: the settings, and the access that its configuration entry gives. The default is no sandbox.
#[derive(Debug, Clone, Default)]
pub struct ServerSandbox {
    settings: Arc<SandboxSettings>,
    workspace: PathBuf,
    permissions: Arc<Permissions>,
    access: ServerAccess,
    mode: SandboxMode,
}

/// Access of a server, as its configuration entry sets it.
#[derive(Debug, Clone, Default)]
pub struct ServerAccess {
    /// Sandbox that the entry chooses. That of the user can be wider than `sandbox.mode`.
    pub mode: Option<SandboxMode>,
    /// Origin of the entry.
    pub origin: ServerOrigin,
    /// Files and directories that can be read although they look like secrets.
    pub read: Vec<PathBuf>,
    /// Directories that can be written in addition to the workspace, unless the sandbox is read-only.
    pub write: Vec<PathBuf>,
    /// Directories with the program's own state. They can be written in every mode, and are created if they are missing.
    pub state: Vec<PathBuf>,
    /// UNIX sockets that can be connected to in addition to those of the settings.
    pub sockets: Vec<PathBuf>,
    /// Network access.
    pub network: Network,
    /// Whether the program may create user namespaces for a sandbox of its own.
    pub nested_namespaces: bool,
    /// Whether it keeps its own agents within the sandbox that a caller passes on, as Brigade does. It gets no sandbox.
    pub confines_itself: bool,
}

/// Origin of the entry of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerOrigin {
    /// The user's own configuration, or the editor that the user works with.
    #[default]
    User,
    /// Files of a project.
    Project,
}

/// The program of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerProgram<'a> {
    pub(crate) command: &'a str,
    pub(crate) arguments: &'a [String],
    pub(crate) directory: &'a Path,
    pub(crate) environment: &'a [(String, String)],
}

/// Directories of the host that are never visible as a whole.
const PRIVATE: [&str; 4] = ["/dev", "/run", "/tmp", "/var/tmp"];

impl ServerSandbox {
    /// Sandbox of a server that works in this workspace. Path rules of `permissions` hide and protect files. The entry of a
    /// project can only narrow the mode.
    pub fn new(
        settings: Arc<SandboxSettings>,
        workspace: PathBuf,
        permissions: Permissions,
        access: ServerAccess,
    ) -> ServerSandbox {
        let access = match access.origin {
            ServerOrigin::User => access,
            ServerOrigin::Project => ServerAccess {
                mode: access.mode.map(|mode| mode.min(settings.mode)),
                origin: ServerOrigin::Project,
                ..ServerAccess::default()
            },
        };
        let mode = match access.confines_itself {
            true => SandboxMode::Off,
            false => access.mode.unwrap_or(settings.mode),
        };
        ServerSandbox { settings, workspace, permissions: Arc::new(permissions), access, mode }
    }

    /// Mode of the sandbox.
    pub fn mode(&self) -> SandboxMode {
        self.mode
    }

    /// Sandbox of an external agent for a session in this mode, whose authority permits at most the sandbox `widest`.
    ///
    /// In mode `plan` the agent cannot write to the workspace. In mode `ask` it can only through Brigade, unless the user
    /// chose a sandbox for it. An agent or role with a narrower sandbox than the settings narrows it further.
    #[must_use]
    pub fn for_session(&self, mode: Mode, widest: Option<SandboxMode>) -> ServerSandbox {
        let chosen = self.access.mode.filter(|_| self.access.origin == ServerOrigin::User);
        let by_mode = match (self.mode, mode) {
            (SandboxMode::Off, _) => SandboxMode::Off,
            (_, Mode::Plan) => SandboxMode::ReadOnly,
            (own, Mode::Ask) => chosen.unwrap_or(SandboxMode::ReadOnly).min(own),
            (own, Mode::Edit | Mode::Auto) => own,
        };
        let bound = widest.filter(|widest| *widest < self.settings.mode && !self.access.confines_itself);
        let bound = bound.unwrap_or(SandboxMode::Off);
        ServerSandbox { mode: by_mode.min(bound), ..self.clone() }
    }

    /// Describes the sandbox for the user.
    pub fn description(&self) -> String {
        let network = match self.access.network {
            Network::On => "network",
            Network::Proxy => "network through a proxy",
            Network::Off => "no network",
        };
        match self.mode {
            SandboxMode::Off => "no sandbox".to_owned(),
            mode => format!("sandbox {mode}, {network}"),
        }
    }

    /// Directory for the server's `/tmp`.
    pub(crate) fn temporary(&self) -> TemporaryDirectory {
        TemporaryDirectory::of_server(self.settings.temporary.as_deref())
    }

    /// Returns the confinement of the server.
    pub(crate) fn confinement(
        &self,
        program: ServerProgram<'_>,
        temporary: &TemporaryDirectory,
    ) -> Result<Confinement, SandboxError> {
        if self.mode == SandboxMode::Off {
            return Ok(Confinement::None);
        }
        let workspace = self.workspace.canonicalize().unwrap_or_else(|_| self.workspace.clone());
        if self.settings.home.as_deref().is_some_and(|home| home.starts_with(&workspace)) {
            return Err(SandboxError::Home);
        }
        let is_of_user = self.access.origin == ServerOrigin::User;
        let known = match is_of_user {
            true => ProgramState::of(&program, self.settings.home.as_deref()),
            false => ProgramState::default(),
        };
        let state = self.state(&known, &workspace);
        let mut writable = state.clone();
        if self.mode == SandboxMode::Workspace {
            writable.push(workspace.clone());
            writable.extend(self.real(&workspace, self.access.write.iter()));
        }
        let scan = ScanCache::default().scan(&workspace, &self.permissions)?;
        // Secrets below a directory that the entry names stay hidden, because it may be a whole home directory.
        let is_state = |path: &PathBuf| {
            let mut own = known.directories.iter().chain(&known.files);
            own.any(|own| path.starts_with(own)) || self.access.state.contains(path)
        };
        let homes = homes(self.settings.home.as_deref(), &program);
        let hidden = homes.iter().flat_map(|home| secrets::in_home(home)).chain(scan.hidden);
        let hidden = hidden.filter(|path| !self.is_granted(path) && !is_state(path));
        let hidden = hidden.chain(self.settings.private.iter().cloned()).collect();
        let hidden = places::with_other_names(hidden, &workspace, &self.settings.private)?;
        let (instructions, _) = protected::instruction_files(&workspace);
        let protected = protected::in_workspace(&workspace)
            .chain(instructions)
            .chain(homes.iter().flat_map(|home| protected::in_home(home)))
            .filter(|path| !is_state(path))
            .chain(known.control.iter().cloned())
            .filter(|path| needs_no_visible_placeholder(path))
            .chain(scan.protected)
            .chain(self.settings.protected.iter().filter(|path| path.exists()).cloned());
        let forbidden = scan.forbidden.into_iter().chain([protected::redirection(&workspace.join(".git"))]);
        let discarded = homes.iter().flat_map(|home| CACHES.map(|cache| home.join(cache)));
        let mut discarded = existing(discarded.chain(known.discarded.iter().cloned()));
        discarded.retain(|path| {
            !writable.iter().any(|writable| path.starts_with(writable)) && !contains_any(path, &writable)
        });
        let outer = discarded.clone();
        discarded.retain(|path| !outer.iter().any(|outer| path.starts_with(outer) && path != outer));
        let sockets = match is_of_user {
            true => [&self.settings.sockets[..], &self.access.sockets].concat(),
            false => Vec::new(),
        };
        Ok(Confinement::Sandbox(Box::new(Sandbox {
            visible: os_strings(self.visible(&workspace, &program).into_iter()),
            writable: os_strings(writable.into_iter()),
            discarded: os_strings(discarded.into_iter()),
            protected: os_strings(protected),
            forbidden: os_strings(forbidden),
            hidden: os_strings(hidden.into_iter()),
            temporary: temporary.create()?.map(|parts| parts.temporary.into()),
            sockets: os_strings(self.real(&workspace, sockets.iter())),
            network: self.access.network,
            nested_namespaces: self.access.nested_namespaces,
            limits: self.settings.limits,
            allow_landlock_only: true,
        })))
    }

    /// Whether the user lets the server read a path that looks like a secret.
    fn is_granted(&self, path: &Path) -> bool {
        self.settings.read.iter().chain(&self.access.read).any(|read| path.starts_with(read))
    }

    /// Directories and files with the state of the program. Those that are missing are created, as the program itself would
    /// do. If that fails, the program reports it.
    fn state(&self, known: &ProgramState, workspace: &Path) -> Vec<PathBuf> {
        use std::os::unix::fs::DirBuilderExt;
        let directories = || known.directories.iter().chain(&self.access.state);
        for directory in directories().chain(&known.discarded) {
            if directory.symlink_metadata().is_err() {
                let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
            }
        }
        self.real(workspace, directories().chain(&known.files)).collect()
    }

    /// The real paths of those that exist. A path in a directory that agents can write to must not lead out of it, because
    /// an agent could have replaced it by a link.
    fn real<'a>(
        &'a self,
        workspace: &'a Path,
        paths: impl Iterator<Item = &'a PathBuf>,
    ) -> impl Iterator<Item = PathBuf> {
        paths.filter_map(move |path| {
            let real = path.canonicalize().ok()?;
            let others = self.settings.write.iter().map(PathBuf::as_path);
            let mut roots = [workspace, &self.workspace].into_iter().chain(others);
            let is_kept = match roots.find(|root| path.starts_with(root)) {
                Some(root) => real.starts_with(root.canonicalize().ok()?),
                None => true,
            };
            is_kept.then_some(real)
        })
    }

    /// Paths that are readable even if they are below `/tmp` or `/run`: a program of the user may be there, and the
    /// addresses of name servers.
    fn visible(&self, workspace: &Path, program: &ServerProgram<'_>) -> Vec<PathBuf> {
        let mut visible = vec![workspace.to_path_buf()];
        visible.extend(self.settings.read.iter().chain(&self.access.read).cloned());
        if self.access.origin == ServerOrigin::User {
            visible.push(program.directory.to_path_buf());
            let words = std::iter::once(program.command).chain(program.arguments.iter().map(String::as_str));
            visible.extend(words.map(PathBuf::from).filter(|path| path.is_absolute()));
        }
        if self.access.network == Network::On {
            visible.push(PathBuf::from("/etc/resolv.conf"));
        }
        let mut visible = existing(visible.into_iter());
        // An argument such as `/tmp` must not uncover all of it.
        visible.retain(|path| !PRIVATE.iter().any(|private| Path::new(private).starts_with(path)));
        visible
    }
}

/// Home directories: the user's, and the one that the server is given.
fn homes(home: Option<&Path>, program: &ServerProgram<'_>) -> Vec<PathBuf> {
    let own = program.environment.iter().find(|(name, _)| name == "HOME");
    let own = own.map(|(_, value)| PathBuf::from(value)).filter(|home| home.is_absolute());
    let mut homes: Vec<PathBuf> = home.map(Path::to_path_buf).into_iter().chain(own).collect();
    homes.dedup();
    homes
}

/// Whether a protected path exists, or can get a placeholder that does not disturb the user while the server runs: an empty
/// directory for hooks.
fn needs_no_visible_placeholder(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
        || (path.file_name() == Some(OsStr::new("hooks")) && path.parent().is_some_and(Path::is_dir))
}

#[cfg(test)]
mod tests;
