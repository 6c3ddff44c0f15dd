//! Sandboxes on Linux.

pub(crate) mod cgroups;
pub(crate) mod failure;
pub(crate) mod init;
mod landlock_rules;
pub(crate) mod layers;
mod mounts;
mod pid_limit;
pub(crate) mod placeholders;
mod syscalls;

pub(crate) use landlock_rules::only_layer;
pub(crate) use syscalls::SyscallFilters;
