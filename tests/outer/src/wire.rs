//! What two programs said to each other, line by line. The program `record-wire` stands between them and keeps it.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Who of the two it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that started the other.
    Client,
    /// The one that was started.
    Agent,
}

/// One line, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireLine {
    /// Who sent it.
    pub from: Side,
    /// Without the end of the line.
    pub text: String,
}

/// A folder for what is said: one file for each process.
#[derive(Debug)]
pub struct WireLog {
    folder: PathBuf,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Agent,
            Side::Agent => Side::Client,
        }
    }

    /// The word for it in files and in the schema of ACP.
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Agent => "agent",
        }
    }
}

impl WireLine {
    /// As `record-wire` writes it.
    pub fn to_log_line(&self) -> String {
        format!("{} {}\n", self.from.as_str(), self.text)
    }

    fn parse(line: &str) -> Option<WireLine> {
        let (from, text) = line.split_once(' ')?;
        let from = [Side::Client, Side::Agent].into_iter().find(|side| side.as_str() == from)?;
        Some(WireLine { from, text: text.to_owned() })
    }

    /// The message, or null where it is none.
    pub fn message(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl WireLog {
    /// Keeps it in this folder, which is made.
    pub fn new(folder: &Path) -> WireLog {
        std::fs::create_dir_all(folder).unwrap();
        WireLog { folder: folder.to_owned() }
    }

    /// The words that start a command with this wire in between.
    pub fn wrap_command(&self, command: &[&str]) -> Vec<String> {
        let record = crate::sibling_binary("record-wire");
        let prefix = [record.display().to_string(), self.folder.display().to_string()];
        prefix.into_iter().chain(command.iter().map(|word| (*word).to_owned())).collect()
    }

    /// What was said up to now, process by process, the oldest first.
    pub fn recorded(&self) -> Vec<Vec<WireLine>> {
        let mut files: Vec<_> = std::fs::read_dir(&self.folder).unwrap().flatten().collect();
        files.sort_by_key(|file| file.metadata().and_then(|data| data.created()).ok());
        let texts = files.iter().map(|file| std::fs::read_to_string(file.path()).unwrap());
        texts.map(|text| text.lines().filter_map(WireLine::parse).collect()).collect()
    }
}

/// The methods of all that one side sent, in order.
pub fn methods(wire: &[WireLine], side: Side) -> Vec<String> {
    let sent = wire.iter().filter(|line| line.from == side);
    sent.filter_map(|line| Some(line.message()["method"].as_str()?.to_owned())).collect()
}
