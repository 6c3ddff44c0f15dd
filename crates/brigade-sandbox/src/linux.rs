//! Sandboxes on Linux.

pub(crate) mod cgroups;
pub(crate) mod failure;
mod git_links;
pub(crate) mod init;
mod landlock_rules;
pub(crate) mod layers;
mod mounts;
mod pid_limit;
pub(crate) mod placeholders;
pub(crate) mod planted;
mod syscalls;

pub(crate) use landlock_rules::only_layer;
pub(crate) use syscalls::SyscallFilters;
