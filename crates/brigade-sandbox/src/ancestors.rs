//! Detection of a guard among the ancestors of this process.

/// Whether an ancestor of this process was started with `argument` as its first argument. Any descendant of a
/// guard with a known first argument can detect it this way, even if it detached itself. Always false on
/// systems other than Linux.
pub fn runs_under(argument: &str) -> bool {
    imp::runs_under(argument).unwrap_or(false)
}

#[cfg(target_os = "linux")]
mod imp {
    use std::{fs, io};

    use rustix::process::getpid;

    use crate::processes::ProcessTable;

    pub(crate) fn runs_under(argument: &str) -> io::Result<bool> {
        let table = ProcessTable::read()?;
        let mut next = table.get(getpid().as_raw_nonzero().get());
        // An outdated table may contain a cycle.
        for _ in 0..table.iter().count() {
            let Some(process) = next.and_then(|process| table.get(process.parent)) else { return Ok(false) };
            let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            if line.split(|byte| *byte == 0).nth(1) == Some(argument.as_bytes()) {
                return Ok(true);
            }
            next = Some(process);
        }
        Ok(false)
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    pub(crate) fn runs_under(_: &str) -> std::io::Result<bool> {
        Ok(false)
    }
}
