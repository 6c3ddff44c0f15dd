//! No path leads out of the workspace, and only regular files are opened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brigade::tool::{FileError, Workspace};
use brigade_core::Hash;
use rustix::fs::{CWD, FileType, Mode, RenameFlags};

use super::support::{SECRET, ToolHarness};

const CAP: u64 = 1 << 20;

#[test]
fn path_outside_the_workspace_is_refused() {
    let harness = ToolHarness::new();
    harness
        .put("sub/a.txt", "a")
        .link("out", harness.outside())
        .link("file", harness.outside().join("secret"));
    harness.link("up", "../secret").link("sub/up", "../../w2");
    let absolute = harness.outside().join("secret").display().to_string();
    let sibling = format!("{}2/secret", harness.path("").display().to_string().trim_end_matches('/'));
    let around = harness.path("../secret").display().to_string();
    let paths =
        ["../secret", "../w2/secret", "sub/../../secret", "out/secret", "file", "up", "sub/up/secret"];
    for path in paths.into_iter().chain([absolute.as_str(), &sibling, &around, "/etc/passwd", "/", ".."]) {
        let error = harness.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::Outside { .. }), "{path}: {error:?}");
        let error = harness.files.replace(path, b"x", None).unwrap_err();
        assert!(matches!(error, FileError::Outside { .. }), "{path}: {error:?}");
    }
    assert_eq!(std::fs::read_to_string(harness.outside().join("secret")).unwrap(), SECRET);
    assert_eq!(std::fs::read_to_string(harness.outside().join("w2/secret")).unwrap(), SECRET);
}

#[test]
fn path_inside_the_workspace_is_read() {
    let harness = ToolHarness::new();
    harness.put("sub/a.txt", "a").link("link", "sub").link("sub/again", "../link/a.txt");
    let absolute = harness.path("sub/a.txt").display().to_string();
    for path in
        ["sub/a.txt", "./sub//a.txt", "sub/../sub/a.txt", "link/a.txt", "sub/again", absolute.as_str()]
    {
        assert_eq!(harness.files.read(path, CAP).unwrap(), b"a", "{path}");
    }
}

#[test]
fn invalid_path_is_refused_with_a_reason() {
    let harness = ToolHarness::new();
    harness.put("a.txt", "a").link("circle", "circle").link("magic", "/proc/self/root/etc/passwd");
    let long = "x".repeat(5000);
    for path in ["", "a\0b", long.as_str(), "a.txt/", "a.txt/b", "circle"] {
        let error = harness.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::BadPath { .. }), "{error:?}");
        assert!(error.to_string().len() < 400, "{error}");
    }
    assert!(harness.files.read("magic", CAP).is_err());
    assert!(matches!(harness.files.read("none", CAP), Err(FileError::NotFound { .. })));
    assert!(Workspace::open(&harness.path("a.txt")).is_err());
    assert!(Workspace::open(&harness.path("none")).is_err());
}

/// The race that a check before an open loses: the link is valid when it is checked and invalid when it is opened.
#[test]
fn symlink_race_never_leaves_the_workspace() {
    let harness = ToolHarness::new();
    harness.put("inside/secret", "inside").link("flip", "inside").link("next", harness.outside());
    let over = AtomicBool::new(false);
    let (mut inside, mut unexpected) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (flip, next) = (harness.path("flip"), harness.path("next"));
            while !over.load(Ordering::Relaxed) {
                let swapped = rustix::fs::renameat_with(CWD, &flip, CWD, &next, RenameFlags::EXCHANGE);
                assert_eq!(swapped, Ok(()));
            }
        });
        for attempt in 0..2000 {
            // Asserted later, because a panic in here would leave the other thread running.
            match harness.files.read("flip/secret", CAP) {
                Ok(content) if content == b"inside" => inside += 1,
                Err(FileError::Outside { .. } | FileError::Busy { .. }) => {}
                other => unexpected.push(other),
            }
            // Writing waits for the disk, so it is attempted less often.
            if attempt % 10 == 0 && harness.files.replace("flip/new", b"x", None).is_ok() {
                let _ = std::fs::remove_file(harness.path("inside/new"));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(unexpected.is_empty(), "{:?}", unexpected.first());
    assert!(inside > 0);
    assert!(!harness.outside().join("new").exists());
}

/// A link that changes between the check and the use never leads to a protected file.
#[test]
fn symlink_race_never_reaches_a_protected_file() {
    let harness = ToolHarness::new();
    harness.put("plain/settings.json", "plain").put("plain/.keep", "").put(".claude/settings.json", "kept");
    harness.put("vars", "plain").put(".env", "SECRET");
    harness.link("flip", "plain").link("next", ".claude").link("flop", "vars").link("last", ".env");
    let over = AtomicBool::new(false);
    let mut unexpected = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let [flip, next, flop, last] = ["flip", "next", "flop", "last"].map(|name| harness.path(name));
            while !over.load(Ordering::Relaxed) {
                for (one, other) in [(&flip, &next), (&flop, &last)] {
                    let swapped = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                    assert_eq!(swapped, Ok(()));
                }
            }
        });
        for attempt in 0..2000 {
            match harness.files.read("flop", CAP) {
                Ok(content) if content == b"plain" => {}
                Err(FileError::ProtectedRealPath { .. } | FileError::Busy { .. }) => {}
                other => unexpected.push(other),
            }
            if attempt % 10 == 0 {
                let _ = harness.files.replace("flip/new.json", b"x", None);
                let _ = harness.files.replace("flip/settings.json", b"x", Some(Hash::of(b"kept")));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(unexpected.is_empty(), "{:?}", unexpected.first());
    assert_eq!(harness.get(".claude/settings.json"), "kept");
    assert!(!harness.path(".claude/new.json").exists());
}

#[test]
fn non_regular_file_is_refused_at_once() {
    let harness = ToolHarness::new();
    harness.put("sub/a", "").link("zero", "/dev/zero");
    let make = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, harness.path(name), kind, Mode::from_raw_mode(0o600), device)
    };
    make("pipe", FileType::Fifo, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(harness.path("socket")).unwrap();
    let start = Instant::now();
    let mut cases =
        vec![("pipe", "a named pipe"), ("socket", "a socket"), ("sub", "a directory"), (".", "a directory")];
    // Only root can create a device.
    if make("device", FileType::CharacterDevice, rustix::fs::makedev(1, 5)).is_ok() {
        cases.push(("device", "a device"));
    }
    for (path, what) in cases {
        let error = harness.files.read(path, CAP).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        let error = harness.files.replace(path, b"x", None).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(harness.error("read_file", serde_json::json!({ "path": path })).contains(what));
    }
    assert!(matches!(harness.files.read("zero", CAP), Err(FileError::Outside { .. })));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn huge_file_is_refused_unread() {
    let harness = ToolHarness::new();
    let file = std::fs::File::create(harness.path("huge")).unwrap();
    file.set_len(10 << 30).unwrap();
    let start = Instant::now();
    let error = harness.files.read("huge", CAP).unwrap_err();
    assert!(error.to_string().contains("1048576") && error.to_string().contains("offset"), "{error}");
    assert!(harness.files.hash("huge").is_err());
    assert!(harness.error("read_file", serde_json::json!({ "path": "huge" })).contains("binary"));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

/// A file in `/proc` reports a size of zero but is not empty.
#[test]
fn file_with_a_false_size_is_bounded() {
    let harness = ToolHarness::new();
    let workspace = Workspace::open(std::path::Path::new("/proc")).unwrap();
    let rules = brigade_core::permission::Permissions::default();
    let files = brigade::tool::Files::new(workspace, rules.into(), [String::new()].into());
    assert!(matches!(files.read("cpuinfo", 10), Err(FileError::TooLarge { .. })));
    assert!(files.read("version", CAP).unwrap().len() > 10);
    drop(harness);
}
