//! A table whose last column takes what room is left.

use unicode_width::UnicodeWidthStr;

use crate::render::{fit, pad};

/// The room that the last column should have before others are left out for it.
const ENOUGH: usize = 24;
const GAP: usize = 2;

/// A column.
pub(super) struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// Columns that the widest of them takes.
    width: usize,
    side: Side,
    /// Columns with a rank are left out where there is little room, the lowest first.
    rank: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Column {
    /// A column of texts.
    pub(super) fn text(head: &'static str, cells: Vec<String>) -> Column {
        Column::new(head, cells, Side::Left)
    }

    /// A column of numbers.
    pub(super) fn number(head: &'static str, cells: Vec<String>) -> Column {
        Column::new(head, cells, Side::Right)
    }

    fn new(head: &'static str, cells: Vec<String>, side: Side) -> Column {
        let width = cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(head.width());
        Column { head, cells, width, side, rank: None }
    }

    /// The same column, left out where there is little room.
    pub(super) fn left_out(self, rank: u8) -> Column {
        Column { rank: Some(rank), ..self }
    }

    fn cell(&self, text: &str) -> String {
        match self.side {
            Side::Left => pad(text, self.width),
            Side::Right => format!("{}{text}", " ".repeat(self.width.saturating_sub(text.width()))),
        }
    }
}

/// Lays the columns out in so much room, a line for each row and one more for what is said of it.
pub(super) fn table(columns: &[Column], remarks: &[Option<String>], room: usize) -> String {
    let Some((last, others)) = columns.split_last() else { return String::new() };
    let mut shown: Vec<&Column> = others.iter().collect();
    let used = |shown: &[&Column]| shown.iter().map(|column| column.width + GAP).sum::<usize>();
    let enough = last.width.min(ENOUGH);
    while used(&shown).saturating_add(enough) > room {
        let least = shown.iter().filter_map(|column| column.rank).min();
        let Some(least) = least else { break };
        shown.retain(|column| column.rank != Some(least));
    }
    let left = room.saturating_sub(used(&shown));
    let line = |cells: Vec<String>, end: &str| {
        let text = cells.into_iter().chain([fit(end, left)]).collect::<Vec<_>>().join(&" ".repeat(GAP));
        format!("{}\n", fit(text.trim_end(), room))
    };
    let mut text = line(shown.iter().map(|column| column.cell(column.head)).collect(), last.head);
    for (row, end) in last.cells.iter().enumerate() {
        let cell = |column: &&Column| column.cell(column.cells.get(row).map_or("", String::as_str));
        text.push_str(&line(shown.iter().map(cell).collect(), end));
        if let Some(Some(remark)) = remarks.get(row) {
            text.push_str(&format!("{}\n", fit(&format!("    {remark}"), room)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> [Column; 4] {
        let cells = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
        [
            Column::text("id", cells(["abcdefgh", "ijklmnop"])),
            Column::text("state", cells(["done", "interrupted"])),
            Column::number("cost", cells(["$0.0001", "$12.0000"])).left_out(1),
            Column::text(
                "task",
                cells(["Find out why the tests fail on Tuesdays", "日本語のタスクを翻訳する"]),
            ),
        ]
    }

    #[test]
    fn a_table_takes_the_room_there_is() {
        let found = [None, Some("here it is, in many words that do not all fit".to_owned())];
        for room in [10, 20, 40, 60, 80, 200] {
            let text = table(&columns(), &found, room);
            assert!(text.lines().all(|line| line.width() <= room), "{room}: {text}");
        }
        insta::assert_snapshot!(table(&columns(), &found, 40), @r"
        id        state        task
        abcdefgh  done         Find out why the…
        ijklmnop  interrupted  日本語のタスクを…
            here it is, in many words that do n…
        ");
        insta::assert_snapshot!(table(&columns(), &[], usize::MAX), @r"
        id        state            cost  task
        abcdefgh  done          $0.0001  Find out why the tests fail on Tuesdays
        ijklmnop  interrupted  $12.0000  日本語のタスクを翻訳する
        ");
    }
}
