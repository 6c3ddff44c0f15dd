//! Limit of the process ids of a namespace.

use std::fs;
use std::io;

/// Process ids that the kernel keeps for itself once it has used all others.
const RESERVED: u64 = 300;

/// Number of processes by which a command can exceed its limit, so that the guard notices it.
const SLACK: u64 = 64;

/// First version of Linux in which each namespace has a limit of its own: 6.14.
const FIRST_VERSION: (u32, u32) = (6, 14);

/// Limits the number of processes and threads of the namespace of this process.
///
/// Before that version, the same file is the limit of the whole system, which root could change.
pub(super) fn limit_processes(processes: u64) -> io::Result<()> {
    let release = rustix::system::uname();
    if version(&release.release().to_string_lossy()) < Some(FIRST_VERSION) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let limit = processes.saturating_add(RESERVED).saturating_add(SLACK);
    fs::write("/proc/sys/kernel/pid_max", limit.to_string())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn version_is_the_start_of_the_release() {
        assert_eq!(version("6.18.44-fc-v509"), Some((6, 18)));
        assert_eq!(version("5.4.0-150-generic"), Some((5, 4)));
        assert_eq!(version("6.9+"), Some((6, 9)));
        assert_eq!(version("unknown"), None);
        assert!(version("6.9").is_some_and(|found| found < super::FIRST_VERSION));
        assert!(version("unknown") < Some(super::FIRST_VERSION));
    }
}
