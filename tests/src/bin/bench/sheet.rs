//! A table of figures with the limits that the project has set itself, as plain information.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// What a figure counts, which decides how it is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Ratio,
    Millis,
    Megabytes,
    Bytes,
    Count,
}

/// A column: what is above it, and what its figures are called in the JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    pub(crate) key: &'static str,
    pub(crate) unit: Unit,
}

/// Which figures are good enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    None,
    AtMost(f64),
    AtLeast(f64),
}

/// A figure, not a number where it could not be had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    value: f64,
    limit: Limit,
}

/// Rows of figures beneath one title.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    columns: Vec<Column>,
    rows: Vec<(String, Vec<Figure>)>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self { value, limit: Limit::None }
    }
}

impl Figure {
    /// A figure that should be this or less.
    pub(crate) fn at_most(value: f64, limit: f64) -> Self {
        Self { value, limit: Limit::AtMost(limit) }
    }

    /// A figure that should be this or more.
    pub(crate) fn at_least(value: f64, limit: f64) -> Self {
        Self { value, limit: Limit::AtLeast(limit) }
    }

    fn shown(self, unit: Unit, was: Option<f64>) -> String {
        let mut text = match (self.value, unit) {
            (value, _) if value.is_nan() => return "–".to_owned(),
            (value, Unit::Bytes | Unit::Count) => format!("{value:.0}"),
            (value, Unit::Megabytes) => format!("{value:.1}"),
            (value, Unit::Millis) if value >= 100.0 => format!("{value:.0}"),
            (value, Unit::Millis) if value >= 10.0 => format!("{value:.1}"),
            (value, Unit::Millis) if value < 0.1 => format!("{value:.4}"),
            (value, Unit::Millis | Unit::Ratio) => format!("{value:.2}"),
        };
        // Machines differ; only the ratios of two runs can be compared.
        if let (Some(was), Unit::Ratio) = (was, unit) {
            let _ = write!(text, " was {was:.2}");
        }
        match self.limit {
            Limit::None => {}
            Limit::AtMost(limit) => text.push_str(&format!(" (≤{limit})")),
            Limit::AtLeast(limit) => text.push_str(&format!(" (≥{limit})")),
        }
        text
    }
}

impl Sheet {
    pub(crate) fn new(title: impl Into<String>, columns: &[Column]) -> Self {
        Self { title: title.into(), columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a figure for each column.
    pub(crate) fn row(&mut self, name: impl Into<String>, figures: Vec<Figure>) {
        self.rows.push((name.into(), figures));
    }

    /// Each row for machines, by its name.
    pub(crate) fn rows(&self) -> Map<String, Value> {
        let figures = |figures: &[Figure]| {
            let keys = self.columns.iter().zip(figures);
            keys.map(|(column, figure)| (column.key.to_owned(), json!(figure.value))).collect::<Map<_, _>>()
        };
        self.rows.iter().map(|(name, row)| (name.clone(), figures(row).into())).collect()
    }

    /// All of it for people, ratios beside the earlier ones where there are any.
    pub(crate) fn table(&self, earlier: Option<&Value>) -> String {
        let mut lines = vec![self.heads()];
        for (name, figures) in &self.rows {
            let was = |key: &str| earlier.and_then(|earlier| earlier["results"][name][key].as_f64());
            let cells = self.columns.iter().zip(figures);
            let cells = cells.map(|(column, figure)| figure.shown(column.unit, was(column.key)));
            lines.push(std::iter::once(name.clone()).chain(cells).collect());
        }
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..=self.columns.len()).map(width).collect();
        let mut text = String::from("\n");
        for line in &lines {
            for (at, cell) in line.iter().enumerate() {
                let width = widths[at];
                let _ = if at == 0 { write!(text, "{cell:<width$}") } else { write!(text, "   {cell:>width$}") };
            }
            text.push('\n');
        }
        text.push('\n');
        text
    }

    fn heads(&self) -> Vec<String> {
        std::iter::once(self.title.clone()).chain(self.columns.iter().map(|column| column.head.to_owned())).collect()
    }
}
