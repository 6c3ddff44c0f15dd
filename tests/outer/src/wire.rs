//! Recording of the messages between two programs, line by line, by the program `record-wire`.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// One of the two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The program that started the other.
    Client,
    /// The program that was started.
    Agent,
}

/// One line, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireLine {
    /// The sender.
    pub from: Side,
    /// The line without its terminator.
    pub text: String,
}

/// A directory of recordings, with one file per process.
#[derive(Debug)]
pub struct WireLog {
    folder: PathBuf,
}

impl Side {
    /// The other side.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Agent,
            Side::Agent => Side::Client,
        }
    }

    /// Its name in recordings and in the ACP schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Agent => "agent",
        }
    }
}

impl WireLine {
    /// Formats the line as `record-wire` writes it.
    pub fn to_log_line(&self) -> String {
        format!("{} {}\n", self.from.as_str(), self.text)
    }

    fn parse(line: &str) -> Option<WireLine> {
        let (from, text) = line.split_once(' ')?;
        let from = [Side::Client, Side::Agent].into_iter().find(|side| side.as_str() == from)?;
        Some(WireLine { from, text: text.to_owned() })
    }

    /// The message, or null if the line is not JSON.
    pub fn message(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl WireLog {
    /// Creates the directory for recordings.
    pub fn new(folder: &Path) -> WireLog {
        std::fs::create_dir_all(folder).unwrap();
        WireLog { folder: folder.to_owned() }
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The command line that runs a command with recording.
    pub fn wrap_command(&self, command: &[&str]) -> Vec<String> {
        let record = crate::sibling_binary("record-wire");
        let prefix = [record.display().to_string(), self.folder.display().to_string()];
        prefix.into_iter().chain(command.iter().map(|word| (*word).to_owned())).collect()
    }

    /// The lines so far, by process, oldest first.
    pub fn recorded(&self) -> Vec<Vec<WireLine>> {
        let mut files: Vec<_> = std::fs::read_dir(&self.folder).unwrap().flatten().collect();
        files.sort_by_key(|file| file.metadata().and_then(|data| data.created()).ok());
        let texts = files.iter().map(|file| std::fs::read_to_string(file.path()).unwrap());
        texts.map(|text| text.lines().filter_map(WireLine::parse).collect()).collect()
    }
}

/// The methods of all messages of one side, in order.
pub fn methods(wire: &[WireLine], side: Side) -> Vec<String> {
    let sent = wire.iter().filter(|line| line.from == side);
    sent.filter_map(|line| Some(line.message()["method"].as_str()?.to_owned())).collect()
}
