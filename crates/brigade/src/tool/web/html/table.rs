//! Tables, gathered before they are written.

/// A table whose cells are lines of Markdown.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    row: Vec<String>,
}

impl Table {
    pub(super) fn cell(&mut self, text: String) {
        self.row.push(text);
    }

    /// Leaves the cells of the row that is not at its end.
    pub(super) fn take_row(&mut self) -> Vec<String> {
        std::mem::take(&mut self.row)
    }

    pub(super) fn end_row(&mut self) {
        let row = std::mem::take(&mut self.row);
        if row.iter().any(|cell| !cell.is_empty()) {
            self.rows.push(row);
        }
    }

    /// The lines of the table. One that has a single column arranges text and shows nothing, so it becomes text.
    pub(super) fn lines(&self) -> Vec<String> {
        let widest = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        if widest < 2 {
            // A cell has no lines of its own, so breaks are written out in it.
            return self.rows.iter().flatten().map(|cell| cell.replace("<br>", " ")).collect();
        }
        let line = |row: &Vec<String>| format!("| {} |", row.join(" | "));
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        for (at, row) in self.rows.iter().enumerate() {
            lines.push(line(row));
            if at == 0 {
                // Rows are not filled up to the widest: one wide row would make all others as long.
                lines.push(format!("|{}", " --- |".repeat(row.len())));
            }
        }
        lines
    }
}
