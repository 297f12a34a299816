//! `jp c label`: names and values that people give to conversations.

mod add;
mod ls;
mod rm;

use std::ffi::OsString;
use std::str::FromStr;

use jp_store::ConversationId;
use jp_store::meta::{Meta, valid_label_key};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::change::change;
use crate::ctx::{Ctx, View};
use crate::error::{Exit, Result};
use crate::target::Targets;
use crate::ui::clean;

/// Work with the labels of conversations.
///
/// A label is a key, perhaps with a value: `wip`, `branch=main`. Without `--id` the active conversation is meant.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    /// The conversation; may be repeated. Ids, directories, or words such as `last`.
    #[arg(short, long = "id", value_name = "ID", global = true)]
    ids: Vec<OsString>,
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, clap::Subcommand)]
enum Commands {
    #[command(visible_alias = "a")]
    Add(add::Args),
    #[command(visible_alias = "r")]
    Rm(rm::Args),
    Ls(ls::Args),
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let targets = Targets { words: args.ids };
    match args.command {
        Commands::Add(args) => add::run(ctx, &targets, &args),
        Commands::Rm(args) => rm::run(ctx, &targets, &args),
        Commands::Ls(args) => ls::run(ctx, &targets, &args),
    }
}

/// One label, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        if !valid_label_key(key) {
            return Err("a label's key is a letter, then letters, digits, `_` and `-`".to_owned());
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

/// A conversation's labels, for machines.
#[derive(Serialize)]
struct Labels {
    id: String,
    labels: Map<String, Value>,
}

impl Labels {
    fn of(id: ConversationId, meta: Option<&Meta>) -> Self {
        let labels = meta.into_iter().flat_map(Meta::labels);
        Self { id: id.to_string(), labels: labels.map(|(key, value)| (key.to_owned(), Value::from(value))).collect() }
    }

    /// `key`, or `key=value`, one each.
    fn lines(&self) -> Vec<String> {
        let line = |(key, value): (&String, &Value)| match value.as_str() {
            None | Some("") => clean(key).into_owned(),
            Some(value) => format!("{}={}", clean(key), clean(value)),
        };
        self.labels.iter().map(line).collect()
    }
}

/// Changes the labels of each conversation; says what they are then.
fn edit(ctx: &Ctx<'_>, view: &View, ids: &[ConversationId], how: impl Fn(&mut Meta)) -> Result<Exit> {
    let (changed, exit) = change(ctx, &view.store, |change| {
        change.each(ids, |id| {
            let guard = change.lock(id)?;
            let mut labels = Labels::of(id, None);
            change.writer.edit(&guard, |meta| {
                how(meta);
                labels = Labels::of(id, Some(meta));
            })?;
            let listed = match labels.lines().join(", ") {
                none if none.is_empty() => "no labels".to_owned(),
                some => some,
            };
            ctx.ui.note(&format!("{id}: {listed}"));
            Ok(labels)
        })
    })?;
    if ctx.ui.json() {
        ctx.ui.object(&changed)?;
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_as_typed() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let found = text.parse::<Label>().ok();
            let found = found.as_ref().map(|label| (label.key.as_str(), label.value.as_str()));
            assert_eq!(found, expected, "{text}");
        };
        check("wip", Some(("wip", "")));
        check("branch=fix/a=b", Some(("branch", "fix/a=b")));
        check("a-1_b=", Some(("a-1_b", "")));
        check("", None);
        check("=x", None);
        check("1a", None);
        check(":rule", None);
    }
}
