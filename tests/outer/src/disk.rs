//! A simulated disk: tracks which writes of a program are durable, and what a power cut may leave of the
//! others.

use std::collections::BTreeMap;
use std::path::Path;

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

/// Files of one directory, by name. A write is durable once the file has been synced after it. A name is
/// durable once the file or the directory has.
#[derive(Debug, Default)]
pub struct Disk {
    files: Vec<File>,
    /// The names that survive a power cut, and the current ones.
    durable_names: BTreeMap<String, usize>,
    names: BTreeMap<String, usize>,
    /// Changes of names that may be lost. The directory keeps their order.
    pending_names: Vec<(u64, String, Option<usize>)>,
    /// Number of the next change.
    next: u64,
}

#[derive(Debug, Default)]
struct File {
    durable: Vec<u8>,
    pending: Vec<(u64, Change)>,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// A sync in progress. It covers all earlier changes.
#[derive(Debug)]
pub struct Sync {
    /// The file, or `None` for the directory.
    file: Option<usize>,
    before: u64,
}

/// Outcome of changes that are not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOutcome {
    /// All are lost.
    Lost,
    /// All are kept.
    Kept,
    /// Each is lost, kept, or kept in some of its sectors, at random.
    Random(u64),
}

impl Disk {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn file(&mut self, name: &str) -> &mut File {
        let file = match self.names.get(name) {
            Some(file) => *file,
            None => self.create(name),
        };
        &mut self.files[file]
    }

    fn create(&mut self, name: &str) -> usize {
        self.files.push(File::default());
        let file = self.files.len() - 1;
        let number = self.number();
        self.names.insert(name.to_owned(), file);
        self.pending_names.push((number, name.to_owned(), Some(file)));
        file
    }

    /// Opens a file, and creates it if it does not exist.
    pub fn open(&mut self, name: &str) {
        self.file(name);
    }

    /// Writes bytes at an offset.
    pub fn write(&mut self, name: &str, at: usize, bytes: Vec<u8>) {
        let number = self.number();
        self.file(name).pending.push((number, Change::Write(at, bytes)));
    }

    /// Changes the length of a file.
    pub fn truncate(&mut self, name: &str, length: usize) {
        let number = self.number();
        self.file(name).pending.push((number, Change::Truncate(length)));
    }

    /// Removes a file.
    pub fn remove(&mut self, name: &str) {
        if self.names.remove(name).is_some() {
            let number = self.number();
            self.pending_names.push((number, name.to_owned(), None));
        }
    }

    /// Begins a sync of a file, or of the directory.
    pub fn begin_sync(&mut self, name: Option<&str>) -> Sync {
        let before = self.number();
        Sync { file: name.and_then(|name| self.names.get(name).copied()), before }
    }

    /// Ends a sync, which makes all covered changes durable.
    pub fn end_sync(&mut self, Sync { file, before }: Sync) {
        if let Some(file) = file {
            let File { durable, pending } = &mut self.files[file];
            let rest = pending.split_off(pending.partition_point(|(number, _)| *number < before));
            for (_, change) in std::mem::replace(pending, rest) {
                change.apply(durable, &mut |_| true);
            }
        }
        // A durable name of a file supersedes all earlier changes of that name.
        let own_name = self.pending_names.iter().rfind(|(number, _, to)| *number < before && *to == file);
        let own_name = own_name.map(|(number, name, _)| (*number, name.clone()));
        let is_covered = |(number, name, _): &(u64, String, Option<usize>)| match (file, &own_name) {
            (None, _) => *number < before,
            (Some(_), Some((last, of))) => number <= last && name == of,
            (Some(_), None) => false,
        };
        let (covered, rest) = std::mem::take(&mut self.pending_names).into_iter().partition(is_covered);
        self.pending_names = rest;
        for (_, name, to) in covered {
            rename(&mut self.durable_names, name, to);
        }
    }

    /// Returns the files that a power cut leaves now.
    pub fn after_power_cut(&self, outcome: CutOutcome) -> BTreeMap<String, Vec<u8>> {
        let mut rng = Rng(match outcome {
            CutOutcome::Random(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            CutOutcome::Lost | CutOutcome::Kept => 1,
        });
        let mut names = self.durable_names.clone();
        let kept = match outcome {
            CutOutcome::Lost => 0,
            CutOutcome::Kept => self.pending_names.len(),
            CutOutcome::Random(_) => rng.below(self.pending_names.len() as u64 + 1) as usize,
        };
        for (_, name, to) in self.pending_names.iter().take(kept).cloned() {
            rename(&mut names, name, to);
        }
        names.into_iter().map(|(name, file)| (name, self.files[file].after(outcome, &mut rng))).collect()
    }
}

fn rename(names: &mut BTreeMap<String, usize>, name: String, to: Option<usize>) {
    match to {
        Some(file) => names.insert(name, file),
        None => names.remove(&name),
    };
}

impl File {
    fn after(&self, outcome: CutOutcome, rng: &mut Rng) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (_, change) in &self.pending {
            match outcome {
                CutOutcome::Lost => {}
                CutOutcome::Kept => change.apply(&mut content, &mut |_| true),
                CutOutcome::Random(_) => match rng.below(3) {
                    0 => {}
                    1 => change.apply(&mut content, &mut |_| true),
                    _ => change.apply(&mut content, &mut |_| rng.below(2) == 0),
                },
            }
        }
        content
    }
}

impl Change {
    /// Applies a write to a content, limited to the sectors that are kept.
    fn apply(&self, content: &mut Vec<u8>, keeps: &mut dyn FnMut(usize) -> bool) {
        match self {
            Change::Truncate(length) => {
                if keeps(*length / SECTOR) {
                    content.resize(*length, 0);
                }
            }
            Change::Write(at, bytes) => {
                let mut done = 0;
                while done < bytes.len() {
                    let offset = at + done;
                    let length = (SECTOR - offset % SECTOR).min(bytes.len() - done);
                    if keeps(offset / SECTOR) {
                        content.resize(content.len().max(offset + length), 0);
                        content[offset..offset + length].copy_from_slice(&bytes[done..done + length]);
                    }
                    done += length;
                }
            }
        }
    }
}

/// Pseudo-random numbers, the same for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// Replaces the contents of a directory with these files.
pub fn write_files(files: &BTreeMap<String, Vec<u8>>, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (name, content) in files {
        std::fs::write(folder.join(name), content).unwrap();
    }
}
