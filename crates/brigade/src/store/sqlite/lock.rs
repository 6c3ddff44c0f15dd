//! The lock file that writers of all processes meet at before they touch the database.
//!
//! `flock` is not fair: whoever releases it and asks again at once wins against sleepers, for seconds. So waiters show
//! themselves by holding a second file shared, and who releases the lock stands back for a moment while somebody does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::schema::io_error;
use crate::store::StoreError;

/// How long a writer stands back at a time.
const PAUSE: Duration = Duration::from_millis(1);
/// How often it does so while the same waiter has still not woken up.
const PAUSES: u32 = 10;

/// One side of the lock. Every thread that writes has its own.
#[derive(Debug)]
pub(super) struct Lock {
    lock: File,
    waiting: File,
}

/// The lock, held.
#[derive(Debug)]
pub(super) struct Guard<'a>(&'a File);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Unlocking a file that is open and locked does not fail; closing it would release it as well.
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Opens the two files beside the database.
    pub(super) fn open(place: &Path) -> Result<Lock, StoreError> {
        let open = |suffix: &str| {
            let path = beside(place, suffix);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path);
            file.map_err(|error| io_error(&path, &error))
        };
        Ok(Lock { lock: open(".lock")?, waiting: open(".waiting")? })
    }

    /// Waits for the lock.
    pub(super) fn acquire(&self) -> io::Result<Guard<'_>> {
        match self.lock.try_lock() {
            Ok(()) => return Ok(Guard(&self.lock)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        self.waiting.lock_shared()?;
        let taken = retried(|| self.lock.lock());
        self.waiting.unlock()?;
        taken.map(|()| Guard(&self.lock))
    }

    /// Lets a waiter have the lock, if there is one. To be called after releasing it, before asking for it again.
    pub(super) fn stand_back(&self) {
        for _ in 0..PAUSES {
            match self.waiting.try_lock() {
                Ok(()) => {
                    let _ = self.waiting.unlock();
                    return;
                }
                // The waiter leaves the second file as soon as it has the lock, so a look after a pause tells
                // whether it woke up.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

fn retried(mut lock: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn beside(place: &Path, suffix: &str) -> PathBuf {
    let mut path = place.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
