//! Checks of the session store.

use std::path::Path;

use brigade::StoreError;
use brigade::store::{Integrity, SqliteStore};
use rustix::fs::{Access, access, statvfs};

use super::Finding;
use crate::error::without_temporary_path;
use crate::settings::StoreAddress;
use crate::store_advice;

/// A larger store is not verified, because that would take too long.
const MAX_CHECKED_BYTES: u64 = 512 << 20;
/// With less free space, a long session may fill the disk.
const LOW_SPACE_BYTES: u64 = 500 << 20;
/// With less free space, the next session cannot be stored.
const MIN_SPACE_BYTES: u64 = 20 << 20;

/// Checks the file, its folder and the free disk space.
pub(super) fn findings(address: &StoreAddress) -> Vec<Finding> {
    let StoreAddress::File(file) = address;
    let mut findings = vec![match file.symlink_metadata() {
        Ok(_) => check_file(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => check_missing(file),
        Err(error) => Finding::problem(format!("{}: {error}", file.display()), OTHER_PATH),
    }];
    findings.extend(free_space(file));
    findings
}

const STORE_FIX: &str =
    "Make it writable, or choose another path with --store PATH, or with `store = \"PATH\"` in config.toml";
const OTHER_PATH: &str = "Choose another path with --store PATH, or with `store = \"PATH\"` in config.toml";

fn check_file(file: &Path) -> Finding {
    let place = file.display();
    if file.is_dir() {
        return Finding::problem(format!("{place} is a directory, not a file"), OTHER_PATH);
    }
    if let Err(error) = access(file, Access::READ_OK | Access::WRITE_OK) {
        return Finding::problem(format!("cannot write {place}: {error}"), STORE_FIX);
    }
    // SQLite keeps two more files next to it while it is in use.
    let folder = file.parent().unwrap_or(Path::new("/"));
    if let Err(error) = check_writable(folder) {
        return Finding::problem(
            format!("cannot write to {}: {}", folder.display(), without_temporary_path(&error)),
            STORE_FIX,
        );
    }
    match SqliteStore::check_health(file, MAX_CHECKED_BYTES) {
        Ok(found) => {
            let format = found.format.map_or_else(|| "empty".to_owned(), |format| format!("format {format}"));
            let size = size(found.bytes);
            match found.integrity {
                Integrity::Intact => Finding::ok(format!("{place}: {format}, {size}, intact")),
                Integrity::Unknown => {
                    Finding::ok(format!("{place}: {format}, {size}, too large to verify here"))
                }
                Integrity::Damaged(places) => Finding::problem(
                    format!("{place} is damaged: {}", places.join("; ")),
                    "Export the readable sessions with: brigade sessions export ID. Then move the file away",
                ),
            }
        }
        Err(error @ StoreError::NewerStore { .. }) => {
            Finding::problem(error.to_string(), "Upgrade Brigade, or choose another path with --store PATH")
        }
        Err(error) => Finding::problem(
            store_advice::describe(&error),
            "Move the file away, or choose another path with --store PATH",
        ),
    }
}

fn check_missing(file: &Path) -> Finding {
    let place = file.display();
    match existing_folder(file) {
        Some(folder) if !folder.is_dir() => {
            Finding::problem(format!("{place}: {} is not a directory", folder.display()), OTHER_PATH)
        }
        Some(folder) => match check_writable(folder) {
            Ok(()) => Finding::ok(format!("{place} will be created by the first run")),
            Err(error) => Finding::problem(
                format!("cannot create {place} in {}: {}", folder.display(), without_temporary_path(&error)),
                STORE_FIX,
            ),
        },
        None => Finding::problem(format!("cannot create {place}"), STORE_FIX),
    }
}

/// Creates an unnamed file in a folder. Permissions alone are not sufficient: a file system may be read-only.
fn check_writable(folder: &Path) -> std::io::Result<()> {
    tempfile::tempfile_in(folder).map(drop)
}

fn free_space(file: &Path) -> Option<Finding> {
    let folder = existing_folder(file)?;
    // A pseudo file system has no size.
    let disk = statvfs(folder).ok().filter(|disk| disk.f_blocks > 0)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let text = format!("{} free on the disk of {}", size(free), folder.display());
    let fix = "Free some space, or choose another path with --store PATH";
    Some(match free {
        free if free < MIN_SPACE_BYTES => Finding::problem(text, fix),
        free if free < LOW_SPACE_BYTES => Finding::warn(text, fix),
        _ => Finding::ok(text),
    })
}

/// Nearest existing ancestor of a file.
fn existing_folder(file: &Path) -> Option<&Path> {
    file.ancestors().skip(1).find(|folder| folder.exists())
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=1_048_575 => format!("{} KiB", bytes.div_ceil(1024)),
        1_048_576..=1_073_741_823 => format!("{} MiB", bytes >> 20),
        _ => format!("{}.{} GiB", bytes >> 30, (bytes >> 20) % 1024 * 10 / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn size_is_rounded_to_a_unit() {
        let shown: Vec<String> = [0, 1, 4096, 5 << 20, (3 << 30) + (512 << 20)].map(size).into();
        assert_eq!(shown, ["0 KiB", "1 KiB", "4 KiB", "5 MiB", "3.5 GiB"]);
    }
}
