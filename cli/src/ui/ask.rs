//! Questions to the person at the terminal. Whoever asks has made sure that there is one.

use std::fmt;

use inquire::list_option::ListOption;

use super::Ui;
use super::table::shorten;
use crate::error::{Error, Result};

/// What stands before a row in a list.
const MARK: usize = 2;
/// How many rows are shown at once; the smallest usual terminal has 24 lines.
const PAGE: usize = 15;

impl Ui {
    /// Lets the user choose one row; `None` when they leave. Typing narrows the list to the rows with all words in them.
    pub(crate) fn pick(&self, question: &str, rows: Vec<String>, filter: &str) -> Result<Option<usize>> {
        self.flush()?;
        let width = self.width().unwrap_or(80);
        let rows = rows.into_iter().map(|text| Row { shown: shorten(&text, width.saturating_sub(MARK)), text });
        let answer = inquire::Select::new(question, rows.collect())
            .with_scorer(&|typed, row: &Row, _, _| row.has(typed).then_some(0))
            .with_formatter(&|answer: ListOption<&Row>| {
                shorten(&answer.value.text, width.saturating_sub(question.len() + 4))
            })
            .with_page_size(PAGE)
            .with_starting_filter_input(filter)
            .raw_prompt_skippable();
        match answer {
            Ok(answer) => Ok(answer.map(|answer| answer.index)),
            Err(error) => Err(unasked(&error)),
        }
    }

    /// Asks for a yes; anything else is a no.
    pub(crate) fn confirm(&self, question: &str) -> Result<bool> {
        self.flush()?;
        match inquire::Confirm::new(question).with_default(false).prompt_skippable() {
            Ok(answer) => Ok(answer.unwrap_or(false)),
            Err(error) => Err(unasked(&error)),
        }
    }
}

/// A row of a list: its whole text, and as much of it as a line holds.
struct Row {
    text: String,
    shown: String,
}

impl Row {
    fn has(&self, words: &str) -> bool {
        let text = self.text.to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn unasked(error: &inquire::InquireError) -> Error {
    match error {
        inquire::InquireError::OperationInterrupted => Error::interrupted(),
        other => Error::no("cannot ask at this terminal").because(other),
    }
}
