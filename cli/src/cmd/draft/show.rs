//! `jp draft show`: the bytes of a draft.

use std::path::{Component, Path};

use jp_store::beneath::LARGEST;
use jp_store::layout::managed;
use jp_store::observe::read_file;
use serde::Serialize;

use super::{Named, diff};
use crate::ctx::{Ctx, View};
use crate::drafts::{Record, chosen, files_of};
use crate::error::{Error, Exit, Result};
use crate::mounts::StateDir;

/// Print the bytes of a draft.
///
/// In a pipe they are what was saved, byte for byte; at a terminal control characters are shown, not obeyed. If the
/// conversation has several drafts, name the file. `--diff` prints what differs from the store's file instead. Changes
/// nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp draft show last
  jp draft show 17528832001 events.json > events.json
  jp draft show 17528832001 metadata.json --diff")]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// Print what differs from the store's file, as a unified diff.
    #[arg(long)]
    diff: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    record: &'a Record,
    /// The bytes as text; what is not UTF-8 is replaced.
    text: String,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let file = args.named.file.as_deref();
    let records = chosen(ctx, &view, &args.named.id, file)?;
    let [record] = &records[..] else {
        let names = records.iter().map(|record| record.file.as_deref().unwrap_or("a new conversation"));
        let names = names.collect::<Vec<_>>().join(", ");
        return Err(Error::usage(format!("{} has several drafts: {names}", records[0].id))
            .hint(format!("name one: `jp draft show {}`", records[0].name())));
    };
    let bytes = read(&view, record, file)?;
    if args.diff {
        let (old, path) = stored(&view, record)?;
        let text = diff::unified(&path, &old, &record.path, &bytes);
        ctx.ui.contents(text.as_bytes())?;
        return Ok(Exit::DONE);
    }
    if ctx.ui.json() {
        ctx.ui.object(&Shown { record, text: String::from_utf8_lossy(&bytes).into_owned() })?;
    } else {
        ctx.ui.contents(&bytes)?;
    }
    Ok(Exit::DONE)
}

fn read(view: &View, record: &Record, file: Option<&str>) -> Result<Vec<u8>> {
    let files = files_of(&StateDir::of(view.store.layout()));
    if let Some(managed) = record.managed {
        let bytes = files.bytes(record.of, managed)?;
        return bytes.ok_or_else(|| Error::no(format!("there is no draft of {} any more", record.name())));
    }
    let name = match (file, &record.files[..]) {
        (Some(file), _) => file,
        (None, [only]) => only,
        (None, []) => return Err(Error::no(format!("{} is new and has no files yet", record.id))),
        (None, all) => {
            return Err(Error::usage(format!(
                "{} is a new conversation with several files: {}",
                record.id,
                all.join(", ")
            ))
            .hint(format!("name one: `jp draft show {} {}`", record.id, all[0])));
        }
    };
    let inner = Path::new(name);
    if !inner.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(Error::usage(format!("not a file of {}: {name}", record.id)));
    }
    let path = files.arrival_dir(record.of).join(inner);
    files.files.read_within(&path, LARGEST).map_err(|error| Error::io("read", &path, &error))
}

/// The store's file and its path; empty if there is none.
fn stored(view: &View, record: &Record) -> Result<(Vec<u8>, String)> {
    let dir = view.snapshot.get(record.of).and_then(|found| found.dirs().store);
    let (Some(dir), Some(file)) = (dir, record.managed) else { return Ok((Vec::new(), "/dev/null".to_owned())) };
    let path = managed(dir, file);
    let bytes = read_file(view.store.disk(), &path)?.map(|contents| contents.bytes);
    Ok(bytes.map_or((Vec::new(), "/dev/null".to_owned()), |bytes| (bytes, path.display().to_string())))
}
