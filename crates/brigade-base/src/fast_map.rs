//! Hash maps for keys that outsiders cannot choose: locally generated ids, and hashes. They are queried several
//! times per event and need no protection against collision attacks.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// Map with a fast hash function.
pub type FastMap<K, V> = HashMap<K, V, RandomState>;
/// Set with a fast hash function.
pub type FastSet<K> = HashSet<K, RandomState>;
