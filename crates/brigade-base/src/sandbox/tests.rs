use std::collections::BTreeSet;

use super::*;

fn authority(workspace: &Path) -> Authority {
    Authority {
        workspace: workspace.to_string_lossy().into_owned(),
        paths: BTreeSet::from([String::new()]),
        network: Access::Allowed,
        ..Authority::default()
    }
}

fn sandbox(settings: &SandboxSettings, authority: &Authority) -> Sandbox {
    match settings.confinement(authority, &ExtraAccess::default(), &TemporaryDirectory::default()).unwrap() {
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
        match settings
            .confinement(&authority, &ExtraAccess::default(), &TemporaryDirectory::default())
            .unwrap()
        {
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
        .confinement(&authority(root.path()), &ExtraAccess::default(), &TemporaryDirectory::default())
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
    for directory in ["project/.git/hooks", "other", "data"] {
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
        settings.confinement(&authority, &extra, &TemporaryDirectory::default()).map(|confinement| {
            match confinement {
                Confinement::Sandbox(sandbox) => *sandbox,
                Confinement::None => panic!("there is no sandbox"),
            }
        })
    };
    let hooks = root.join("project/.git/hooks");
    assert!(has(&with(&[], &[]).unwrap().protected, &hooks));
    let found = with(&[".git/hooks", "../other"], &["example.com"]).unwrap();
    assert!(!has(&found.protected, &hooks) && has(&found.protected, &root.join("project/.git/config")));
    assert!(has(&found.writable, &hooks) && has(&found.writable, &root.join("other")));
    assert_eq!(found.network, Network::Proxy);
    assert!(has(&with(&["."], &[]).unwrap().protected, &hooks), "the workspace is no protected path");
    assert!(matches!(with(&["../data"], &[]), Err(SandboxError::Private { .. })));
    assert!(matches!(with(&[".."], &[]), Err(SandboxError::Private { .. })));
    assert!(matches!(with(&["missing"], &[]), Err(SandboxError::Path { .. })));
    std::os::unix::fs::symlink(root.join("other"), root.join("project/link")).unwrap();
    assert!(matches!(with(&["link"], &[]), Err(SandboxError::Path { .. })), "the user saw only its name");
    let offline = Authority { network: Access::Denied, ..authority.clone() };
    let extra = ExtraAccess { hosts: vec!["example.com".parse().unwrap()], ..ExtraAccess::default() };
    let refused = settings.confinement(&offline, &extra, &TemporaryDirectory::default());
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
        let temporary = TemporaryDirectory::default();
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
    let result =
        settings.confinement(&authority(&root), &ExtraAccess::default(), &TemporaryDirectory::default());
    assert!(matches!(result, Err(SandboxError::Home)));
}
