//! Whether this process descends from a guard.

/// Whether a process above this one was started with `argument` as its first. A guard that is named by its first argument is
/// found in this way by whatever it runs, however that detached itself. On systems other than Linux nothing is found.
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
        // A table that is out of date may lead in a circle.
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
