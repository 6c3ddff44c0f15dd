//! Picture in the README: the screen of a run as an SVG.
//!
//! `UPDATE_PICTURE=1` redraws it. Its numbers come from the run that drew it; the comparison ignores times.

use std::fmt::Write as _;
use std::path::Path;

use avt::{Cell, Color};

use crate::home::{Home, text};
use crate::support::{Window, placeholders};

const COLUMNS: u16 = 100;
const ROWS: u16 = 24;
const TASK: &str = "The tests fail. Find out why, repair it, and write a changelog.";

const CONFIG: &str = "[swarm]\nmax_depth = 2\n[limits]\nquestion_timeout = '5m'\n";

/// One agent is done, one requests approval to run the tests, and one has delegated to another.
const SCRIPT: &str = r#"
[price]
input = 3.0
output = 15.0
[[reply]]
agent = "lead"
turn = 1
delay_ms = 350
usage = { input = 1840, output = 96 }
[[reply.call]]
tool = "list_dir"
[[reply]]
agent = "lead"
turn = 2
delay_ms = 350
usage = { input = 2210, output = 184 }
[[reply.call]]
tool = "delegate"
arguments = { role = "Scout", task = "find what is known" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Fixer", task = "repair it" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Writer", task = "write the changelog" }
[[reply]]
agent = "Scout"
turn = 1
delay_ms = 350
usage = { input = 1190, output = 41 }
[[reply.call]]
tool = "grep"
arguments = { pattern = "TODO" }
[[reply]]
agent = "Scout"
text = "Nothing."
delay_ms = 350
usage = { input = 1420, output = 87 }
[[reply]]
agent = "Fixer"
turn = 1
delay_ms = 350
usage = { input = 1230, output = 38 }
[[reply.call]]
tool = "read_file"
arguments = { path = "price.sh" }
[[reply]]
agent = "Fixer"
turn = 2
delay_ms = 350
usage = { input = 1580, output = 64 }
[[reply.call]]
tool = "message"
arguments = { text = "Found it: price.sh compares with -gt where it should be -ge." }
[[reply]]
agent = "Fixer"
turn = 3
delay_ms = 350
usage = { input = 1710, output = 102 }
[[reply.call]]
tool = "edit_file"
arguments = { path = "price.sh", old = "-gt", new = "-ge" }
[[reply]]
agent = "Fixer"
turn = 4
delay_ms = 350
usage = { input = 1890, output = 29 }
[[reply.call]]
tool = "shell"
arguments = { command = "./test.sh" }
[[reply]]
agent = "Writer"
turn = 1
delay_ms = 350
usage = { input = 1205, output = 133 }
[[reply.call]]
tool = "write_file"
arguments = { path = "CHANGELOG.md", content = "Fixed\n" }
[[reply]]
agent = "Writer"
turn = 2
delay_ms = 350
usage = { input = 1420, output = 55 }
[[reply.call]]
tool = "delegate"
arguments = { role = "Proofreader", task = "read the changelog" }
[[reply]]
agent = "Proofreader"
turn = 1
delay_ms = 350
usage = { input = 980, output = 24 }
[[reply.call]]
tool = "read_file"
arguments = { path = "CHANGELOG.md" }
[[reply]]
fault = "hang"
"#;

#[test]
fn readme_picture_matches_a_run() {
    let home = Home::new();
    home.write("home/config.toml", &format!("model = '{}'\n{CONFIG}", home.script(SCRIPT)));
    home.write("work/price.sh", "[ $1 -gt 10 ]\n");
    let arguments = ["run", "--mode", "edit", TASK];
    let window = Window::start(&home, (COLUMNS, ROWS), &arguments, &[]);
    window.wait_until("quiet but for time", |screen| {
        let has = |text: &str| screen.contains(text);
        has("y allow once")
            && has("needs approval: shell")
            && has("thinking, after read_file CHANGELOG.md")
            && has("  done")
    });
    let drawn = picture(&format!("brigade run --mode edit \"{TASK}\""), &window.cells());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/live-tree.svg");
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        std::fs::write(&file, &drawn).unwrap();
    }
    let stored = text(&file);
    assert_eq!(
        placeholders(&stored),
        placeholders(&drawn),
        "UPDATE_PICTURE=1 draws docs/live-tree.svg anew; this is what the run shows:\n{}",
        window.screen()
    );
}

const CELL: (f32, f32) = (8.4, 19.0);
const MARGIN: f32 = 18.0;

/// Screen below the command that produced it.
fn picture(command: &str, rows: &[Vec<Cell>]) -> String {
    let is_blank = |row: &[Cell]| row.iter().all(|cell| cell.char() == ' ');
    let used = rows.iter().rposition(|row| !is_blank(row)).map_or(0, |last| last + 1);
    let width = f32::from(COLUMNS) * CELL.0 + 2.0 * MARGIN;
    let height = (used + 1) as f32 * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>The live tree of a run</title>\n<style>\n\
         text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; \
         white-space: pre; fill: #d8dee9; }}\n\
         .faint {{ fill: #8b95a7; }}\n.bold {{ font-weight: bold; fill: #ffffff; }}\n\
         .red {{ fill: #f08a8a; }}\n.yellow {{ fill: #f0c674; font-weight: bold; }}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1b2028\"/>\n"
    );
    write(&mut svg, (0, 0), "faint", &format!("$ {command}"));
    for (number, row) in rows[..used].iter().enumerate() {
        let mut column = 0;
        for run in row.chunk_by(|one, other| one.pen() == other.pen()) {
            let text: String = run.iter().map(Cell::char).collect();
            write(&mut svg, (number + 1, column), class(&run[0]), text.trim_end());
            column += run.len();
        }
    }
    svg + "</svg>\n"
}

/// Writes text at a row and column, with the width of a terminal for any font.
fn write(svg: &mut String, (row, column): (usize, usize), class: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let (x, y) = (MARGIN + column as f32 * CELL.0, MARGIN + (row + 1) as f32 * CELL.1 - 5.0);
    let length = text.chars().count() as f32 * CELL.0;
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\"{class}>{text}</text>").unwrap();
}

fn class(cell: &Cell) -> &'static str {
    match cell.pen().foreground() {
        Some(Color::Indexed(1 | 9)) => "red",
        Some(Color::Indexed(3 | 11)) => "yellow",
        _ if cell.pen().is_bold() => "bold",
        _ if cell.pen().is_faint() => "faint",
        _ => "",
    }
}
