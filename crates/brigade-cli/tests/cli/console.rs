//! Commands of a test and their results as one text, which is compared with a snapshot.

use std::path::PathBuf;

use crate::cli::redaction::redacted;
use crate::cli::support::{CommandResult, Home};

/// Commands and results with placeholders: folders of the test are `HOME`, `WORK` and `TEMP`, token counts are `N`.
pub(crate) struct Console {
    home: PathBuf,
    /// Further values and their placeholders.
    placeholders: Vec<(String, &'static str)>,
    text: String,
}

impl Console {
    pub(crate) fn new(home: &Home) -> Console {
        Console { home: home.home(), placeholders: Vec::new(), text: String::new() }
    }

    /// Continues in another home.
    pub(crate) fn enter(&mut self, home: &Home) {
        self.home = home.home();
    }

    /// Shows a placeholder instead of a value.
    pub(crate) fn hide(&mut self, value: &str, placeholder: &'static str) {
        self.placeholders.push((value.to_owned(), placeholder));
    }

    /// Adds a command with its exit code and its output.
    pub(crate) fn add(&mut self, done: &CommandResult) {
        let command = done.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let code = done.code;
        self.add_text(&format!("brigade {command}"), &format!("exit code: {code}"));
        for (name, output) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
            if !output.is_empty() {
                let output = self.placed(output);
                self.text.push_str(&format!("{name}:\n{}\n", output.trim_end_matches('\n')));
            }
        }
    }

    /// Adds a text under a title.
    pub(crate) fn add_text(&mut self, title: &str, text: &str) {
        let title = title.trim_end();
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let entry = format!("{gap}$ {}\n{}\n", self.placed(title), self.placed(text));
        self.text.push_str(&entry);
    }

    #[must_use]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn placed(&self, text: &str) -> String {
        let folder = self.home.parent().unwrap();
        let tests = std::env::current_exe().unwrap();
        let mut text = text.replace(env!("CARGO_BIN_EXE_brigade"), "BRIGADE");
        text = text.replace(tests.to_str().unwrap(), "TESTS");
        for (path, name) in [(self.home.as_path(), "HOME"), (&folder.join("work"), "WORK"), (folder, "TEMP")]
        {
            text = text.replace(path.to_str().unwrap(), name);
        }
        let mut text = redacted(&text);
        for (value, placeholder) in &self.placeholders {
            text = text.replace(value, placeholder);
        }
        let other_home = std::env::temp_dir().join(".tmp");
        assert!(!text.contains(other_home.to_str().unwrap()), "a path of another home: {text}");
        with_numbers_replaced(&text)
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=./:,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("{word:?}") }
}

/// Replaces what depends on the machine: estimated tokens and their cost, ports, process ids, and the widths of tables.
fn with_numbers_replaced(text: &str) -> String {
    let mut table = None;
    let lines = text.split('\n').map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => table = None,
            ["agent", "turns", "in", "out", ..] => table = Some(Table::Summary),
            ["id", "age", ..] => table = Some(Table::Sessions),
            ["agent", "outcome", ..] => table = Some(Table::Tree),
            _ => {}
        }
        let line = sentence(line);
        match table {
            Some(table) => table.row(&line),
            None => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Tables whose columns are as wide as the values in them.
#[derive(Clone, Copy)]
enum Table {
    Summary,
    Sessions,
    Tree,
}

impl Table {
    fn row(self, line: &str) -> String {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let mut cells: Vec<&str> = cells.collect();
        match self {
            Table::Summary => {
                if let Some(time) = cells.iter().position(|&cell| cell == "TIME")
                    && time > 3
                {
                    cells[time - 3..time - 1].fill("N");
                }
            }
            Table::Tree => {
                for at in 1..cells.len() {
                    if cells[at].starts_with('$') || ["-", "COST", "not reported"].contains(&cells[at]) {
                        cells[at - 1] = "N";
                    }
                }
            }
            Table::Sessions => {
                if let ["ID", age, ..] = &mut cells[..] {
                    *age = "TIME";
                }
            }
        }
        cells.join("  ")
    }
}

fn sentence(line: &str) -> String {
    let mut before = ["", "", ""];
    let mut shown = String::new();
    let mut rest = line;
    while let Some(begin) = rest.find(|c| c != ' ') {
        let (blank, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(' ').unwrap_or(from.len()));
        let (value, end) = word.split_at(word.trim_end_matches([',', '.', ';', ':', ')']).len());
        shown.push_str(blank);
        match number(before, value, after.trim_start()) {
            Some(placeholder) => shown.push_str(&format!("{placeholder}{end}")),
            None => shown.push_str(&with_port_replaced(word)),
        }
        before = [before[1], before[2], word];
        rest = after;
    }
    shown + rest
}

/// Placeholder of a number, by the words before and after it.
fn number(before: [&str; 3], value: &str, after: &str) -> Option<&'static str> {
    let digits = value.trim_start_matches(['$', '(']).trim_end_matches(['k', 'M']);
    let is_number = digits.parse::<f64>().is_ok();
    let is_estimate = matches!(before, [.., "use" | "cost", "up", "to"])
        || after.starts_with("more tokens")
        || after.starts_with("unconfirmed");
    let has_small_digits = digits.split_once('.').is_some_and(|(_, cents)| cents.len() > 2);
    match before[2] {
        "on" if before[0] == "process" => Some("HOST"),
        _ if !is_number => None,
        "process" | "-CONT" | "kill" => Some("PID"),
        "port" if digits.parse::<u16>().is_ok_and(is_chosen_by_the_system) => Some("PORT"),
        _ if has_small_digits && value.starts_with('$') && value != "$0.0000" => Some("COST"),
        "--budget-usd" if has_small_digits => Some("COST"),
        _ if is_estimate || after.starts_with("tokens in") || after.starts_with("tokens of the") => Some("N"),
        _ => None,
    }
}

fn is_chosen_by_the_system(port: u16) -> bool {
    port >= 20_000
}

fn with_port_replaced(word: &str) -> String {
    let Some((host, rest)) = ["127.0.0.1:", "0.0.0.0:", "localhost:"]
        .iter()
        .find_map(|host| word.find(host).map(|place| word.split_at(place + host.len())))
    else {
        return word.to_owned();
    };
    let (port, end) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    match port.parse() {
        Ok(port) if is_chosen_by_the_system(port) => format!("{host}PORT{end}"),
        _ => word.to_owned(),
    }
}

#[test]
fn console_has_placeholders_for_what_depends_on_the_machine() {
    for (text, expected) in [
        ("Listening on http://127.0.0.1:40123/mcp", "Listening on http://127.0.0.1:PORT/mcp"),
        ("not running at http://127.0.0.1:8080/v1", "not running at http://127.0.0.1:8080/v1"),
        ("running in process 123 on a-host. Wait", "running in process PID on HOST. Wait"),
        ("the next call could use up to 5864.", "the next call could use up to N."),
        ("supports formats up to 2. Upgrade", "supports formats up to 2. Upgrade"),
        ("turn 1  185 tokens in, 2 out, $0.0012", "turn 1  N tokens in, 2 out, COST"),
        ("budget: 50 turns, 2.0M tokens", "budget: 50 turns, 2.0M tokens"),
        (
            "agent  turns   in  out\nlead       1  185    2  $0.0000  TIME  done",
            "agent  turns  in  out\nlead  1  N  N  $0.0000  TIME  done",
        ),
        ("id      age  state\nID       3s  done", "id  age  state\nID  TIME  done"),
    ] {
        assert_eq!(with_numbers_replaced(text), expected);
    }
}
