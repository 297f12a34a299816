//! `jp c new`: makes a conversation.

use std::ffi::OsString;
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::json::{Object, pretty};
use jp_store::meta::Meta;
use jp_store::presence::Projection;
use jp_store::snapshot::Snapshot;
use jp_store::store::Store;
use jp_store::writer::Seed;
use serde::Serialize;
use serde_json::{Value, json};

use super::edit::{expiry, title};
use super::label::Label;
use crate::change::{can_be_local, change, session};
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Kind, Result};
use crate::target::one;

/// Make a conversation.
///
/// Prints its id, and nothing else, on stdout. It starts without events, with the configuration of its parent, or else
/// that of `.jp/config.toml`. It is shown in this worktree unless it is local or its parent is not shown here.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c new --title 'Flaky upload test'
  jp c new --parent . --local           beneath the active one, not shown in the worktree
  id=$(jp c new --tmp=1d --label wip)   gone a day later")]
pub(crate) struct Args {
    /// The title.
    #[arg(short, long, value_parser = title)]
    title: Option<String>,
    /// The conversation it goes beneath.
    #[arg(long, value_name = "ID")]
    parent: Option<OsString>,
    /// Do not show it in this worktree.
    #[arg(short, long)]
    local: bool,
    /// A label; may be repeated.
    #[arg(long = "label", value_name = "KEY[=VALUE]")]
    labels: Vec<Label>,
    /// Pin it.
    #[arg(long)]
    pin: bool,
    /// Let it expire: after this long, or without a value as soon as no terminal is on it. `jp gc` removes it then.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "now", value_parser = expiry)]
    tmp: Option<Duration>,
    /// Make it this terminal's active conversation.
    #[arg(short, long)]
    activate: bool,
}

/// No configuration is longer.
const LONGEST_CONFIG: u64 = 1 << 20;

#[derive(Serialize)]
struct Made {
    id: String,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let session = if args.activate { Some(session(ctx)?) } else { None };
    if args.local {
        can_be_local(&view.store)?;
    }
    let parent = args.parent.map(|word| one(ctx, &view, &word)).transpose()?;
    let now = view.store.now();
    let mut meta = Meta::new(now);
    meta.set_title(args.title.as_deref());
    meta.set_pinned_at(args.pin.then_some(now));
    if let Some(after) = args.tmp {
        meta.set_expires_at(Some(now.checked_add(after).unwrap_or(jp_store::time::Timestamp::MAX)));
    }
    for label in &args.labels {
        meta.set_label(&label.key, &label.value);
    }
    let seed = Seed {
        meta,
        events: pretty(&Vec::<Value>::new()),
        base_config: Some(base_config(&view.store, &view.snapshot, parent)?),
        parent,
        projection: if args.local { Projection::LocalOnly } else { Projection::Projected },
    };
    let id = change(ctx, &view.store, |change| {
        let guard = change.writer.create(seed)?;
        if let Some(session) = session {
            change.writer.activate(session, guard.id())?;
        }
        Ok(guard.id())
    })?;
    if !args.local {
        tell_hidden(ctx, &view.snapshot, parent);
    }
    if ctx.ui.json() {
        ctx.ui.object(&Made { id: id.to_string() })?;
    } else {
        ctx.ui.line(&id.to_string())?;
    }
    Ok(Exit::DONE)
}

/// Says so when a new conversation cannot be seen because of where it hangs.
pub(crate) fn tell_hidden(ctx: &Ctx<'_>, snapshot: &Snapshot, parent: Option<ConversationId>) {
    if let Some(parent) = parent.filter(|&parent| !snapshot.is_visible(parent)) {
        ctx.ui.note(&format!(
            "It is hidden with its parent, which is not shown in this worktree; `jp c edit {parent} --local=false` shows both."
        ));
    }
}

/// The parent's configuration; else the workspace's; else the least there must be.
fn base_config(store: &Store, snapshot: &Snapshot, parent: Option<ConversationId>) -> Result<Vec<u8>> {
    if let Some(parent) = parent
        && let Some(bytes) = store.stream(snapshot, snapshot.find(parent)?)?.base_config
    {
        return Ok(bytes);
    }
    let mut config = match json!({ "conversation": { "tools": { "*": { "run": "ask" } } } }) {
        Value::Object(config) => config,
        _ => Object::new(),
    };
    if let Some(configured) = workspace_config(store)? {
        merge(&mut config, configured);
    }
    Ok(pretty(&config))
}

fn workspace_config(store: &Store) -> Result<Option<Object>> {
    let path = store.layout().storage.join("config.toml");
    let bytes = match store.allowed().read_within(&path, LONGEST_CONFIG) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", &path, &error)),
    };
    let table: toml::Table = toml::from_slice(&bytes).map_err(|error| {
        Error::new(Kind::Damaged, format!("{} is not TOML", path.display()))
            .because(&error)
            .hint("a conversation keeps the configuration it starts with, so nothing was made")
    })?;
    Ok(Some(table.into_iter().map(|(key, value)| (key, to_json(value))).collect()))
}

fn to_json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => Value::from(number),
        toml::Value::Boolean(flag) => Value::from(flag),
        toml::Value::Datetime(date) => Value::from(date.to_string()),
        toml::Value::Array(values) => values.into_iter().map(to_json).collect(),
        toml::Value::Table(table) => table.into_iter().map(|(key, value)| (key, to_json(value))).collect(),
    }
}

/// Puts one object over another, key by key all the way down.
fn merge(under: &mut Object, over: Object) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Object(under)), Value::Object(over)) => merge(under, over),
            (Some(place), value) => *place = value,
            (None, value) => {
                under.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_merged_all_the_way_down() {
        let check = |text: &str, expected: Value| {
            let table: toml::Table = toml::from_str(text).unwrap();
            let mut under = json!({ "a": { "b": { "c": 1 } }, "x": 1 });
            let over = table.into_iter().map(|(key, value)| (key, to_json(value))).collect();
            merge(under.as_object_mut().unwrap(), over);
            assert_eq!(under, expected, "{text}");
        };
        check("", json!({ "a": { "b": { "c": 1 } }, "x": 1 }));
        check("a.b.d = 2.5", json!({ "a": { "b": { "c": 1, "d": 2.5 } }, "x": 1 }));
        check("a = [1, true]", json!({ "a": [1, true], "x": 1 }));
        check("x = 2025-01-01\ny.z = 'w'", json!({ "a": { "b": { "c": 1 } }, "x": "2025-01-01", "y": { "z": "w" } }));
    }
}
