//! Unusable files cause a clear error and are not modified.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brigade::tool::memory::{Memory, MemoryError};
use rusqlite::Connection;

use super::{MemoryDir, call, keys, note, put, session};

#[test]
fn memory_file_is_readable_by_its_owner_only() {
    let dir = MemoryDir::new();
    put(&dir.memory(), 1, "a", "text");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.file()), 0o600);
    assert_eq!(mode(dir.file().parent().unwrap()), 0o700);
}

#[test]
fn reading_creates_no_file() {
    let dir = MemoryDir::new();
    let memory = Memory::at(&dir.file());
    assert_eq!(memory.get("a").unwrap(), None);
    assert_eq!(keys(&memory, "a"), Vec::<String>::new());
    assert!(!dir.file().exists());
    put(&memory, 1, "a", "text");
    assert!(dir.file().exists());
}

#[test]
fn unwritable_path_is_named_in_the_error() {
    let dir = MemoryDir::new();
    put(&dir.memory(), 1, "a", "text");
    for path in [Path::new("/proc/nowhere/memory.db"), &dir.file().join("memory.db"), Path::new("/proc")] {
        let error = Memory::open(path).unwrap_err();
        assert!(matches!(error, MemoryError::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn read_only_file_can_be_read() {
    let dir = MemoryDir::new();
    put(&dir.memory(), 1, "a", "some text");
    std::fs::set_permissions(dir.file(), std::fs::Permissions::from_mode(0o400)).unwrap();
    if std::fs::OpenOptions::new().append(true).open(dir.file()).is_ok() {
        // No file is read-only for root.
        return;
    }
    let memory = dir.memory();
    assert_eq!(keys(&memory, "some"), ["a"]);
    let error = memory.put(note("b", "more"), &session(), call(2)).unwrap_err();
    assert!(matches!(error, MemoryError::ReadOnly { .. }), "{error:?}");
    assert_eq!(keys(&memory, "some"), ["a"]);
}

#[test]
fn file_of_another_program_is_left_unchanged() {
    let dir = MemoryDir::new();
    std::fs::create_dir(dir.file().parent().unwrap()).unwrap();
    let letters = "no database, but somebody's letters. ".repeat(100);
    std::fs::write(dir.file(), &letters).unwrap();
    let error = Memory::open(&dir.file()).unwrap_err();
    assert!(
        matches!(&error, MemoryError::Damaged { .. }) && error.to_string().contains("move it away"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(dir.file()).unwrap(), letters);

    std::fs::remove_file(dir.file()).unwrap();
    Connection::open(dir.file()).unwrap().execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    let before = std::fs::read(dir.file()).unwrap();
    let error = Memory::open(&dir.file()).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(std::fs::read(dir.file()).unwrap(), before);
}

#[test]
fn newer_format_is_refused() {
    let dir = MemoryDir::new();
    drop(dir.memory());
    Connection::open(dir.file()).unwrap().execute_batch("PRAGMA user_version = 9").unwrap();
    let error = Memory::open(&dir.file()).unwrap_err();
    assert!(matches!(error, MemoryError::NewerFormat { found: 9, .. }), "{error:?}");
}

#[test]
fn damaged_file_never_panics() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    for number in 0..40 {
        put(&memory, number, &format!("k{number}"), &format!("words of number {number} ").repeat(40));
    }
    drop(memory);
    let whole = std::fs::read(dir.file()).unwrap();
    let mut noticed = 0;
    for start in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        let end = (start + 512).min(damaged.len());
        damaged[start..end].fill(0xa5);
        std::fs::write(dir.file(), &damaged).unwrap();
        let memory = Memory::at(&dir.file());
        let outcomes = [
            memory.get("k7").err(),
            memory.search("words number", 20).err(),
            memory.put(note("new", "words"), &session(), call(99)).err(),
        ];
        noticed += usize::from(outcomes.iter().flatten().count() > 0);
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{suffix}", dir.file().display())));
        }
    }
    assert!(noticed > 5, "{noticed}");
    // The handle works again once the file is repaired.
    std::fs::write(dir.file(), b"x".repeat(8192)).unwrap();
    let memory = Memory::at(&dir.file());
    assert!(memory.get("k7").is_err());
    std::fs::write(dir.file(), &whole).unwrap();
    assert!(memory.get("k7").unwrap().is_some());
}
