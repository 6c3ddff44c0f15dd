use std::collections::BTreeSet;

use brigade_core::permission::Permissions;

use super::*;

fn authority(workspace: &Path) -> Authority {
    Authority {
        workspace: workspace.to_string_lossy().into_owned(),
        paths: BTreeSet::from([String::new()]),
        network: Access::Allowed,
        permissions: Permissions { mode: Mode::Edit, ..Permissions::default() },
        ..Authority::default()
    }
}

fn sandbox(settings: &SandboxSettings, authority: &Authority) -> Sandbox {
    match settings.confinement(authority, &ExtraAccess::default(), &TreeSandbox::default()).unwrap() {
        Confinement::Sandbox(sandbox) => *sandbox,
        Confinement::None => panic!("there is no sandbox"),
    }
}

fn has(list: &[OsString], path: &Path) -> bool {
    list.iter().any(|found| found == path)
}

#[test]
fn narrower_of_settings_and_authority_counts() {
    let root = tempfile::tempdir().unwrap();
    let of = |settings, granted| {
        let settings = SandboxSettings { mode: settings, ..SandboxSettings::default() };
        let authority = Authority { sandbox: granted, ..authority(root.path()) };
        match settings.confinement(&authority, &ExtraAccess::default(), &TreeSandbox::default()).unwrap() {
            Confinement::None => None,
            Confinement::Sandbox(sandbox) => Some(sandbox.writable.len()),
        }
    };
    use SandboxMode::{Off, ReadOnly, Workspace};
    assert_eq!(of(Off, None), None);
    assert_eq!(of(Off, Some(Off)), None);
    assert_eq!(of(Off, Some(ReadOnly)), Some(0));
    assert_eq!(of(Workspace, None), Some(1));
    assert_eq!(of(Workspace, Some(Off)), Some(1));
    assert_eq!(of(Workspace, Some(ReadOnly)), Some(0));
    assert_eq!(of(ReadOnly, Some(Workspace)), Some(0));
}

#[test]
fn network_needs_both_settings_and_authority() {
    let root = tempfile::tempdir().unwrap();
    let of = |network, access| {
        let settings =
            SandboxSettings { mode: SandboxMode::Workspace, network, ..SandboxSettings::default() };
        sandbox(&settings, &Authority { network: access, ..authority(root.path()) }).network
    };
    let hosts = || NetworkAccess::Hosts(["example.com".parse().unwrap()].into_iter().collect());
    assert_eq!(of(NetworkAccess::All, Access::Allowed), Network::On);
    assert_eq!(of(hosts(), Access::Allowed), Network::Proxy);
    assert_eq!(of(NetworkAccess::Off, Access::Allowed), Network::Off);
    assert_eq!(of(NetworkAccess::All, Access::Denied), Network::Off);
    assert_eq!(of(hosts(), Access::Denied), Network::Off);
}

#[test]
fn secrets_are_hidden_unless_granted_and_private_files_always() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let (home, workspace, data) = (root.join("home"), root.join("home/project"), root.join("home/data"));
    for directory in [&workspace, &data, &home.join(".ssh"), &home.join(".cargo"), &home.join(".aws")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(workspace.join(".env"), "A=b").unwrap();
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        home: Some(home.clone()),
        private: vec![data.clone()],
        read: vec![home.join(".aws"), data.clone()],
        ..SandboxSettings::default()
    };
    let found = sandbox(&settings, &authority(&workspace));
    assert!(has(&found.hidden, &home.join(".ssh")) && has(&found.hidden, &workspace.join(".env")));
    assert!(has(&found.hidden, &data), "{:?}", found.hidden);
    assert!(!has(&found.hidden, &home.join(".aws")), "{:?}", found.hidden);
    assert!(
        has(&found.protected, &workspace.join(".git/hooks")) && has(&found.protected, &home.join(".bashrc"))
    );
    assert_eq!(found.discarded, [home.join(".cargo").into_os_string()]);
    assert_eq!(found.writable, [workspace.into_os_string()]);
}

#[test]
fn variables_of_hidden_sockets_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().canonicalize().unwrap().join("agent");
    std::fs::write(&socket, "").unwrap();
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        sockets: vec![socket.clone()],
        ..SandboxSettings::default()
    };
    let confinement = settings
        .confinement(&authority(root.path()), &ExtraAccess::default(), &TreeSandbox::default())
        .unwrap();
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let kept = [variable("PATH", "/bin"), variable("SSH_AUTH_SOCK", socket.to_str().unwrap())];
    let hidden = [
        variable("DOCKER_HOST", "unix:///run/docker.sock"),
        variable("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus"),
    ];
    let all: Vec<_> = kept.iter().chain(&hidden).cloned().collect();
    assert_eq!(visible_variables(&confinement, &all), kept);
    assert_eq!(visible_variables(&Confinement::None, &all), all);
}

#[test]
fn git_settings_are_added_to_those_of_the_user() {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut variables = vec![
        variable("GIT_CONFIG_COUNT", "1"),
        variable("GIT_CONFIG_KEY_0", "user.name"),
        variable("GIT_CONFIG_VALUE_0", "me"),
    ];
    add_git_settings(&mut variables);
    assert!(variables.contains(&variable("GIT_CONFIG_COUNT", "3")), "{variables:?}");
    assert!(variables.contains(&variable("GIT_CONFIG_KEY_0", "user.name")));
    assert!(variables.contains(&variable("GIT_CONFIG_KEY_2", "safe.bareRepository")));
    let mut none = Vec::new();
    add_git_settings(&mut none);
    assert!(none.contains(&variable("GIT_CONFIG_COUNT", "2")), "{none:?}");
}

#[test]
fn approved_access_widens_only_what_it_names() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    for directory in ["project/.git/hooks", "project/.claude/skills", "other", "data"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        private: vec![root.join("data")],
        ..SandboxSettings::default()
    };
    let authority = authority(&root.join("project"));
    let with = |write: &[&str], hosts: &[&str]| {
        let extra = ExtraAccess {
            write: write.iter().map(|path| (*path).to_owned()).collect(),
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        };
        settings.confinement(&authority, &extra, &TreeSandbox::default()).map(|confinement| match confinement
        {
            Confinement::Sandbox(sandbox) => *sandbox,
            Confinement::None => panic!("there is no sandbox"),
        })
    };
    let hooks = root.join("project/.git/hooks");
    assert!(has(&with(&[], &[]).unwrap().protected, &hooks));
    let found = with(&[".git/hooks", "../other"], &["example.com"]).unwrap();
    assert!(!has(&found.protected, &hooks) && has(&found.protected, &root.join("project/.git/config")));
    assert!(has(&found.writable, &root.join("other")));
    assert!(!has(&found.writable, &hooks), "with a mount of its own, git could not replace it");
    let skills = root.join("project/.claude/skills");
    assert!(has(&with(&[".claude/skills"], &[]).unwrap().writable, &skills), "its directory is protected");
    assert_eq!(found.network, Network::Proxy);
    assert!(has(&with(&["."], &[]).unwrap().protected, &hooks), "the workspace is no protected path");
    assert!(matches!(with(&["../data"], &[]), Err(SandboxError::Private { .. })));
    assert!(matches!(with(&[".."], &[]), Err(SandboxError::Private { .. })));
    assert!(matches!(with(&["missing"], &[]), Err(SandboxError::Path { .. })));
    std::os::unix::fs::symlink(root.join("other"), root.join("project/link")).unwrap();
    assert!(matches!(with(&["link"], &[]), Err(SandboxError::Path { .. })), "the user saw only its name");
    let offline = Authority { network: Access::Denied, ..authority.clone() };
    let extra = ExtraAccess { hosts: vec!["example.com".parse().unwrap()], ..ExtraAccess::default() };
    let refused = settings.confinement(&offline, &extra, &TreeSandbox::default());
    assert!(matches!(refused, Err(SandboxError::NoNetwork)));
}

/// Network of a job, and its variables about proxies.
fn job(sandbox: &CommandSandbox, hosts: &[&str]) -> (Network, Vec<String>) {
    let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
    let extra = ExtraAccess { hosts, ..ExtraAccess::default() };
    let variables = [("HTTPS_PROXY".to_owned(), "http://proxy.example:3128".to_owned())];
    let job = sandbox.job("true".into(), "/".into(), "s:1".into(), &variables, &extra).unwrap();
    let is_proxy = |name: &str| name.to_ascii_uppercase().ends_with("S_PROXY") || name.ends_with("NO_PROXY");
    let variables = job.environment.iter().filter(|(name, _)| is_proxy(name));
    let variables = variables.map(|(name, value)| format!("{name}={value}")).collect();
    let Confinement::Sandbox(sandbox) = job.confinement else { panic!("there is no sandbox") };
    assert_eq!(job.on_proxy.is_some(), sandbox.network == Network::Proxy);
    (sandbox.network, variables)
}

#[test]
fn proxy_is_used_for_lists_and_for_decisions() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().to_path_buf();
    let sandbox = |network: NetworkAccess, access| {
        let settings = SandboxSettings {
            mode: SandboxMode::Workspace,
            network: network.clone(),
            ..SandboxSettings::default()
        };
        let authority = Authority { network: access, ..authority(&root) };
        let temporary = TreeSandbox::default();
        CommandSandbox::new(move |extra| settings.confinement(&authority, extra, &temporary))
            .network(&network, access)
    };
    let ask = || HostDecider::new(|_| Box::pin(async { true }));
    let hosts = || NetworkAccess::Hosts(["example.com".parse().unwrap()].into_iter().collect());
    let direct = ["NO_PROXY=localhost,127.0.0.1,::1".to_owned()];
    let of_user = ["HTTPS_PROXY=http://proxy.example:3128".to_owned()];

    let off = sandbox(NetworkAccess::Off, Access::Allowed);
    assert_eq!(job(&off, &[]), (Network::Off, of_user.to_vec()));
    assert!(!off.connections().is_requested());
    assert_eq!(job(&off, &["example.com"]), (Network::Proxy, direct.to_vec()));
    assert!(off.connections().is_requested());
    assert_eq!(job(&off.deciding_hosts(ask()), &[]), (Network::Proxy, direct.to_vec()));
    assert_eq!(job(&sandbox(hosts(), Access::Allowed), &[]), (Network::Proxy, direct.to_vec()));
    let all = sandbox(NetworkAccess::All, Access::Allowed).deciding_hosts(ask());
    assert_eq!(job(&all, &[]), (Network::On, of_user.to_vec()));
    for settings in [NetworkAccess::Off, hosts(), NetworkAccess::All] {
        let denied = sandbox(settings, Access::Denied).deciding_hosts(ask());
        assert_eq!(job(&denied, &[]), (Network::Off, of_user.to_vec()));
    }
}

#[test]
fn workspace_that_contains_the_home_directory_has_no_sandbox() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        home: Some(root.join("home")),
        ..SandboxSettings::default()
    };
    let result = settings.confinement(&authority(&root), &ExtraAccess::default(), &TreeSandbox::default());
    assert!(matches!(result, Err(SandboxError::Home)));
}

#[test]
fn plan_mode_discards_every_change_and_has_no_way_out() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    for directory in ["project", "extra", "home/.cargo"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    std::fs::write(root.join("project/.env"), "A=b").unwrap();
    std::fs::write(root.join("socket"), "").unwrap();
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        write: vec![root.join("extra")],
        sockets: vec![root.join("socket")],
        network: NetworkAccess::All,
        home: Some(root.join("home")),
        ..SandboxSettings::default()
    };
    let mut authority = authority(&root.join("project"));
    authority.permissions.mode = Mode::Plan;
    let extra = ExtraAccess { write: vec![".git".into()], hosts: vec!["example.com".parse().unwrap()] };
    let Confinement::Sandbox(found) =
        settings.confinement(&authority, &extra, &TreeSandbox::default()).unwrap()
    else {
        panic!("there is no sandbox")
    };
    assert_eq!(found.writable, Vec::<OsString>::new());
    let expected = ["extra", "home/.cargo", "project"].map(|name| root.join(name).into_os_string());
    assert_eq!(found.discarded, expected);
    assert_eq!((found.network, found.allow_landlock_only), (Network::Off, false));
    assert!(found.sockets.is_empty());
    assert!(has(&found.hidden, &root.join("project/.env")));
    assert!(has(&found.protected, &root.join("project/.git/hooks")));
    let confinement = Confinement::Sandbox(found);
    assert!(discards(&confinement, &root.join("project/src")) && !discards(&confinement, &root));
    // A sandbox that writes nothing needs no overlay of the workspace.
    authority.sandbox = Some(SandboxMode::ReadOnly);
    assert_eq!(sandbox(&settings, &authority).discarded, [root.join("home/.cargo").into_os_string()]);
}

#[test]
fn agents_with_the_same_rights_share_layers() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("project")).unwrap();
    let settings = SandboxSettings { mode: SandboxMode::Workspace, ..SandboxSettings::default() };
    let tree = TreeSandbox::below(Some(&root.join("tmp")), "tree");
    let first = authority(&root.join("project"));
    let layers = |authority: &Authority| settings.layers(authority, &tree).unwrap().unwrap();
    let same = Authority { max_depth: 7, tools: BTreeSet::from(["shell".to_owned()]), ..first.clone() };
    assert!(Arc::ptr_eq(&layers(&first), &layers(&same)));
    let mut denied = first.clone();
    denied.permissions.deny.push("read_file(src/private)".parse().unwrap());
    for other in [
        Authority { sandbox: Some(SandboxMode::ReadOnly), ..first.clone() },
        Authority { network: Access::Denied, ..first.clone() },
        Authority { paths: BTreeSet::from(["src".to_owned()]), ..first.clone() },
        denied,
    ] {
        assert!(!Arc::ptr_eq(&layers(&first), &layers(&other)), "{other:?}");
    }
    // Another process may work for the same tree.
    let second = TreeSandbox::below(Some(&root.join("tmp")), "tree");
    assert!(settings.layers(&first, &second).unwrap().is_some());
    drop(second);
    let off = Authority { sandbox: Some(SandboxMode::Off), ..first };
    let no_sandbox = SandboxSettings::default();
    assert!(no_sandbox.layers(&off, &tree).unwrap().is_none());
    drop(tree);
    assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

#[test]
fn other_writable_directories_and_those_above_the_workspace_are_covered() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    for directory in ["repo/.git/objects", "repo/app", "other/.git/objects", "other/.vscode", "plain"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    for file in ["repo/.git/HEAD", "other/.git/HEAD", "other/AGENTS.md", "repo/.env", "repo/notes", ".env"] {
        std::fs::write(root.join(file), "").unwrap();
    }
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        write: vec![root.join("other"), root.join("plain")],
        ..SandboxSettings::default()
    };
    let found = sandbox(&settings, &authority(&root.join("repo/app")));
    for name in [".git/hooks", ".git/config", ".vscode", "AGENTS.md"] {
        assert!(has(&found.protected, &root.join("other").join(name)), "{name}: {:?}", found.protected);
    }
    assert!(!found.protected.iter().any(|path| Path::new(path).starts_with(root.join("plain"))));
    assert!(has(&found.hidden, &root.join("repo/.env")), "{:?}", found.hidden);
    assert!(!has(&found.hidden, &root.join(".env")), "it is outside of the repository");
    // The directory of a repository is no way around.
    let settings = SandboxSettings { write: vec![root.join("repo/.git")], ..settings };
    let found = sandbox(&settings, &authority(&root.join("repo/app")));
    assert!(has(&found.protected, &root.join("repo/.git/hooks")), "{:?}", found.protected);
}
