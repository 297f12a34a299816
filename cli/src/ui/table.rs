//! Rows and columns. At a terminal they are aligned by what a reader sees, under a header, and cut to the width; in a
//! pipe every row is one line of tab-separated fields, all of them there and none cut, for `cut -f` and `awk -F'\t'`.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How far columns are apart at a terminal, if they fit.
const GAP: usize = 2;
/// Columns move together before one of them is cut to less than this.
const ROOM: usize = 9;
/// No column is cut to less than this.
const LEAST: usize = 4;

/// A column's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    name: &'static str,
    right: bool,
    /// Whether it is cut when the terminal is too narrow.
    soft: bool,
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

/// Rows under columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Column {
    pub(crate) fn left(name: &'static str) -> Self {
        Self { name, right: false, soft: false }
    }

    pub(crate) fn right(name: &'static str) -> Self {
        Self { right: true, ..Self::left(name) }
    }

    /// One with text of any length.
    pub(crate) fn soft(name: &'static str) -> Self {
        Self { soft: true, ..Self::left(name) }
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
        let head = self.columns.iter().map(|column| Cell::styled(column.name, Style::new().bold()));
        let head: Vec<Cell> = head.collect();
        // A column without a single entry tells a person nothing.
        let filled = |index: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(*index));
            cells.any(|cell| !cell.text.is_empty())
        };
        let shown: Vec<usize> = (0..self.columns.len()).filter(filled).collect();
        let rows = || std::iter::once(&head).chain(&self.rows);
        let widest = |&index: &usize| {
            let cells = rows().filter_map(|row| row.get(index));
            cells.map(|cell| cell.text.width()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = shown.iter().map(widest).collect();
        let gap = self.fit(&shown, &mut widths, width);
        let mut out = String::new();
        for row in rows() {
            let mut line = String::new();
            for (&index, &width) in shown.iter().zip(&widths) {
                let Some(cell) = row.get(index) else { continue };
                let text = shorten(&cell.text, width);
                let pad = " ".repeat(width.saturating_sub(text.width()));
                let style = if color { cell.style } else { Style::new() };
                let text = if text.is_empty() { text } else { format!("{style}{text}{style:#}") };
                line.push_str(&match self.columns[index].right {
                    true => format!("{pad}{text}"),
                    false => format!("{text}{pad}"),
                });
                line.push_str(&" ".repeat(gap));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// Moves the columns together, then narrows the widest of the soft ones, until all fit; gives the gap between them.
    fn fit(&self, shown: &[usize], widths: &mut [usize], width: Option<usize>) -> usize {
        let Some(width) = width else { return GAP };
        let gaps = shown.len().saturating_sub(1);
        let hard = |index: usize, width: usize| if self.columns[index].soft { width.min(ROOM) } else { width };
        let least: usize = shown.iter().zip(&*widths).map(|(&index, &width)| hard(index, width)).sum();
        let gap = if least + gaps * GAP <= width { GAP } else { 1 };
        while widths.iter().sum::<usize>() + gaps * gap > width {
            let soft = shown.iter().zip(widths.iter_mut());
            let soft = soft.filter(|(index, width)| self.columns[**index].soft && **width > LEAST);
            match soft.map(|(_, width)| width).max() {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        gap
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
        let mut table = Table::new([Column::left("ID"), Column::right("#"), Column::soft("Title")]);
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
        // Even a terminal that is much too narrow leaves something of every column.
        let narrow = sample().render(Look::Terminal { width: Some(5), color: false });
        assert!(narrow.contains("日本 100 日…"), "{narrow}");
    }

    #[test]
    fn empty_columns_are_for_programs() {
        let mut table = Table::new(["ID", "Origin", "Title"].map(Column::left));
        table.row(["a".into(), "".into(), "b".into()]);
        assert_eq!(table.render(Look::Terminal { width: None, color: false }), "ID  Title\na   b\n");
        assert_eq!(table.render(Look::Pipe), "a\t\tb\n");
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
