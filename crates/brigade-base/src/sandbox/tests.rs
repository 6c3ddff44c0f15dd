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
    assert_eq!(of(true, Access::Allowed), Network::On);
    assert_eq!(of(false, Access::Allowed), Network::Off);
    assert_eq!(of(true, Access::Denied), Network::Off);
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
    for directory in ["project/.git/hooks", "project/.claude/skills", "other", "data"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    let settings = SandboxSettings {
        mode: SandboxMode::Workspace,
        private: vec![root.join("data")],
        ..SandboxSettings::default()
    };
    let authority = authority(&root.join("project"));
    let with = |write: &[&str], network| {
        let extra = ExtraAccess { write: write.iter().map(|path| (*path).to_owned()).collect(), network };
        settings.confinement(&authority, &extra, &TemporaryDirectory::default()).map(|confinement| {
            match confinement {
                Confinement::Sandbox(sandbox) => *sandbox,
                Confinement::None => panic!("there is no sandbox"),
            }
        })
    };
    let hooks = root.join("project/.git/hooks");
    assert!(has(&with(&[], false).unwrap().protected, &hooks));
    let found = with(&[".git/hooks", "../other"], true).unwrap();
    assert!(!has(&found.protected, &hooks) && has(&found.protected, &root.join("project/.git/config")));
    assert!(has(&found.writable, &root.join("other")));
    assert!(!has(&found.writable, &hooks), "with a mount of its own, git could not replace it");
    let skills = root.join("project/.claude/skills");
    assert!(has(&with(&[".claude/skills"], false).unwrap().writable, &skills), "its directory is protected");
    assert_eq!(found.network, Network::On);
    assert!(has(&with(&["."], false).unwrap().protected, &hooks), "the workspace is no protected path");
    assert!(matches!(with(&["../data"], false), Err(SandboxError::Private { .. })));
    assert!(matches!(with(&[".."], false), Err(SandboxError::Private { .. })));
    assert!(matches!(with(&["missing"], false), Err(SandboxError::Path { .. })));
    std::os::unix::fs::symlink(root.join("other"), root.join("project/link")).unwrap();
    assert!(matches!(with(&["link"], false), Err(SandboxError::Path { .. })), "the user saw only its name");
    let offline = Authority { network: Access::Denied, ..authority.clone() };
    let extra = ExtraAccess { network: true, ..ExtraAccess::default() };
    let Confinement::Sandbox(found) =
        settings.confinement(&offline, &extra, &TemporaryDirectory::default()).unwrap()
    else {
        panic!()
    };
    assert_eq!(found.network, Network::Off);
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
