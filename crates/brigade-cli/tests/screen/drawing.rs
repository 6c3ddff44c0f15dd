//! Screens as SVG: a still picture, and a recording that shows one screen after another.
//!
//! `UPDATE_PICTURE=1` redraws the files. Their numbers come from the run that drew them; the comparison ignores times,
//! ids and process ids.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use avt::{Cell, Color};

use crate::cli::support::text;
use crate::screen::support::time_and_id_placeholders;

/// Cells of a screen by row.
pub(crate) type Screen = Vec<Vec<Cell>>;

/// Screen of a recording, and how long it is shown.
pub(crate) struct Frame {
    pub(crate) screen: Screen,
    /// Screen of a second terminal, drawn in the lower right corner.
    pub(crate) second: Option<Screen>,
    pub(crate) shown_for: Duration,
}

const CELL: (f32, f32) = (8.4, 19.0);
const MARGIN: f32 = 18.0;

const STYLE: &str = "\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; \
white-space: pre; fill: #d8dee9; }
.faint { fill: #8b95a7; }
.bold { font-weight: bold; fill: #ffffff; }
.red { fill: #f08a8a; }
.yellow { fill: #f0c674; font-weight: bold; }
";

/// Frames are invisible except for the last one, unless they are animated.
const ANIMATION_STYLE: &str = "\
.frame { visibility: hidden; animation-timing-function: step-end; animation-iteration-count: infinite; }
.frame:last-child { visibility: visible; }
@media (prefers-reduced-motion: reduce) { .frame { animation: none !important; } }
";

/// Draws a screen below the command that produced it.
pub(crate) fn still(title: &str, command: &str, screen: &Screen) -> String {
    let used = used_rows(screen);
    let mut body = String::new();
    write_text(&mut body, (0, 0), "faint", &format!("$ {command}"));
    for (number, row) in screen[..used].iter().enumerate() {
        write_row(&mut body, number + 1, row);
    }
    let columns = screen.first().map_or(0, Vec::len);
    document(title, (columns, used + 1), STYLE, &body)
}

/// Draws frames that replace each other in an endless loop. A row that several frames show is stored once.
pub(crate) fn recording(title: &str, frames: &[Frame]) -> String {
    let size =
        frames.first().map_or((0, 0), |frame| (frame.screen.first().map_or(0, Vec::len), frame.screen.len()));
    let total: f32 = frames.iter().map(|frame| frame.shown_for.as_secs_f32()).sum();
    let (mut style, mut rows, mut groups) =
        (format!("{STYLE}{ANIMATION_STYLE}"), Rows::default(), String::new());
    let mut begin = 0.0;
    for (number, frame) in frames.iter().enumerate() {
        let end = begin + frame.shown_for.as_secs_f32();
        let percent = |seconds: f32| 100.0 * seconds / total;
        let before = if number == 0 { "" } else { "0% { visibility: hidden; } " };
        let after = match number + 1 == frames.len() {
            true => String::new(),
            false => format!(" {:.2}% {{ visibility: hidden; }}", percent(end)),
        };
        writeln!(
            style,
            "@keyframes frame-{number} {{ {before}{:.2}% {{ visibility: visible; }}{after} }}\n\
             #frame-{number} {{ animation-name: frame-{number}; animation-duration: {total:.1}s; }}",
            percent(begin)
        )
        .unwrap();
        writeln!(groups, "<g class=\"frame\" id=\"frame-{number}\">").unwrap();
        rows.place(&mut groups, &frame.screen, (0.0, 0.0));
        if let Some(second) = &frame.second {
            place_second(&mut groups, &mut rows, second, size);
        }
        groups.push_str("</g>\n");
        begin = end;
    }
    let body = format!("<defs>\n{}</defs>\n<g>\n{groups}</g>\n", rows.definitions());
    document(title, size, &style, &body)
}

/// Draws a second terminal in the lower right corner of a screen of this size.
fn place_second(groups: &mut String, rows: &mut Rows, second: &Screen, (columns, lines): (usize, usize)) {
    let width = second.first().map_or(0, Vec::len) as f32 * CELL.0 + 2.0 * MARGIN;
    let height = second.len() as f32 * CELL.1 + 2.0 * MARGIN;
    let x = columns as f32 * CELL.0 + MARGIN - width;
    let y = lines as f32 * CELL.1 + MARGIN - height;
    writeln!(
        groups,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"8\" \
         fill=\"#262d38\" stroke=\"#8b95a7\"/>"
    )
    .unwrap();
    rows.place(groups, second, (x, y));
}

/// Distinct rows of the frames, in the order in which they appear.
#[derive(Default)]
struct Rows {
    drawn: Vec<String>,
}

impl Rows {
    /// Refers to the rows of a screen whose upper left corner is at a position.
    fn place(&mut self, groups: &mut String, screen: &Screen, (x, y): (f32, f32)) {
        for (number, row) in screen[..used_rows(screen)].iter().enumerate() {
            let mut drawn = String::new();
            write_row(&mut drawn, 0, row);
            if drawn.is_empty() {
                continue;
            }
            let id = self.drawn.iter().position(|known| *known == drawn).unwrap_or_else(|| {
                self.drawn.push(drawn);
                self.drawn.len() - 1
            });
            let y = y + number as f32 * CELL.1;
            writeln!(groups, "<use href=\"#row-{id}\" x=\"{x:.1}\" y=\"{y:.1}\"/>").unwrap();
        }
    }

    fn definitions(&self) -> String {
        let mut text = String::new();
        for (id, row) in self.drawn.iter().enumerate() {
            writeln!(text, "<g id=\"row-{id}\">\n{row}</g>").unwrap();
        }
        text
    }
}

fn document(title: &str, (columns, rows): (usize, usize), style: &str, body: &str) -> String {
    let width = columns as f32 * CELL.0 + 2.0 * MARGIN;
    let height = rows as f32 * CELL.1 + 2.0 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n<style>\n{style}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1b2028\"/>\n{body}</svg>\n"
    )
}

fn used_rows(screen: &Screen) -> usize {
    let is_blank = |row: &[Cell]| row.iter().all(|cell| cell.char() == ' ');
    screen.iter().rposition(|row| !is_blank(row)).map_or(0, |last| last + 1)
}

fn write_row(svg: &mut String, number: usize, row: &[Cell]) {
    let mut column = 0;
    for run in row.chunk_by(|one, other| one.pen() == other.pen()) {
        let text: String = run.iter().map(Cell::char).collect();
        write_text(svg, (number, column), class(&run[0]), text.trim_end());
        column += run.len();
    }
}

/// Writes text at a row and column, with the width of a terminal for any font.
fn write_text(svg: &mut String, (row, column): (usize, usize), class: &str, text: &str) {
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

/// Compares a file of `docs` with a drawing, and first replaces the file if `UPDATE_PICTURE` is set.
#[track_caller]
pub(crate) fn assert_drawn(name: &str, drawn: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        std::fs::write(&file, drawn).unwrap();
    }
    let (stored, drawn) = (comparable(&text(&file)), comparable(drawn));
    let difference = stored.lines().zip(drawn.lines()).find(|(stored, drawn)| stored != drawn);
    assert!(
        stored == drawn,
        "UPDATE_PICTURE=1 draws docs/{name} anew. First line that differs, stored and drawn: {difference:#?}"
    );
}

/// Lines of a drawing without widths and columns, which depend on values that differ between runs. A reference to a row
/// is replaced by its text: which rows are equal differs too.
fn comparable(svg: &str) -> String {
    let mut rows: HashMap<&str, String> = HashMap::new();
    let mut open_row = None;
    let mut lines = String::new();
    for line in svg.lines() {
        if let Some(id) = attribute(line, "<g id") {
            open_row = Some(id);
        } else if line == "</g>" && open_row.is_some() {
            open_row = None;
        } else if let Some(id) = open_row {
            rows.entry(id).or_default().push_str(&comparable_text(line));
        } else if let Some(id) = attribute(line, "<use href") {
            let y = attribute(line, " y").unwrap_or_default();
            writeln!(lines, "{y}{}", rows.get(id.trim_start_matches('#')).map_or("", String::as_str))
                .unwrap();
        } else if line.starts_with("<text ") {
            writeln!(lines, "{}", comparable_text(line)).unwrap();
        } else {
            writeln!(lines, "{line}").unwrap();
        }
    }
    lines
}

/// Position from above, colour and text of a `<text>`.
fn comparable_text(line: &str) -> String {
    let content = line.split_once('>').map_or("", |(_, content)| content);
    let (before, after) = content.split_once("kill -9 ").unwrap_or((content, ""));
    let content = match after.trim_start_matches(|c: char| c.is_ascii_digit()) {
        rest if rest.len() < after.len() => format!("{before}kill -9 #{rest}"),
        _ => content.to_owned(),
    };
    let words: Vec<String> =
        time_and_id_placeholders(&content).split_whitespace().map(str::to_owned).collect();
    let (y, class) =
        (attribute(line, " y").unwrap_or_default(), attribute(line, " class").unwrap_or_default());
    format!(" {y} {class} {}", words.join(" "))
}

/// Value of the attribute with this beginning of `name="value"`.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once(&format!("{name}=\""))?;
    value.split_once('"').map(|(value, _)| value)
}
