//! Storing, finding and replacing.

use std::sync::LazyLock;

use brigade::tool::memory::{MAX_TEXT_BYTES, Memory, MemoryError, NewEntry, Replaced};
use brigade_core::SessionId;
use proptest::prelude::*;

use super::{MemoryDir, call, keys, note, put, session};

#[test]
fn entries_survive_reopening() {
    let dir = MemoryDir::new();
    put(&dir.memory(), 1, "style", "The user likes short sentences.\nAnd few of them.");
    let entry = dir.memory().get(" style ").unwrap().unwrap();
    assert_eq!(entry.text, "The user likes short sentences.\nAnd few of them.");
    assert_eq!(entry.session, session().as_str());
    assert!(entry.stored_at.starts_with("20") && entry.stored_at.ends_with('Z'), "{}", entry.stored_at);
    assert_eq!(dir.memory().get("other").unwrap(), None);
}

#[test]
fn put_replaces_the_text_of_a_key() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    assert_eq!(put(&memory, 1, "port", "It listens on 8080.").replaced, Replaced::Nothing);
    assert_eq!(put(&memory, 2, "port", "It listens on 9090.").replaced, Replaced::DifferentText);
    assert_eq!(put(&memory, 3, "port", "It listens on 9090.").replaced, Replaced::Nothing);
    assert_eq!(memory.get("port").unwrap().unwrap().text, "It listens on 9090.");
    assert_eq!(keys(&memory, "8080"), Vec::<String>::new());
    assert_eq!(keys(&memory, "9090"), ["port"]);
}

#[test]
fn equal_texts_without_a_key_share_one_entry() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    let store = |text: &str, turn| {
        let note = NewEntry { text: text.to_owned(), ..NewEntry::default() };
        memory.put(note, &session(), call(turn)).unwrap().key
    };
    let key = store("Tests need the network.", 1);
    assert!(key.starts_with("note-"), "{key}");
    assert_eq!(store("Tests need the network.", 2), key);
    assert_ne!(store("Tests need no network.", 3), key);
    assert_eq!(keys(&memory, "network").len(), 2);
}

#[test]
fn repeated_call_changes_nothing() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    put(&memory, 1, "a", "first");
    let stored = memory.get("a").unwrap().unwrap();
    put(&dir.memory(), 1, "a", "first");
    assert_eq!(memory.get("a").unwrap().unwrap(), stored);
    // Another session has replaced the entry since: the old call does not undo that.
    memory.put(note("a", "second"), &SessionId::root(8), call(1)).unwrap();
    put(&memory, 1, "a", "first");
    assert_eq!(memory.get("a").unwrap().unwrap().text, "second");
    // The same call of a restored log has a different text, so it is another entry.
    put(&memory, 1, "a", "third");
    assert_eq!(memory.get("a").unwrap().unwrap().text, "third");
}

#[test]
fn search_ranks_better_entries_first() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    put(
        &memory,
        1,
        "one",
        "The cache is cleared at night. Nothing else happens then, as far as anybody knows.",
    );
    put(&memory, 2, "two", "The cache of the parser is keyed by content; the parser itself has no state.");
    put(&memory, 3, "parser", "It was rewritten in spring.");
    put(&memory, 4, "four", "About the weather.");
    let mut tagged = note("five", "See there.");
    tagged.tags = vec!["parser state".to_owned()];
    memory.put(tagged, &session(), call(5)).unwrap();
    assert_eq!(keys(&memory, "parser cache")[0], "two");
    assert_eq!(keys(&memory, "pars")[0], "parser", "a word in the key counts most");
    assert_eq!(keys(&memory, "parser cache").len(), 4);
    assert_eq!(memory.search("parser cache", 2).unwrap().len(), 2);
    assert_eq!(memory.search("five", 1).unwrap()[0].tags, ["parser state"]);
}

#[test]
fn search_shows_the_matching_snippet() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    let text = format!("{} the needle lies here {}", "hay ".repeat(5_000), "straw ".repeat(5_000));
    put(&memory, 1, "stack", &text);
    let found = memory.search("needle", 5).unwrap();
    assert!(found[0].text.contains("the needle lies here") && found[0].text.len() < 1_000);
}

#[test]
fn entries_are_bounded() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    let refused = |note: NewEntry| match memory.put(note, &session(), call(1)) {
        Err(MemoryError::InvalidEntry(problem)) => problem,
        other => panic!("{other:?}"),
    };
    assert!(refused(note("a", &"x".repeat(MAX_TEXT_BYTES + 1))).contains("65536"));
    assert!(refused(note("a", " \n")).contains("empty"));
    for key in ["", "  ", "two\nlines", "nul\0", &"k".repeat(129)] {
        assert!(refused(note(key, "text")).contains("one line"), "{key:?}");
    }
    let tagged = |tags: Vec<String>| NewEntry { tags, ..note("a", "text") };
    assert!(refused(tagged(vec!["t".repeat(65)])).contains("tags"));
    assert!(refused(tagged(vec!["a\nb".to_owned()])).contains("tags"));
    assert!(refused(tagged((0..17).map(|n| n.to_string()).collect())).contains("tags"));
    put(&memory, 1, &"ü".repeat(128), &"x".repeat(MAX_TEXT_BYTES));
}

#[test]
fn concurrent_writers_lose_nothing() {
    let dir = MemoryDir::new();
    let writers = 4u32;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            // Each thread has a connection of its own, and they also race to create the file.
            let file = dir.file();
            scope.spawn(move || {
                let memory = Memory::open(&file).unwrap();
                for number in 0..25 {
                    put(&memory, writer * 100 + number, &format!("{writer}-{number}"), "shared words");
                    put(&memory, 1_000 + writer * 100 + number, "contested", &format!("by {writer}"));
                    assert!(!keys(&memory, "shared").is_empty());
                }
            });
        }
    });
    let memory = dir.memory();
    for writer in 0..writers {
        for number in 0..25 {
            assert!(memory.get(&format!("{writer}-{number}")).unwrap().is_some());
        }
    }
    assert_eq!(keys(&memory, "contested").len(), 1);
}

#[test]
fn odd_queries_are_accepted() {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    put(&memory, 1, "a", "He said \"hello\" AND left; see C++ and foo-bar, NEAR(x y), col:val, naïve.");
    for query in [
        "",
        " ",
        "\"",
        "\"\"\"",
        "*",
        "^",
        "a AND",
        "NOT",
        "NEAR(",
        "text:a",
        "{a b}:c",
        "(",
        ")",
        "a OR OR b",
        "-",
        "+",
        "'; DROP TABLE entries; --",
        "\0",
        "a\0b",
        "\u{301}",
        "\u{1f600}",
        "%_",
        "\\",
    ] {
        memory.search(query, 5).unwrap();
    }
    for query in
        ["hello", "\"hello\"", "AND", "C++", "foo-bar", "NEAR(x", "col:val", "naive", "NAÏVE", "zzz hel"]
    {
        assert_eq!(keys(&memory, query), ["a"], "{query}");
    }
    assert_eq!(keys(&memory, "bar-foo"), Vec::<String>::new());
    memory.search(&"word ".repeat(10_000), 5).unwrap();
    memory.search(&"w".repeat(100_000), 5).unwrap();
}

/// One file for all cases, because creating one is slow.
static SHARED: LazyLock<(MemoryDir, Memory)> = LazyLock::new(|| {
    let dir = MemoryDir::new();
    let memory = dir.memory();
    (dir, memory)
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn arbitrary_queries_never_fail(
        queries in proptest::collection::vec(".{0,40}", 8),
        key in "[^\\p{Cc}]{1,40}",
        text in ".{1,80}",
    ) {
        prop_assume!(!key.trim().is_empty() && !text.trim().is_empty());
        let memory = &SHARED.1;
        memory.put(note(&key, &text), &session(), call(1)).unwrap();
        prop_assert_eq!(memory.get(&key).unwrap().unwrap().text, text);
        for query in queries {
            memory.search(&query, 20).unwrap();
        }
    }
}
