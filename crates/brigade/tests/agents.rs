//! Definitions in files: ours, those of other programs, and those that nobody should trust.

// The attribute tells clippy that helpers in here are tests too.
#[cfg(test)]
mod agents {
    mod agent_dir;
    mod authority;
    mod contract;
    mod formats;
    mod hostile;
    mod keys;
    mod places;
}
