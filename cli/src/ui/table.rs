//! Rows and columns. At a terminal they are aligned by what a reader sees, under a header, and cut to the width; in a
//! pipe every row is one line of tab-separated fields, all of them there and none cut, for `cut -f` and `awk -F'\t'`.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// What stands between two columns at a terminal.
const GAP: &str = "  ";
/// The last column is not cut to less than this.
const LEAST: usize = 8;

/// A column's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) right: bool,
}

/// One field. Its text is clean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// Where a table is going.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// To a person.
    Terminal { width: Option<usize>, color: bool },
    /// To a program.
    Pipe,
}

/// Rows under columns. Only the last column is cut when the terminal is too narrow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Column {
    pub(crate) fn left(name: &'static str) -> Self {
        Self { name, right: false }
    }

    pub(crate) fn right(name: &'static str) -> Self {
        Self { name, right: true }
    }
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn render(&self, look: Look) -> String {
        match look {
            Look::Pipe => self.rows.iter().map(|row| piped(row)).collect(),
            Look::Terminal { .. } if self.is_empty() => String::new(),
            Look::Terminal { width, color } => self.aligned(width, color),
        }
    }

    fn aligned(&self, width: Option<usize>, color: bool) -> String {
        let head: Vec<Cell> =
            self.columns.iter().map(|column| Cell::styled(column.name, Style::new().bold())).collect();
        let rows = || std::iter::once(&head).chain(&self.rows);
        let mut widths = vec![0; self.columns.len()];
        for row in rows() {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(cell.text.width());
            }
        }
        if let (Some(width), Some((last, rest))) = (width, widths.split_last_mut()) {
            let used: usize = rest.iter().map(|width| width + GAP.len()).sum();
            *last = (*last).min(width.saturating_sub(used).max(LEAST));
        }
        let mut out = String::new();
        for row in rows() {
            let mut line = String::new();
            for (index, cell) in row.iter().enumerate().take(widths.len()) {
                let text = shorten(&cell.text, widths[index]);
                let pad = " ".repeat(widths[index].saturating_sub(text.width()));
                let (before, after) = if self.columns[index].right { (&*pad, "") } else { ("", &*pad) };
                let style = if color { cell.style } else { Style::new() };
                line.push_str(before);
                line.push_str(&format!("{style}{text}{style:#}"));
                if index + 1 < row.len() {
                    line.push_str(after);
                    line.push_str(GAP);
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn piped(row: &[Cell]) -> String {
    let fields: Vec<&str> = row.iter().map(|cell| &*cell.text).collect();
    format!("{}\n", fields.join("\t"))
}

/// Cuts a text to a width, with an ellipsis in place of what is cut.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut out = String::new();
    for char in text.chars() {
        let wide = char.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        out.push(char);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([Column::left("ID"), Column::right("#"), Column::left("Title")]);
        table.row(["a".into(), "1".into(), "short".into()]);
        table.row(["日本".into(), "100".into(), "日本語のとても長い題名".into()]);
        table.row(["c".into(), "".into(), "".into()]);
        table
    }

    #[test]
    fn terminal() {
        let look = Look::Terminal { width: Some(20), color: false };
        let expected = "\
ID      #  Title
a       1  short
日本  100  日本語の…
c
";
        assert_eq!(sample().render(look), expected);
        let wide = sample().render(Look::Terminal { width: None, color: false });
        assert!(wide.contains("日本語のとても長い題名"));
        assert_eq!(Table::new([Column::left("ID")]).render(look), "");
    }

    #[test]
    fn pipe() {
        assert_eq!(sample().render(Look::Pipe), "a\t1\tshort\n日本\t100\t日本語のとても長い題名\nc\t\t\n");
    }

    #[test]
    fn cutting() {
        for (text, width, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 5, "日本…"), ("日本語", 4, "日…"), ("abc", 0, "…")]
        {
            assert_eq!(shorten(text, width), expected);
        }
    }
}
