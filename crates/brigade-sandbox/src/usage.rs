//! Resources that a sandbox uses, compared with its limits.

use std::ffi::OsString;

use crate::{Sandbox, SandboxLimit, SandboxLimits};

/// The first of these limits that is exceeded by the descendants of this process together.
pub(crate) fn exceeded_limit(
    sandbox: &Sandbox,
    limits: &SandboxLimits,
    layers: Option<&OsString>,
) -> Option<SandboxLimit> {
    use crate::processes::ProcessTable;
    if let Some(floor) = limits.free_disk_bytes
        && sandbox
            .writable
            .iter()
            .chain(&sandbox.temporary)
            .chain(layers)
            .filter_map(free_bytes)
            .any(|free| free < floor)
    {
        return Some(SandboxLimit::FreeDisk);
    }
    if limits.memory_bytes.is_none() && limits.processes.is_none() {
        return None;
    }
    let table = ProcessTable::read().ok()?;
    let processes = table.descendants(rustix::process::getpid().as_raw_nonzero().get());
    // The first process of the sandbox is not the command's.
    let living = processes.iter().filter(|process| !process.is_dead);
    let count = living.map(|process| process.threads).fold(0, u64::saturating_add).saturating_sub(1);
    if limits.processes.is_some_and(|limit| count > limit) {
        return Some(SandboxLimit::Processes);
    }
    let memory_limit = limits.memory_bytes?;
    let memory = processes.iter().map(|process| private_bytes(process.pid)).fold(0, u64::saturating_add);
    (memory > memory_limit).then_some(SandboxLimit::Memory)
}

/// Free space of the file system at a path for ordinary users.
fn free_bytes(path: &OsString) -> Option<u64> {
    let file_system = rustix::fs::statvfs(path.as_os_str()).ok()?;
    Some(file_system.f_bavail.saturating_mul(file_system.f_frsize))
}

/// Memory that a process shares with no file: its resident pages without the shared ones.
fn private_bytes(pid: i32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut pages = statm.split_ascii_whitespace().skip(1).filter_map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared).saturating_mul(rustix::param::page_size() as u64)
}
