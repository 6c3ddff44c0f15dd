//! Maps whose keys nobody outside chooses: ids that were drawn here, and hashes. They are asked several times for each fact,
//! and need no hash that withstands an attack.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub(crate) type FastMap<K, V> = HashMap<K, V, RandomState>;
pub(crate) type FastSet<K> = HashSet<K, RandomState>;
