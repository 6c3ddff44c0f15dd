use std::os::unix::fs::PermissionsExt;

use super::*;

fn scan(root: &tempfile::TempDir, permissions: &Permissions) -> Scan {
    ScanCache::default().scan(root.path(), permissions).unwrap()
}

fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn names(root: &tempfile::TempDir, paths: &[PathBuf]) -> Vec<String> {
    let name = |path: &PathBuf| path.strip_prefix(root.path()).unwrap().to_string_lossy().into_owned();
    let mut names: Vec<String> = paths.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn secrets_are_found_at_any_depth() {
    let root = workspace(&[
        (".env", "A=b"),
        (".env.production", "A=b"),
        (".env.example", "A="),
        ("packages/web/.env.local", "A=b"),
        ("node_modules/x/.env", "A=b"),
        ("certs/server.key", "-----BEGIN PRIVATE KEY-----"),
        ("certs/server.pem", "-----BEGIN CERTIFICATE-----"),
        ("deploy/id_ed25519", "x"),
        ("src/environment.rs", "x"),
        ("store.p12", "x"),
    ]);
    let scan = scan(&root, &Permissions::default());
    let expected = [
        ".env",
        ".env.production",
        "certs/server.key",
        "deploy/id_ed25519",
        "packages/web/.env.local",
        "store.p12",
    ];
    assert_eq!(names(&root, &scan.hidden), expected);
    assert_eq!(scan.protected, Vec::<PathBuf>::new());
}

#[test]
fn links_with_the_name_of_a_secret_and_unreadable_directories_are_hidden() {
    let root = workspace(&[
        ("vars", "A=b"),
        ("closed/x", ""),
        ("sub/.git/config", ""),
        ("B/PROD.KEY", "-----BEGIN PRIVATE KEY-----"),
    ]);
    std::os::unix::fs::symlink("vars", root.path().join(".env")).unwrap();
    fs::set_permissions(root.path().join("closed"), fs::Permissions::from_mode(0o311)).unwrap();
    let scan = scan(&root, &Permissions::default());
    let hidden = names(&root, &scan.hidden);
    assert!(hidden.contains(&".env".to_owned()) && hidden.contains(&"B/PROD.KEY".to_owned()), "{hidden:?}");
    // Root can list it.
    let is_root = fs::read_dir(root.path().join("closed")).is_ok();
    assert_eq!(hidden.contains(&"closed".to_owned()), !is_root, "{hidden:?}");
    assert!(names(&root, &scan.protected).contains(&"sub/.git/hooks".to_owned()));
    assert_eq!(names(&root, &scan.forbidden), ["sub/.git/commondir"]);
    fs::set_permissions(root.path().join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn rules_with_a_path_hide_and_protect() {
    let root = workspace(&[("secrets/a", ""), ("docs/b", ""), ("src/generated/c", ""), ("src/d", "")]);
    let permissions = Permissions {
        deny: vec!["read_file(secrets/**)".parse().unwrap(), "edit_file(src/generated/**)".parse().unwrap()],
        ask: vec!["write_file(docs/b)".parse().unwrap()],
        ..Permissions::default()
    };
    let scan = scan(&root, &permissions);
    assert_eq!(names(&root, &scan.hidden), ["secrets"]);
    assert_eq!(names(&root, &scan.protected), ["docs/b", "src/generated"]);
}

/// Makes all times of a tree old enough to be relied on. Only the system changes the time of the last change.
fn settle() {
    std::thread::sleep(SETTLED_AGE + Duration::from_secs(1));
}

/// Every kind of change is found by a search that has a cache, as by one that has none.
#[test]
fn changes_are_found_in_what_was_searched_before() {
    let root = workspace(&[
        ("a/b/file", ""),
        ("certs/server.pem", "-----BEGIN CERTIFICATE-----"),
        ("closed/.env", ""),
        ("moved/.env", ""),
        ("sub/.git/config", ""),
        ("removed/.env", ""),
        ("removed/deep/.env", ""),
        ("link/target.txt", "-----BEGIN CERTIFICATE-----"),
    ]);
    let path = |name: &str| root.path().join(name);
    std::os::unix::fs::symlink("target.txt", path("link/x.pem")).unwrap();
    let permissions = Permissions::default();
    let mut cache = ScanCache::default();
    let mut agrees = |step: &str| {
        let cached = cache.scan(root.path(), &permissions).unwrap();
        let fresh = ScanCache::default().scan(root.path(), &permissions).unwrap();
        assert_eq!(names(&root, &cached.hidden), names(&root, &fresh.hidden), "{step}");
        assert_eq!(names(&root, &cached.protected), names(&root, &fresh.protected), "{step}");
        assert_eq!(names(&root, &cached.forbidden), names(&root, &fresh.forbidden), "{step}");
        (cached.hidden.len(), cache.directories.values().filter(|listing| listing.stamp.is_some()).count())
    };
    assert_eq!(agrees("new files").1, 0, "times of new files are not relied on");
    settle();
    let (before, settled) = agrees("old files");
    assert_eq!(agrees("nothing").1, settled);
    assert!(settled >= 8, "{settled}");
    fs::write(path("a/b/.env"), "").unwrap();
    assert_eq!(agrees("a secret appeared").0, before + 1);
    fs::rename(path("moved"), path("a/moved")).unwrap();
    agrees("a directory was moved");
    fs::remove_dir_all(path("removed")).unwrap();
    agrees("a directory was removed");
    fs::write(path("certs/server.pem"), "-----BEGIN PRIVATE KEY-----").unwrap();
    agrees("a certificate became a key");
    fs::write(path("link/target.txt"), "-----BEGIN PRIVATE KEY-----").unwrap();
    agrees("the target of a link became a key");
    fs::create_dir_all(path("sub/.git/modules/x")).unwrap();
    fs::write(path("sub/.git/modules/x/HEAD"), "").unwrap();
    agrees("a submodule appeared");
    fs::remove_dir_all(path("closed")).unwrap();
    std::os::unix::fs::symlink("a", path("closed")).unwrap();
    agrees("a directory became a link");
    // Changes in the same moment as the search.
    for number in 0..50 {
        fs::create_dir(path(&format!("a/{number}"))).unwrap();
        agrees("a directory appeared");
        fs::write(path(&format!("a/{number}/.env")), "").unwrap();
        agrees("a secret appeared at once");
    }
}

#[test]
fn pipe_with_the_name_of_a_key_does_not_block() {
    let root = workspace(&[]);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, root.path().join("a.pem"), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    assert_eq!(scan(&root, &Permissions::default()), Scan::default());
}

#[test]
fn workspace_with_too_many_files_is_refused_with_a_cache_too() {
    let root = workspace(&[]);
    for directory in 0..3 {
        fs::create_dir(root.path().join(directory.to_string())).unwrap();
        for file in 0..33 {
            fs::File::create(root.path().join(format!("{directory}/{file}"))).unwrap();
        }
    }
    let mut cache = ScanCache::default();
    let mut scan = |limit| cache.scan_up_to(limit, root.path(), &Permissions::default());
    assert_eq!(scan(102).unwrap(), Scan::default());
    for limit in [101, 30, 101] {
        let error = scan(limit).unwrap_err();
        assert!(matches!(error, SandboxError::TooManyFiles { .. }), "{error}");
    }
}
