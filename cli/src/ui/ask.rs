//! Questions to the person at the terminal. Whoever asks has made sure that there is one.

use super::Ui;
use crate::error::{Error, Result};

impl Ui {
    /// Asks for a yes; anything else is a no.
    pub(crate) fn confirm(&self, question: &str) -> Result<bool> {
        self.flush()?;
        match inquire::Confirm::new(question).with_default(false).prompt_skippable() {
            Ok(answer) => Ok(answer.unwrap_or(false)),
            Err(inquire::InquireError::OperationInterrupted) => Err(Error::interrupted()),
            Err(error) => Err(Error::no("cannot ask at this terminal").because(&error)),
        }
    }
}
