//! A person edits copies of a conversation's files while its lock is held. Only what is sound comes back, and what is
//! not is kept.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jp_store::ConversationId;
use jp_store::beneath::trusted;
use jp_store::disk::Disk;
use jp_store::layout::managed;
use jp_store::meta::Meta;
use jp_store::modes::Access;
use jp_store::observe::{UnitBytes, check, glance};
use jp_store::reconcile::{ManagedFile, Root};
use jp_store::snapshot::Snapshot;
use tempfile::TempDir;

use crate::change::Change;
use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result};

/// A file's bytes before the editor had it; `None` where there is no such file.
type Before = (ManagedFile, Option<Vec<u8>>);

/// Opens an editor on these files, or on the directory when there are none named. Returns the names of those that are
/// different now.
pub(super) fn edit(
    ctx: &Ctx<'_>,
    change: &Change<'_>,
    id: ConversationId,
    wanted: &[ManagedFile],
) -> Result<Vec<&'static str>> {
    let guard = change.lock(id)?;
    let snapshot = change.writer.store().snapshot()?;
    let disk = change.writer.store().disk();
    let dir = tempfile::Builder::new()
        .prefix("jp-edit-")
        .permissions(std::fs::Permissions::from_mode(Access::Private.dir()))
        .tempdir_in(&ctx.env.temp_dir)
        .map_err(|error| Error::io("make a directory in", &ctx.env.temp_dir, &error))?;
    let mut before: Vec<Before> = Vec::new();
    for &file in if wanted.is_empty() { &ManagedFile::ALL } else { wanted } {
        let bytes = current(disk, &snapshot, id, file)?;
        if bytes.is_none() && file == ManagedFile::BaseConfig && !wanted.is_empty() {
            return Err(Error::no(format!("{id} has no base_config.json"))
                .hint("its first event holds the configuration; `jp c edit --events` edits that"));
        }
        let path = managed(dir.path(), file);
        if bytes.is_some() || !wanted.is_empty() {
            trusted::write_private(&path, bytes.as_deref().unwrap_or_default())
                .map_err(|error| Error::io("write", &path, &error))?;
        }
        before.push((file, bytes));
    }
    let paths: Vec<PathBuf> = match wanted {
        [] => vec![dir.path().to_owned()],
        files => files.iter().map(|&file| managed(dir.path(), file)).collect(),
    };
    loop {
        if let Err(error) = open(ctx, &paths) {
            return Err(keep_if_changed(dir, &before, error));
        }
        let unsound = match changed(dir.path(), &before)? {
            news if news.is_empty() => return Ok(Vec::new()),
            news => match news.iter().find_map(|(file, bytes)| Some((*file, check(*file, bytes).err()?))) {
                Some((file, reason)) => {
                    let path = managed(dir.path(), file);
                    let place = match reason.line {
                        0 => path.display().to_string(),
                        line => format!("{}:{line}:{}", path.display(), reason.column),
                    };
                    Error::new(Kind::Damaged, format!("{place}: {}", reason.reason))
                }
                None => {
                    let written = news.iter().try_for_each(|(file, bytes)| change.writer.replace(&guard, *file, bytes));
                    match written {
                        Ok(()) => return Ok(news.iter().map(|(file, _)| file.name()).collect()),
                        Err(error @ jp_store::Error::Unprojected { .. }) => return Err(error.into()),
                        Err(error) => error.into(),
                    }
                }
            },
        };
        match again(ctx, &unsound) {
            Ok(true) => {}
            Ok(false) => return Ok(Vec::new()),
            Err(error) => return Err(kept(dir, &before, error.unwrap_or(unsound), id)),
        }
    }
}

/// Whether to open the editor again; `false` throws the text away. `Err` when there is nobody to ask or they left.
fn again(ctx: &Ctx<'_>, unsound: &Error) -> Result<bool, Option<Error>> {
    if !ctx.ui.interactive() {
        return Err(None);
    }
    ctx.ui.fail(unsound);
    let rows = vec!["Open the editor again".to_owned(), "Throw the text away".to_owned()];
    match ctx.ui.pick("This cannot be saved. What now?", rows, "") {
        Ok(Some(0)) => Ok(true),
        Ok(Some(_)) => Ok(false),
        Ok(None) => Err(Some(Error::no("the text is not saved"))),
        Err(error) => Err(Some(error)),
    }
}

/// The bytes that count at the moment, whether or not they are sound: somebody may be about to mend them.
fn current(disk: &dyn Disk, snapshot: &Snapshot, id: ConversationId, file: ManagedFile) -> Result<Option<Vec<u8>>> {
    let found = snapshot.find(id)?;
    let dirs = found.dirs();
    let base = snapshot.ledger.get(id).and_then(|entry| entry.base.as_ref());
    let first = glance(disk, file.unit(), dirs, base, found.rule)?;
    for root in [first, first.other()] {
        let dir = match root {
            Root::Store => dirs.store,
            Root::Work => dirs.work,
        };
        let Some(dir) = dir else { continue };
        let Some(unit) = UnitBytes::read(disk, dir, file.unit())? else {
            continue;
        };
        let bytes = unit.into_file(file);
        return Ok(match file {
            ManagedFile::Metadata => bytes.map(|bytes| healed(snapshot, id, bytes)),
            ManagedFile::Events | ManagedFile::BaseConfig => bytes,
        });
    }
    Ok(None)
}

/// Metadata with what another program dropped. Shown without it, a saved text would read as if the link to the parent
/// had been taken out on purpose.
fn healed(snapshot: &Snapshot, id: ConversationId, bytes: Vec<u8>) -> Vec<u8> {
    let Ok(meta) = Meta::parse(&bytes) else { return bytes };
    let mut whole = meta.clone();
    snapshot.mirror.heal(id, &mut whole);
    if whole == meta { bytes } else { whole.to_bytes() }
}

/// The files that are different from before. One that is gone is not: an editor that removes a file has not said what to
/// write.
fn changed(dir: &Path, before: &[Before]) -> Result<Vec<(ManagedFile, Vec<u8>)>> {
    let mut news = Vec::new();
    for (file, old) in before {
        let path = managed(dir, *file);
        match trusted::read(&path) {
            Ok(bytes) if Some(&bytes) == old.as_ref() || (old.is_none() && bytes.is_empty()) => {}
            Ok(bytes) => news.push((*file, bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", &path, &error)),
        }
    }
    Ok(news)
}

fn open(ctx: &Ctx<'_>, paths: &[PathBuf]) -> Result<()> {
    let editor = ctx.env.editor.clone().unwrap_or_else(|| OsString::from("vi"));
    // The shell takes the command line apart, so that an editor can have arguments, quoted ones too.
    let mut script = editor.clone();
    script.push(" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg("sh").args(paths);
    if !ctx.env.terminals.stdout {
        // What an editor has to say is not data.
        command.stdout(Stdio::from(io::stderr()));
    }
    let ended = command.status().map_err(|error| Error::no("cannot start `sh` for the editor").because(&error))?;
    // Ctrl-C in the editor is the editor's.
    ctx.signals.forget();
    if ended.success() {
        return Ok(());
    }
    Err(Error::no(format!("the editor failed ({ended}): {}", editor.to_string_lossy()))
        .hint("JP_EDITOR, VISUAL or EDITOR says which one to use"))
}

fn keep_if_changed(dir: TempDir, before: &[Before], error: Error) -> Error {
    match changed(dir.path(), before) {
        Ok(news) if news.is_empty() => error,
        _ => {
            let path = dir.keep();
            error.hint(format!("what was written is kept in {}", path.display()))
        }
    }
}

/// Keeps the text, and says where and how it gets back.
fn kept(dir: TempDir, before: &[Before], error: Error, id: ConversationId) -> Error {
    let path = dir.keep();
    let error = error.hint(format!("nothing was saved; the text is kept in {}", path.display()));
    let Some((file, _)) = changed(&path, before).ok().and_then(|news| news.into_iter().next()) else {
        return error;
    };
    let flag = match file {
        ManagedFile::Metadata => "--metadata",
        ManagedFile::Events => "--events",
        ManagedFile::BaseConfig => "--base-config",
    };
    error.hint(format!("to try again: `JP_EDITOR='cp {}' jp c edit {id} {flag}`", managed(&path, file).display()))
}
