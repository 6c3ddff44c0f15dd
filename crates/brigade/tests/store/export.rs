//! Export of a tree as text, and every way to truncate it.

use brigade::store::{ImportError, MemoryStore, Store, StoreError, export, import};
use brigade_core::{Cursor, Hash, Record};

use crate::store::support::*;

async fn tree(store: &dyn Store) -> String {
    let top = root(1);
    let lease = lease(store, &top).await;
    let mut append =
        leased_append(&lease, &top, 0, vec![started("tä\"sk\n", "agent", "authority"), said_event("short")]);
    append.blobs = vec![content("agent"), content("authority")];
    store.append(append).await.unwrap();
    append_events(store, &lease, &child(&top, 0), 0, 2).await.unwrap();
    store
        .append(leased_append(
            &lease,
            &top,
            2,
            vec![said_event("long ".repeat(1_700)), said_event("long ".repeat(1_700))],
        ))
        .await
        .unwrap();
    store.release(&lease).await.unwrap();
    export(store, &top).await.unwrap()
}

fn without_positions(records: Vec<Record>) -> Vec<Record> {
    records.into_iter().map(|record| Record { pos: Cursor::START, ..record }).collect()
}

#[tokio::test]
async fn export_and_import_copy_a_tree() {
    let folder = folder();
    let disk = open(&folder);
    let text = tree(&disk).await;
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"blob\"")).count(), 3, "each content once");
    let memory = MemoryStore::new();
    let imported = import(&memory, &text).await.unwrap();
    assert_eq!((imported.root.clone(), imported.records, imported.new), (root(1), 6, 6));
    assert_eq!(imported.cut, None);
    let (there, here) = (
        disk.tail(&root(1), Cursor::START, 99).await.unwrap(),
        memory.tail(&root(1), Cursor::START, 99).await.unwrap(),
    );
    assert_eq!(without_positions(there), without_positions(here));
    assert_eq!(memory.blob(Hash::of(b"agent")).await.unwrap(), Some(content("agent")));
    assert_eq!(export(&memory, &root(1)).await.unwrap(), text);
    assert!(matches!(export(&memory, &root(2)).await, Err(StoreError::UnknownSession(_))));
}

#[tokio::test]
async fn every_prefix_imports_its_whole_lines() {
    let text = tree(&MemoryStore::new()).await;
    let whole = MemoryStore::new();
    import(&whole, &text).await.unwrap();
    let whole = without_positions(whole.tail(&root(1), Cursor::START, 99).await.unwrap());
    for end in 0..text.len() {
        let Some(prefix) = text.get(..end) else { continue };
        let store = MemoryStore::new();
        let lines = prefix.matches('\n').count();
        let imported = match import(&store, prefix).await {
            Ok(imported) => imported,
            Err(error) => {
                assert!(lines == 0 && matches!(error, ImportError::NotAnExport(_)), "{end}: {error}");
                continue;
            }
        };
        let cut = imported.cut.expect("a prefix is always cut");
        assert_eq!(cut.line, lines as u64 + 1, "{end}");
        let records = prefix[..prefix.rfind('\n').unwrap()].matches("\n{\"session\"").count();
        assert_eq!(imported.records, records as u64, "{end}");
        assert_eq!(
            without_positions(store.tail(&root(1), Cursor::START, 99).await.unwrap()),
            whole[..records],
            "{end}"
        );
    }
}

#[tokio::test]
async fn every_altered_byte_is_found() {
    let text = tree(&MemoryStore::new()).await;
    let whole = MemoryStore::new();
    import(&whole, &text).await.unwrap();
    let whole = without_positions(whole.tail(&root(1), Cursor::START, 99).await.unwrap());
    for place in (0..text.len()).step_by(7) {
        let mut bytes = text.clone().into_bytes();
        bytes[place] ^= 1;
        let Ok(altered) = String::from_utf8(bytes) else { continue };
        let store = MemoryStore::new();
        if let Ok(imported) = import(&store, &altered).await {
            let records = without_positions(store.tail(&root(1), Cursor::START, 99).await.unwrap());
            assert_eq!(records, whole[..records.len()], "{place}");
            assert_eq!(records.len() as u64, imported.records);
        }
    }
}

async fn second_import_continues_after_the_truncation(store: &dyn Store) {
    let text = tree(&MemoryStore::new()).await;
    let half = &text[..text.rfind("{\"session\"").unwrap()];
    let first = import(store, half).await.unwrap();
    assert_eq!((first.records, first.new), (5, 5));
    let second = import(store, &text).await.unwrap();
    assert_eq!((second.records, second.new, second.cut), (6, 1, None));
    let third = import(store, &text).await.unwrap();
    assert_eq!((third.records, third.new), (6, 0));
    assert_eq!(import(store, half).await.unwrap().new, 0);
    assert_eq!(export(store, &root(1)).await.unwrap(), text);
}

async fn another_session_of_the_same_name_is_refused(store: &dyn Store) {
    let text = tree(&MemoryStore::new()).await;
    let lease = begin_session(store, &root(1), 1).await;
    store.release(&lease).await.unwrap();
    let before = store.tail(&root(1), Cursor::START, 99).await.unwrap();
    let refused = import(store, &text).await.unwrap_err();
    assert_eq!(refused, ImportError::Store(StoreError::Differs { session: root(1), seq: 0 }));
    assert_eq!(store.tail(&root(1), Cursor::START, 99).await.unwrap(), before);
}

/// A session with three events that were appended together.
async fn three_events(store: &dyn Store, second: &str) -> String {
    let lease = lease(store, &root(1)).await;
    store
        .append(leased_append(
            &lease,
            &root(1),
            0,
            vec![said_event("one"), said_event(second), said_event("three")],
        ))
        .await
        .unwrap();
    store.release(&lease).await.unwrap();
    export(store, &root(1)).await.unwrap()
}

async fn each_fact_of_an_append_is_compared(store: &dyn Store) {
    let text = three_events(store, "two").await;
    assert_eq!(import(store, &text).await.unwrap().new, 0);
    let other = three_events(&MemoryStore::new(), "another").await;
    let refused = import(store, &other).await.unwrap_err();
    assert_eq!(refused, ImportError::Store(StoreError::Differs { session: root(1), seq: 1 }));
}

async fn running_tree_refuses_an_import(store: &dyn Store) {
    let text = tree(&MemoryStore::new()).await;
    import(store, &text[..text.rfind("{\"session\"").unwrap()]).await.unwrap();
    lease(store, &root(1)).await;
    assert!(matches!(import(store, &text).await, Err(ImportError::Store(StoreError::Held { .. }))));
}

#[tokio::test]
async fn import_into_existing_sessions() {
    let folders = [folder(), folder(), folder(), folder()];
    second_import_continues_after_the_truncation(&MemoryStore::new()).await;
    second_import_continues_after_the_truncation(&open(&folders[0])).await;
    each_fact_of_an_append_is_compared(&MemoryStore::new()).await;
    each_fact_of_an_append_is_compared(&open(&folders[3])).await;
    another_session_of_the_same_name_is_refused(&MemoryStore::new()).await;
    another_session_of_the_same_name_is_refused(&open(&folders[1])).await;
    running_tree_refuses_an_import(&MemoryStore::new()).await;
    running_tree_refuses_an_import(&open(&folders[2])).await;
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_refused() {
    let text = tree(&MemoryStore::new()).await;
    let newer = text.replacen("\"brigade_export\":1", "\"brigade_export\":2", 1);
    let refused = import(&MemoryStore::new(), &newer).await.unwrap_err();
    assert_eq!(refused, ImportError::NewerFormat { found: 2, known: 1 });
    let refused = import(&MemoryStore::new(), "{\"hello\":1}\n").await.unwrap_err();
    assert!(matches!(refused, ImportError::NotAnExport(_)));
}
