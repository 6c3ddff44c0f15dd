//! The laws of all stores, for the stores of this crate.

mod memory {
    use brigade::store::MemoryStore;

    async fn new_store() -> (MemoryStore, ()) {
        (MemoryStore::new(), ())
    }

    brigade::store_laws!(new_store);
}

mod sqlite {
    use brigade::store::SqliteStore;

    async fn new_store() -> (SqliteStore, tempfile::TempDir) {
        let folder = crate::store::support::folder();
        (crate::store::support::open(&folder), folder)
    }

    brigade::store_laws!(new_store);
}
