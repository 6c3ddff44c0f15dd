//! Table whose last column takes the remaining width.

use unicode_width::UnicodeWidthStr;

use crate::render::{fit, pad};

/// Minimum width of the last column. Other columns are dropped if it is not available.
const MIN_LAST_COLUMN_WIDTH: usize = 24;
const GAP: usize = 2;

/// One column.
pub(super) struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// Width of the widest cell.
    width: usize,
    align: Align,
    /// Columns with a rank are dropped if space is limited, the lowest rank first.
    rank: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

impl Column {
    /// Column of left-aligned text.
    pub(super) fn text(head: &'static str, cells: Vec<String>) -> Column {
        Column::new(head, cells, Align::Left)
    }

    /// Column of right-aligned numbers.
    pub(super) fn number(head: &'static str, cells: Vec<String>) -> Column {
        Column::new(head, cells, Align::Right)
    }

    fn new(head: &'static str, cells: Vec<String>, align: Align) -> Column {
        let width = cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(head.width());
        Column { head, cells, width, align, rank: None }
    }

    /// Makes the column droppable.
    pub(super) fn droppable(self, rank: u8) -> Column {
        Column { rank: Some(rank), ..self }
    }

    fn cell(&self, text: &str) -> String {
        match self.align {
            Align::Left => pad(text, self.width),
            Align::Right => format!("{}{text}", " ".repeat(self.width.saturating_sub(text.width()))),
        }
    }
}

/// Lays out the columns within a width: one line per row, and one more for its remark.
pub(super) fn table(columns: &[Column], remarks: &[Option<String>], max_columns: usize) -> String {
    let Some((last, others)) = columns.split_last() else { return String::new() };
    let mut shown: Vec<&Column> = others.iter().collect();
    let used = |shown: &[&Column]| shown.iter().map(|column| column.width + GAP).sum::<usize>();
    let enough = last.width.min(MIN_LAST_COLUMN_WIDTH);
    while used(&shown).saturating_add(enough) > max_columns {
        let least = shown.iter().filter_map(|column| column.rank).min();
        let Some(least) = least else { break };
        shown.retain(|column| column.rank != Some(least));
    }
    let left = max_columns.saturating_sub(used(&shown));
    let line = |cells: Vec<String>, end: &str| {
        let text = cells.into_iter().chain([fit(end, left)]).collect::<Vec<_>>().join(&" ".repeat(GAP));
        format!("{}\n", fit(text.trim_end(), max_columns))
    };
    let mut text = line(shown.iter().map(|column| column.cell(column.head)).collect(), last.head);
    for (row, end) in last.cells.iter().enumerate() {
        let cell = |column: &&Column| column.cell(column.cells.get(row).map_or("", String::as_str));
        text.push_str(&line(shown.iter().map(cell).collect(), end));
        if let Some(Some(remark)) = remarks.get(row) {
            text.push_str(&format!("{}\n", fit(&format!("    {remark}"), max_columns)));
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
            Column::number("cost", cells(["$0.0001", "$12.0000"])).droppable(1),
            Column::text(
                "task",
                cells(["Find out why the tests fail on Tuesdays", "日本語のタスクを翻訳する"]),
            ),
        ]
    }

    #[test]
    fn table_fits_the_available_columns() {
        let found = [None, Some("here it is, in many words that do not all fit".to_owned())];
        for max_columns in [10, 20, 40, 60, 80, 200] {
            let text = table(&columns(), &found, max_columns);
            assert!(text.lines().all(|line| line.width() <= max_columns), "{max_columns}: {text}");
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
