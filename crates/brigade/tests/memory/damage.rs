//! Files that cannot be used are an error in words, and are left as they are.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brigade::tool::memory::{Memory, MemoryError};
use rusqlite::Connection;

use super::{Place, call, keys, note, put, session};

#[test]
fn only_the_owner_can_read_it() {
    let place = Place::new();
    put(&place.memory(), 1, "a", "text");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.file()), 0o600);
    assert_eq!(mode(place.file().parent().unwrap()), 0o700);
}

#[test]
fn reading_makes_no_file() {
    let place = Place::new();
    let memory = Memory::at(&place.file());
    assert_eq!(memory.get("a").unwrap(), None);
    assert_eq!(keys(&memory, "a"), Vec::<String>::new());
    assert!(!place.file().exists());
    put(&memory, 1, "a", "text");
    assert!(place.file().exists());
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let place = Place::new();
    put(&place.memory(), 1, "a", "text");
    for path in [Path::new("/proc/nowhere/memory.db"), &place.file().join("memory.db"), Path::new("/proc")] {
        let error = Memory::open(path).unwrap_err();
        assert!(matches!(error, MemoryError::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_file_that_cannot_be_written_can_be_read() {
    let place = Place::new();
    put(&place.memory(), 1, "a", "some text");
    std::fs::set_permissions(place.file(), std::fs::Permissions::from_mode(0o400)).unwrap();
    if std::fs::OpenOptions::new().append(true).open(place.file()).is_ok() {
        // Nothing is read-only for root.
        return;
    }
    let memory = place.memory();
    assert_eq!(keys(&memory, "some"), ["a"]);
    let error = memory.put(note("b", "more"), &session(), call(2)).unwrap_err();
    assert!(matches!(error, MemoryError::ReadOnly { .. }), "{error:?}");
    assert_eq!(keys(&memory, "some"), ["a"]);
}

#[test]
fn files_of_others_are_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.file().parent().unwrap()).unwrap();
    let letters = "no database, but somebody's letters. ".repeat(100);
    std::fs::write(place.file(), &letters).unwrap();
    let error = Memory::open(&place.file()).unwrap_err();
    assert!(
        matches!(&error, MemoryError::Broken { .. }) && error.to_string().contains("move it away"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), letters);

    std::fs::remove_file(place.file()).unwrap();
    Connection::open(place.file()).unwrap().execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    let before = std::fs::read(place.file()).unwrap();
    let error = Memory::open(&place.file()).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(std::fs::read(place.file()).unwrap(), before);
}

#[test]
fn a_later_format_is_named() {
    let place = Place::new();
    drop(place.memory());
    Connection::open(place.file()).unwrap().execute_batch("PRAGMA user_version = 9").unwrap();
    let error = Memory::open(&place.file()).unwrap_err();
    assert!(matches!(error, MemoryError::Newer { found: 9, .. }), "{error:?}");
}

#[test]
fn damage_anywhere_is_an_error_or_goes_unnoticed() {
    let place = Place::new();
    let memory = place.memory();
    for number in 0..40 {
        put(&memory, number, &format!("k{number}"), &format!("words of number {number} ").repeat(40));
    }
    drop(memory);
    let whole = std::fs::read(place.file()).unwrap();
    let mut noticed = 0;
    for start in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        let end = (start + 512).min(damaged.len());
        damaged[start..end].fill(0xa5);
        std::fs::write(place.file(), &damaged).unwrap();
        let memory = Memory::at(&place.file());
        let outcomes = [
            memory.get("k7").err(),
            memory.search("words number", 20).err(),
            memory.put(note("new", "words"), &session(), call(99)).err(),
        ];
        noticed += usize::from(outcomes.iter().flatten().count() > 0);
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{suffix}", place.file().display())));
        }
    }
    assert!(noticed > 5, "{noticed}");
    // The handle works again once the file is whole again.
    std::fs::write(place.file(), b"x".repeat(8192)).unwrap();
    let memory = Memory::at(&place.file());
    assert!(memory.get("k7").is_err());
    std::fs::write(place.file(), &whole).unwrap();
    assert!(memory.get("k7").unwrap().is_some());
}
