//! Landlock: the second layer behind namespaces, or the only one without them.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};

use crate::Sandbox;

/// Newest version whose file rights are requested. Older kernels get those that they know.
const VERSION: ABI = ABI::V6;

/// Directories that are private inside namespaces, or that contain devices.
const PRIVATE: [&str; 6] = ["/tmp", "/var/tmp", "/run", "/dev", "/proc", "/dev/shm"];

/// Restricts writes to the writable paths, inside namespaces that already do so. A kernel without Landlock is fine.
pub(crate) fn second_layer(sandbox: &Sandbox) -> io::Result<Option<RulesetCreated>> {
    if crate::os::landlock_version().is_none() {
        return Ok(None);
    }
    let mut rules = ruleset(CompatLevel::BestEffort)?;
    rules = allow(rules, Path::new("/"), AccessFs::from_read(VERSION))?;
    let changed = sandbox.writable.iter().chain(&sandbox.discarded).map(Path::new);
    for path in changed.chain(PRIVATE.iter().map(Path::new)) {
        rules = allow(rules, path, AccessFs::from_all(VERSION))?;
    }
    Ok(Some(rules))
}

/// Restricts reads and writes without namespaces: all of the system can be read except the hidden paths, and a directory
/// that contains a protected path can be written only in its other entries.
pub(crate) fn only_layer(sandbox: &Sandbox) -> io::Result<RulesetCreated> {
    let mut rules = ruleset(CompatLevel::HardRequirement)?;
    let hidden: Vec<PathBuf> = sandbox.hidden.iter().map(PathBuf::from).collect();
    // Names can be listed everywhere. Contents cannot.
    rules = allow(rules, Path::new("/"), AccessFs::ReadDir.into())?;
    let mut readable = Vec::new();
    split(Path::new("/"), &hidden, 0, &mut readable)?;
    for path in readable {
        rules = allow(rules, &path, AccessFs::from_read(VERSION))?;
    }
    let mut excluded: Vec<PathBuf> = sandbox.protected.iter().map(PathBuf::from).collect();
    excluded.retain(|path| path.symlink_metadata().is_ok());
    excluded.extend(hidden);
    let mut writable = Vec::new();
    for path in &sandbox.writable {
        split(Path::new(path), &excluded, 0, &mut writable)?;
    }
    for path in
        writable.iter().map(PathBuf::as_path).chain(["/dev/null", "/dev/zero", "/dev/tty"].map(Path::new))
    {
        rules = allow(rules, path, AccessFs::from_all(VERSION))?;
    }
    if let Some(temporary) = &sandbox.temporary {
        rules = allow(rules, Path::new(temporary), AccessFs::from_all(VERSION))?;
    }
    Ok(rules)
}

/// Maximum number of rules, which bounds the time to start a command.
const MAX_RULES: usize = 20_000;

/// Collects `path`, or its entries without the excluded ones.
fn split(path: &Path, excluded: &[PathBuf], depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if excluded.iter().any(|excluded| path.starts_with(excluded)) {
        return Ok(());
    }
    if depth > 64 || found.len() > MAX_RULES {
        return Err(io::Error::other(format!(
            "more than {MAX_RULES} rules are needed for the hidden and protected paths"
        )));
    }
    if !excluded.iter().any(|excluded| excluded.starts_with(path)) {
        found.push(path.to_path_buf());
        return Ok(());
    }
    // A directory that cannot be listed cannot be read by the command either.
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
    for entry in entries.flatten() {
        // The target of a link is decided by its own path.
        if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            split(&entry.path(), excluded, depth + 1, found)?;
        }
    }
    Ok(())
}

fn ruleset(level: CompatLevel) -> io::Result<RulesetCreated> {
    // Rights of the first three versions are required, because without them files could be truncated.
    let required = AccessFs::from_all(ABI::V3);
    let rules =
        Ruleset::default().set_compatibility(level).handle_access(required).map_err(io::Error::other)?;
    let rules = rules.set_compatibility(CompatLevel::BestEffort);
    let rules = rules.handle_access(AccessFs::from_all(VERSION)).map_err(io::Error::other)?;
    let rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal).map_err(io::Error::other)?;
    rules.create().map_err(io::Error::other)
}

/// Adds a rule. A path that has disappeared needs none.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    let Ok(open) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
    rules.add_rule(PathBeneath::new(open, access)).map_err(io::Error::other)
}
