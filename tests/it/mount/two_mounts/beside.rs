//! What happens beside the mounts: commands in any worktree, edits of the store, locks, mounts that end and begin.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

use jp_tests::{LIMIT, Running, contents, until, wait_for};

use super::Class;
use super::files::{append_line, replace};
use super::model::{Conversation, EVENTS, METADATA};
use super::walk::Walk;
use super::world::{Touched, told};

/// How long a waiting draft may wait once the lock is free.
const COMMITTED_WITHIN: Duration = Duration::from_secs(20);
/// So many conversations are left.
const FEWEST: usize = 8;

/// Holds a conversation as the real `jp` does, and saves from a second thread meanwhile.
const SECOND_THREAD: &str = r#"
import fcntl, json, os, sys, threading
lock, path, text = sys.argv[1:4]
os.makedirs(os.path.dirname(lock), exist_ok=True)
held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(held, fcntl.LOCK_EX)
os.write(held, json.dumps({"pid": os.getpid(), "acquired_at": "2026-01-01T00:00:00+00:00"}).encode())
failed = []
def save():
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as err:
        failed.append(err)
thread = threading.Thread(target=save)
thread.start()
thread.join()
os.unlink(lock)
sys.exit(str(failed[0]) if failed else 0)
"#;

impl Walk {
    fn any_worktree(&mut self) -> usize {
        self.below(3)
    }

    #[track_caller]
    fn command(&mut self, w: usize, args: &[&str]) -> String {
        self.say(format!("worktree {w}: jp {}", args.join(" ")));
        let output = self.world.jp(w, args).ok();
        output.stdout
    }

    pub(super) fn command_new(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        if !self.has_room() {
            return None;
        }
        let parent = if self.chance(2) { None } else { self.conversation(|model, id| model.is_visible(w, id)) };
        if parent.is_some_and(|parent| self.model.get(parent).archived) {
            return None;
        }
        let title = self.title();
        let mut args = vec!["c", "new", "--title", &title];
        let name = parent.map(|parent| format!("jp-c{parent}"));
        if let Some(name) = &name {
            args.extend(["--parent", name]);
        }
        let printed = self.command(w, &args);
        let id: u64 = printed.trim().trim_start_matches("jp-c").parse().expect("an id is printed");
        self.model.all.insert(id, Conversation { title, parent, ..Conversation::default() });
        for (name, bytes) in contents(&self.world.stored(id)) {
            let name = name.to_string_lossy();
            if name != METADATA {
                self.model.store(id, &name, bytes);
            }
        }
        self.model.views[w].projected.insert(id);
        Some(Touched::conversations(Some(w), [id]))
    }

    pub(super) fn command_title(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        let id = self.conversation(|model, id| !model.get(id).archived)?;
        let title = self.title();
        self.command(w, &["c", "edit", &format!("jp-c{id}"), "--title", &title]);
        self.model.rewrite(id, |it| it.title = title);
        Some(Touched::conversations(Some(w), [id]))
    }

    pub(super) fn command_move(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        let id = self.conversation(|model, id| model.is_visible(w, id) && !model.get(id).archived)?;
        let to = if self.chance(3) { None } else { Some(self.another(w, id, false)?) };
        if !self.may_change(|model| model.get_mut(id).parent = to) {
            return None;
        }
        let (name, parent) = (format!("jp-c{id}"), to.map(|to| format!("jp-c{to}")));
        match &parent {
            Some(parent) => self.command(w, &["c", "mv", &name, "--parent", parent]),
            None => self.command(w, &["c", "mv", &name, "--root"]),
        };
        self.model.rewrite(id, |it| it.parent = to);
        Some(Touched::conversations(Some(w), [id]))
    }

    pub(super) fn command_hide(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        let shown = self.model.all.keys().filter(|id| self.model.is_visible(w, **id)).count();
        let id = self.conversation(|model, id| model.is_visible(w, id) && !model.get(id).archived)?;
        let subtree = self.model.subtree(id);
        if subtree.len() + 4 > shown || subtree.iter().any(|id| self.model.has_draft(w, *id)) {
            return None;
        }
        if subtree.len() > 1 && !self.on.contains(&Class::BeneathHidden) {
            return None;
        }
        self.command(w, &["c", "edit", &format!("jp-c{id}"), "--local=true"]);
        self.model.hide(w, id);
        self.model.views[w].made_local.insert(id);
        Some(Touched::conversations(Some(w), subtree))
    }

    pub(super) fn command_show(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        let id = self.conversation(|model, id| !model.is_visible(w, id) && !model.get(id).archived)?;
        // What is private above it is not shown unless it is named.
        let named: Vec<_> = self.model.line(id).into_iter().map(|id| format!("jp-c{id}")).collect();
        let mut args = vec!["c", "edit", "--local=false"];
        args.extend(named.iter().map(String::as_str));
        self.command(w, &args);
        for above in self.model.line(id) {
            self.model.views[w].projected.insert(above);
            self.model.views[w].made_local.remove(&above);
        }
        let shown = self.model.subtree(id).into_iter().chain(self.model.line(id));
        Some(Touched::conversations(Some(w), shown))
    }

    /// Removed for good, in every worktree.
    pub(super) fn command_remove(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        let id = self.conversation(|model, id| !model.get(id).archived)?;
        let named: Vec<u64> =
            self.model.all.keys().copied().filter(|other| self.model.names_above(*other, id)).collect();
        let subtree = self.model.subtree(id);
        if named.len() != subtree.len() {
            return None;
        }
        let is_cascade = self.chance(3);
        let gone = if is_cascade { subtree.clone() } else { vec![id] };
        let elsewhere = |id: &u64| {
            let views = self.model.views.iter().enumerate().filter(|(v, _)| *v != w);
            views.into_iter().any(|(_, view)| view.projected.contains(id) || view.once_projected.contains(id))
        };
        if self.model.all.len() < FEWEST + gone.len()
            || gone.contains(&super::world::LARGE)
            || (!self.on.contains(&Class::RemoveElsewhere) && gone.iter().any(elsewhere))
        {
            return None;
        }
        let name = format!("jp-c{id}");
        let parent = self.model.parent(id);
        if subtree.len() == 1 {
            self.command(w, &["c", "rm", "--yes", &name]);
        } else {
            self.command(w, &["c", "rm", "--yes", if is_cascade { "--cascade" } else { "--promote" }, &name]);
        }
        let is_child = |other: &u64| self.model.get(*other).parent == Some(id) && !gone.contains(other);
        let children: Vec<u64> = subtree.iter().copied().filter(is_child).collect();
        for child in children {
            self.model.rewrite(child, |it| it.parent = parent);
        }
        gone.iter().for_each(|id| self.model.remove(*id));
        Some(Touched::conversations(Some(w), subtree))
    }

    pub(super) fn command_archive(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        let id = self.conversation(|model, id| model.is_visible(w, id))?;
        let archived = self.model.get(id).archived;
        if !self.may_change(|model| model.set_archived(id, !archived)) {
            return None;
        }
        let name = format!("jp-c{id}");
        let args: &[&str] = if archived { &["c", "unarchive", &name] } else { &["c", "archive", "--yes", &name] };
        self.command(w, args);
        let subtree = self.model.subtree(id);
        self.model.set_archived(id, !archived);
        Some(Touched::conversations(Some(w), subtree))
    }

    pub(super) fn command_export(&mut self) -> Option<Touched> {
        let w = self.any_worktree();
        self.command(w, &["export"]);
        Some(Touched::default())
    }

    /// As the real `jp` writes: a temporary elsewhere, renamed into place.
    pub(super) fn store_events(&mut self) -> Option<Touched> {
        let id = self.conversation(|_, _| true)?;
        let bytes = self.fresh_events();
        self.say(format!("the store, {id}: events.json"));
        let temporary = self.world.worktrees[0].workspace().env().root().join("beside");
        replace(&self.world.stored(id).join(EVENTS), &temporary, &bytes).expect("replaced");
        self.model.store(id, EVENTS, bytes);
        Some(Touched::file(None, id, EVENTS))
    }

    /// Written in place, appended to, replaced, or made.
    pub(super) fn store_file(&mut self) -> Option<Touched> {
        let id = self.conversation(|_, _| true)?;
        let (name, way, text) = (self.file_name(id), self.below(3), self.fresh());
        self.say(format!("the store, {id}: {name} in way {way}"));
        let path = self.world.stored(id).join(&name);
        fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("made");
        let bytes = match way {
            0 if self.model.get(id).files.contains_key(&name) => {
                append_line(&path, &text).expect("appended");
                [self.stored(id, &name), text.into_bytes()].concat()
            }
            1 => {
                let temporary = self.world.worktrees[0].workspace().env().root().join("beside");
                replace(&path, &temporary, text.as_bytes()).expect("replaced");
                text.into_bytes()
            }
            _ => {
                fs::write(&path, &text).expect("written");
                text.into_bytes()
            }
        };
        self.model.store(id, &name, bytes);
        Some(Touched::file(None, id, &name))
    }

    pub(super) fn store_remove(&mut self) -> Option<Touched> {
        let id = self.conversation(|_, _| true)?;
        let name = self.file_name(id);
        self.model.get(id).files.get(&name)?;
        self.say(format!("the store, {id}: {name} is removed"));
        fs::remove_file(self.world.stored(id).join(&name)).expect("removed");
        self.model.take(id, &name);
        Some(Touched::file(None, id, &name))
    }

    /// Holds a conversation until its standard input is closed.
    fn hold(&mut self, id: u64) -> Running {
        let w = self.any_worktree();
        let holder = self.world.worktrees[w].start(&format!("exec jp lock run jp-c{id} -- cat"));
        let file = self.world.worktrees[0].workspace().silo().join(format!("locks/jp-c{id}.lock"));
        wait_for("the lock", LIMIT, || fs::read(&file).is_ok_and(|text| !text.is_empty()));
        holder
    }

    /// Somebody holds a conversation: what would change it is `EBUSY` and changes nothing.
    pub(super) fn locked(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let (id, name) = self.user_file(w)?;
        if !self.is_shown(w, id, EVENTS) {
            return None;
        }
        let (way, text, events) = (self.below(6), self.fresh(), self.fresh_events());
        self.say(format!("mount {w}, {id}: {name} or events.json in way {way} while somebody holds it"));
        let holder = self.hold(id);
        let (file, managed) = (self.at(w, id, &name), self.at(w, id, EVENTS));
        let done = match way {
            0 => fs::write(&managed, &events),
            1 => append_line(&file, &text),
            2 => fs::write(&file, &text),
            3 => OpenOptions::new().write(true).open(&managed).and_then(|file| file.set_len(3)),
            4 => fs::rename(&file, self.at(w, id, "renamed.md")),
            _ => fs::rename(self.world.mount(w, &self.model.path(id)), self.world.mount(w, &format!("{id}-Held up"))),
        };
        assert!(is_busy(&done), "while somebody holds {id}: {done:?}");
        let mut touched = Touched::files(Some(w), [(id, name), (id, EVENTS.to_owned())]);
        touched.conversations.insert(id);
        if let Some(told) = self.world.difference(&self.model, &touched) {
            panic!("while somebody holds {id}: {told}");
        }
        holder.finish().ok();
        Some(touched)
    }

    /// A write through a mapping cannot be refused: it is shown, and in the store once the lock is free.
    pub(super) fn map_locked(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let (id, name, offset, text, bytes) = self.mapping(w)?;
        self.say(format!("mount {w}, {id}: {name} mapped while somebody holds it, {text:?} at {offset}"));
        let holder = self.hold(id);
        let path = self.at(w, id, &name);
        let code = self.world.mapper.write(&path, offset, &text);
        if code != 0 {
            // Refused and told: then nothing may have changed.
            holder.finish().ok();
            return Some(Touched::file(Some(w), id, &name));
        }
        let shown = fs::read(&path).expect("read");
        assert!(shown == bytes, "it shows {}, expected {}", told(&shown), told(&bytes));
        holder.finish().ok();
        let stored = self.world.stored(id).join(&name);
        let committed = until(COMMITTED_WITHIN, || fs::read(&stored).is_ok_and(|seen| seen == bytes));
        assert!(committed, "acknowledged and not in the store: {}", told(&bytes));
        self.model.save(w, id, &name, bytes);
        Some(Touched::file(Some(w), id, &name))
    }

    /// The holder is let through, in any of its threads.
    pub(super) fn holder_thread(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let (id, name) = self.user_file(w)?;
        let is_managed = self.chance(2) && self.is_shown(w, id, EVENTS);
        let name = if is_managed { EVENTS.to_owned() } else { name };
        let bytes = if is_managed { self.fresh_events() } else { self.unique().into_bytes() };
        let text = String::from_utf8(bytes.clone()).expect("what is written is text");
        self.say(format!("mount {w}, {id}: {name} by a second thread of the holder"));
        let lock = self.world.worktrees[w].workspace().silo().join(format!("locks/jp-c{id}.lock"));
        let mut holder = self.world.worktrees[w].command("python3");
        holder.args(["-c", SECOND_THREAD]).arg(lock).arg(self.at(w, id, &name)).arg(&text);
        self.world.worktrees[w].run(holder).ok();
        self.model.save(w, id, &name, bytes);
        Some(Touched::file(None, id, &name))
    }

    pub(super) fn unmount(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        if !self.world.is_mounted[1 - w] {
            return None;
        }
        self.say(format!("mount {w} ends"));
        self.unmount_one(w);
        Some(Touched::default())
    }

    pub(super) fn mount(&mut self) -> Option<Touched> {
        let w = (0..2).find(|w| !self.world.is_mounted[*w])?;
        self.say(format!("mount {w} begins"));
        self.world.worktrees[w].begin(&[]);
        self.world.is_mounted[w] = true;
        let whole = self.world.whole(&self.model, w, Path::new(&self.world.worktrees[w].point()));
        assert!(whole.is_none(), "mount {w}, just begun: {}", whole.unwrap_or_default());
        Some(Touched::default())
    }
}

fn is_busy(done: &io::Result<()>) -> bool {
    done.as_ref().is_err_and(|err| err.raw_os_error() == Some(libc::EBUSY))
}
