//! Agent definition files: Brigade's own, those of other programs, and hostile ones.

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
