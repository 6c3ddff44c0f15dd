//! Tables, which are collected before they are written.

/// Table whose cells are lines of Markdown.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    row: Vec<String>,
}

impl Table {
    pub(super) fn cell(&mut self, text: String) {
        self.row.push(text);
    }

    /// Takes the cells of the unfinished row.
    pub(super) fn take_row(&mut self) -> Vec<String> {
        std::mem::take(&mut self.row)
    }

    pub(super) fn end_row(&mut self) {
        let row = std::mem::take(&mut self.row);
        if row.iter().any(|cell| !cell.is_empty()) {
            self.rows.push(row);
        }
    }

    /// Renders the lines of the table. A table with a single column only arranges text, so it becomes text.
    pub(super) fn lines(&self) -> Vec<String> {
        let widest = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        if widest < 2 {
            // A cell cannot contain line ends, so breaks in it are written as `<br>`.
            return self.rows.iter().flatten().map(|cell| cell.replace("<br>", " ")).collect();
        }
        let line = |row: &Vec<String>| format!("| {} |", row.join(" | "));
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        for (at, row) in self.rows.iter().enumerate() {
            lines.push(line(row));
            if at == 0 {
                // Rows are not padded to the widest: one wide row would make all others as long.
                lines.push(format!("|{}", " --- |".repeat(row.len())));
            }
        }
        lines
    }
}
