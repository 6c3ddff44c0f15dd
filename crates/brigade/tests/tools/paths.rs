//! No path leads out of the workspace, and nothing but files is opened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brigade::tool::{FileError, Workspace};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};

use super::world::{SECRET, World};

const CAP: u64 = 1 << 20;

#[test]
fn paths_that_lead_out_are_refused() {
    let world = World::new();
    world.put("sub/a.txt", "a").link("out", world.outside()).link("file", world.outside().join("secret"));
    world.link("up", "../secret").link("sub/up", "../../w2");
    let absolute = world.outside().join("secret").display().to_string();
    let sibling = format!("{}2/secret", world.path("").display().to_string().trim_end_matches('/'));
    let around = world.path("../secret").display().to_string();
    let paths =
        ["../secret", "../w2/secret", "sub/../../secret", "out/secret", "file", "up", "sub/up/secret"];
    for path in paths.into_iter().chain([absolute.as_str(), &sibling, &around, "/etc/passwd", "/", ".."]) {
        let error = world.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::Outside { .. }), "{path}: {error:?}");
        let error = world.files.replace(path, b"x", None).unwrap_err();
        assert!(matches!(error, FileError::Outside { .. }), "{path}: {error:?}");
    }
    assert_eq!(std::fs::read_to_string(world.outside().join("secret")).unwrap(), SECRET);
    assert_eq!(std::fs::read_to_string(world.outside().join("w2/secret")).unwrap(), SECRET);
}

#[test]
fn paths_that_stay_inside_are_read() {
    let world = World::new();
    world.put("sub/a.txt", "a").link("link", "sub").link("sub/again", "../link/a.txt");
    let absolute = world.path("sub/a.txt").display().to_string();
    for path in
        ["sub/a.txt", "./sub//a.txt", "sub/../sub/a.txt", "link/a.txt", "sub/again", absolute.as_str()]
    {
        assert_eq!(world.files.read(path, CAP).unwrap(), b"a", "{path}");
    }
}

#[test]
fn paths_that_are_none_are_refused_in_words() {
    let world = World::new();
    world.put("a.txt", "a").link("circle", "circle").link("magic", "/proc/self/root/etc/passwd");
    let long = "x".repeat(5000);
    for path in ["", "a\0b", long.as_str(), "a.txt/", "a.txt/b", "circle"] {
        let error = world.files.read(path, CAP).unwrap_err();
        assert!(matches!(error, FileError::BadPath { .. }), "{error:?}");
        assert!(error.to_string().len() < 400, "{error}");
    }
    assert!(world.files.read("magic", CAP).is_err());
    assert!(matches!(world.files.read("none", CAP), Err(FileError::NotFound { .. })));
    assert!(Workspace::open(&world.path("a.txt")).is_err());
    assert!(Workspace::open(&world.path("none")).is_err());
}

/// The race that a check before an open loses: the link is good when it is checked and bad when it is opened.
#[test]
fn a_link_that_flips_never_shows_what_is_outside() {
    let world = World::new();
    world.put("inside/secret", "inside").link("flip", "inside").link("next", world.outside());
    let over = AtomicBool::new(false);
    let (mut inside, mut unexpected) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (flip, next) = (world.path("flip"), world.path("next"));
            while !over.load(Ordering::Relaxed) {
                let swapped = rustix::fs::renameat_with(CWD, &flip, CWD, &next, RenameFlags::EXCHANGE);
                assert_eq!(swapped, Ok(()));
            }
        });
        for attempt in 0..2000 {
            // Asserted later, because a panic in here would leave the other thread running.
            match world.files.read("flip/secret", CAP) {
                Ok(content) if content == b"inside" => inside += 1,
                Err(FileError::Outside { .. } | FileError::Busy { .. }) => {}
                other => unexpected.push(other),
            }
            // Writing waits for the disk, so it is tried less often.
            if attempt % 10 == 0 && world.files.replace("flip/new", b"x", None).is_ok() {
                let _ = std::fs::remove_file(world.path("inside/new"));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(unexpected.is_empty(), "{:?}", unexpected.first());
    assert!(inside > 0);
    assert!(!world.outside().join("new").exists());
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let world = World::new();
    world.put("sub/a", "").link("zero", "/dev/zero");
    let make = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, world.path(name), kind, Mode::from_raw_mode(0o600), device)
    };
    make("pipe", FileType::Fifo, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    let start = Instant::now();
    let mut cases =
        vec![("pipe", "a named pipe"), ("socket", "a socket"), ("sub", "a folder"), (".", "a folder")];
    // Only root can make a device.
    if make("device", FileType::CharacterDevice, rustix::fs::makedev(1, 5)).is_ok() {
        cases.push(("device", "a device"));
    }
    for (path, what) in cases {
        let error = world.files.read(path, CAP).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        let error = world.files.replace(path, b"x", None).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(world.error("read_file", serde_json::json!({ "path": path })).contains(what));
    }
    assert!(matches!(world.files.read("zero", CAP), Err(FileError::Outside { .. })));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn a_huge_file_is_refused_without_being_read() {
    let world = World::new();
    let file = std::fs::File::create(world.path("huge")).unwrap();
    file.set_len(10 << 30).unwrap();
    let start = Instant::now();
    let error = world.files.read("huge", CAP).unwrap_err();
    assert!(error.to_string().contains("1048576") && error.to_string().contains("offset"), "{error}");
    assert!(world.files.hash("huge").is_err());
    assert!(world.error("read_file", serde_json::json!({ "path": "huge" })).contains("binary"));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

/// A file of `/proc` says that it is empty and is not.
#[test]
fn a_file_that_lies_about_its_size_is_bounded() {
    let world = World::new();
    let workspace = Workspace::open(std::path::Path::new("/proc")).unwrap();
    let rules = brigade_core::permission::Permissions::default();
    let files = brigade::tool::Files::new(workspace, rules.into(), [String::new()].into());
    assert!(matches!(files.read("cpuinfo", 10), Err(FileError::TooLarge { .. })));
    assert!(files.read("version", CAP).unwrap().len() > 10);
    drop(world);
}
