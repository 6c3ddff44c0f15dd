use super::*;

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { root: tempfile::tempdir().unwrap() };
        for directory in ["home/project/.git", "home/.ssh", "home/.cargo", "home/data", "home/extra"] {
            std::fs::create_dir_all(place.path(directory)).unwrap();
        }
        for file in ["home/project/.env", "home/project/AGENTS.md"] {
            std::fs::write(place.path(file), "A=b").unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    fn server(&self, mode: SandboxMode, access: ServerAccess) -> ServerSandbox {
        let settings = SandboxSettings {
            mode,
            home: Some(self.path("home")),
            private: vec![self.path("home/data")],
            ..SandboxSettings::default()
        };
        ServerSandbox::new(Arc::new(settings), self.path("home/project"), Permissions::default(), access)
    }

    fn confinement(&self, server: &ServerSandbox, command: &str) -> Option<Sandbox> {
        let directory = self.path("home/project");
        let program = ServerProgram { command, arguments: &[], directory: &directory, environment: &[] };
        match server.confinement(program, &TemporaryDirectory::default()).unwrap() {
            Confinement::None => None,
            Confinement::Sandbox(sandbox) => Some(*sandbox),
        }
    }

    fn sandbox(&self, server: &ServerSandbox) -> Sandbox {
        self.confinement(server, "server").unwrap()
    }
}

fn has(list: &[std::ffi::OsString], path: &Path) -> bool {
    list.iter().any(|found| found == path)
}

#[test]
fn server_of_the_user_writes_to_the_workspace_and_to_what_its_entry_names() {
    let place = Place::new();
    let access = ServerAccess {
        network: Network::On,
        write: vec![place.path("home/extra")],
        state: vec![place.path("home/.tool/state")],
        read: vec![place.path("home/.ssh"), place.path("home/data")],
        nested_namespaces: true,
        ..ServerAccess::default()
    };
    let found = place.sandbox(&place.server(SandboxMode::Workspace, access.clone()));
    let writable =
        ["home/.tool/state", "home/extra", "home/project"].map(|name| place.path(name).into_os_string());
    assert_eq!(found.writable, writable);
    assert_eq!((found.network, found.nested_namespaces), (Network::On, true));
    assert!(has(&found.hidden, &place.path("home/project/.env")));
    assert!(has(&found.hidden, &place.path("home/data")), "Brigade's own files are never granted");
    assert!(!has(&found.hidden, &place.path("home/.ssh")));
    assert!(has(&found.discarded, &place.path("home/.cargo")));
    // In a read-only sandbox, only the program's own state can be written.
    let found = place.sandbox(&place.server(SandboxMode::ReadOnly, access));
    assert_eq!(found.writable, [place.path("home/.tool/state").into_os_string()]);
}

#[test]
fn server_of_a_project_gets_nothing_beyond_the_workspace() {
    let place = Place::new();
    let access = ServerAccess {
        origin: ServerOrigin::Project,
        write: vec![place.path("home/extra")],
        state: vec![place.path("home/.tool")],
        read: vec![place.path("home/.ssh")],
        nested_namespaces: true,
        ..ServerAccess::default()
    };
    let found = place.confinement(&place.server(SandboxMode::Workspace, access), "claude").unwrap();
    assert_eq!(found.writable, [place.path("home/project").into_os_string()]);
    assert_eq!((found.network, found.nested_namespaces), (Network::Off, false));
    assert!(has(&found.hidden, &place.path("home/.ssh")));
    assert!(!place.path("home/.tool").exists() && !place.path("home/.claude").exists());
}

/// The user would see placeholders for as long as the server runs.
#[test]
fn missing_files_of_the_workspace_get_no_placeholder() {
    let place = Place::new();
    let found = place.sandbox(&place.server(SandboxMode::Workspace, ServerAccess::default()));
    let project = place.path("home/project");
    assert!(has(&found.protected, &project.join("AGENTS.md")));
    assert!(has(&found.protected, &project.join(".git/hooks")));
    assert!(!has(&found.protected, &project.join(".mcp.json")));
    assert!(!has(&found.protected, &project.join(".git/config.worktree")));
}

#[test]
fn state_of_a_known_agent_is_writable_except_the_settings_that_run_programs() {
    let place = Place::new();
    let claude = place.path("home/.claude");
    std::fs::create_dir_all(claude.join("skills")).unwrap();
    std::fs::write(place.path("home/.claude.json"), "{}").unwrap();
    let server = place.server(SandboxMode::ReadOnly, ServerAccess::default());
    let found = place.confinement(&server, "claude").unwrap();
    assert_eq!(found.writable, [claude.clone().into(), place.path("home/.claude.json").into_os_string()]);
    assert!(has(&found.protected, &claude.join("skills")));
    assert!(!has(&found.protected, &claude.join("settings.json")), "it is missing");
    // The state of a program that was never started is created.
    place.confinement(&server, "codex").unwrap();
    assert!(place.path("home/.codex").is_dir());
    assert!(place.confinement(&server, "other").unwrap().writable.is_empty());
}

#[test]
fn mode_and_authority_narrow_the_sandbox_of_an_agent() {
    use SandboxMode::{Off, ReadOnly, Workspace};
    let place = Place::new();
    let of = |settings, chosen, mode, widest| {
        let access = ServerAccess { mode: chosen, ..ServerAccess::default() };
        place.server(settings, access).for_session(mode, widest).mode()
    };
    for mode in [Mode::Plan, Mode::Ask] {
        assert_eq!(of(Workspace, None, mode, Some(Workspace)), ReadOnly);
        assert_eq!(of(Off, None, mode, None), Off);
        assert_eq!(of(Off, Some(Workspace), Mode::Plan, None), ReadOnly);
        // The user wants no sandbox for it.
        assert_eq!(of(Workspace, Some(Off), mode, Some(Workspace)), Off);
    }
    assert_eq!(of(Workspace, Some(Workspace), Mode::Ask, Some(Workspace)), Workspace);
    assert_eq!(of(Workspace, Some(ReadOnly), Mode::Ask, Some(Workspace)), ReadOnly);
    for mode in [Mode::Edit, Mode::Auto] {
        assert_eq!(of(Workspace, None, mode, Some(Workspace)), Workspace);
        assert_eq!(of(ReadOnly, Some(Workspace), mode, Some(ReadOnly)), Workspace);
        // A role or an agent file narrows every choice.
        assert_eq!(of(Workspace, Some(Off), mode, Some(ReadOnly)), ReadOnly);
        assert_eq!(of(Off, None, mode, Some(ReadOnly)), ReadOnly);
        assert_eq!(of(Off, Some(Off), mode, Some(Workspace)), Workspace);
    }
    let access = ServerAccess { confines_itself: true, ..ServerAccess::default() };
    let brigade = place.server(Workspace, access);
    for mode in [Mode::Plan, Mode::Edit] {
        assert_eq!(brigade.for_session(mode, Some(ReadOnly)).mode(), Off);
    }
    let access =
        ServerAccess { mode: Some(Workspace), origin: ServerOrigin::Project, ..ServerAccess::default() };
    let of_project = place.server(Workspace, access);
    assert_eq!(of_project.for_session(Mode::Ask, Some(Workspace)).mode(), ReadOnly);
}

#[test]
fn workspace_that_contains_the_home_directory_is_refused() {
    let place = Place::new();
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        home: Some(place.path("home")),
        ..SandboxSettings::default()
    };
    let server = ServerSandbox::new(
        Arc::new(settings),
        place.path(""),
        Permissions::default(),
        ServerAccess::default(),
    );
    let directory = place.path("home");
    let program =
        ServerProgram { command: "server", arguments: &[], directory: &directory, environment: &[] };
    let refused = server.confinement(program, &TemporaryDirectory::default());
    assert!(matches!(refused, Err(SandboxError::Home)));
}

#[test]
fn state_that_is_a_home_directory_uncovers_no_secret() {
    let place = Place::new();
    let access = ServerAccess { state: vec![place.path("home")], ..ServerAccess::default() };
    let found = place.sandbox(&place.server(SandboxMode::Workspace, access));
    assert!(has(&found.hidden, &place.path("home/.ssh")) && has(&found.hidden, &place.path("home/data")));
    let access = ServerAccess { state: vec![place.path("home/.ssh")], ..ServerAccess::default() };
    let found = place.sandbox(&place.server(SandboxMode::Workspace, access));
    assert!(!has(&found.hidden, &place.path("home/.ssh")) && has(&found.writable, &place.path("home/.ssh")));
}

#[test]
fn arguments_uncover_no_private_directory() {
    let place = Place::new();
    let server = place.server(SandboxMode::Workspace, ServerAccess::default());
    let (directory, file) = (place.path("home/project"), place.path("home/extra"));
    let arguments = ["/tmp", "/", "/run", file.to_str().unwrap(), "relative"].map(str::to_owned);
    let program =
        ServerProgram { command: "npx", arguments: &arguments, directory: &directory, environment: &[] };
    let Confinement::Sandbox(found) = server.confinement(program, &TemporaryDirectory::default()).unwrap()
    else {
        panic!("there is no sandbox")
    };
    assert_eq!(found.visible, [file.into_os_string(), directory.into_os_string()]);
    assert!(has(&found.discarded, &place.path("home/.npm")), "it is created for npx");
}

/// A command of an agent can replace a directory of the workspace by a link.
#[test]
fn links_in_the_workspace_lead_to_no_access_outside() {
    let place = Place::new();
    let link = |name: &str, target: &str| {
        let link = place.path("home/project").join(name);
        std::os::unix::fs::symlink(place.path(target), &link).unwrap();
        link
    };
    let (out, inside) = (link("out", "home"), link("in", "home/project/.git"));
    let access = ServerAccess {
        state: vec![out.clone(), inside],
        write: vec![out.clone()],
        sockets: vec![out],
        ..ServerAccess::default()
    };
    let found = place.sandbox(&place.server(SandboxMode::Workspace, access));
    let project = place.path("home/project");
    assert_eq!(found.writable, [project.clone().into_os_string(), project.join(".git").into_os_string()]);
    assert_eq!(found.sockets, Vec::<std::ffi::OsString>::new());
    // Outside the workspace, links of the user are followed.
    std::os::unix::fs::symlink(place.path("home/extra"), place.path("home/linked")).unwrap();
    let access = ServerAccess { state: vec![place.path("home/linked")], ..ServerAccess::default() };
    let found = place.sandbox(&place.server(SandboxMode::ReadOnly, access));
    assert_eq!(found.writable, [place.path("home/extra").into_os_string()]);
}
