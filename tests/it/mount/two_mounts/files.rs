//! Operations on files of conversations through the mounts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use jp_tests::until;

use super::Class;
use super::model::{EVENTS, Hidden, MANAGED, METADATA, dirs, join};
use super::walk::Walk;
use super::world::{LARGE, LARGE_DIR, Touched, large_name, told};

/// How long another process may be in the way.
const BUSY_LIMIT: Duration = Duration::from_secs(20);

impl Walk {
    /// In place, in two pieces, or by way of a temporary.
    pub(super) fn save_events(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let (way, bytes, path) = (self.below(4), self.fresh_events(), self.at(w, id, EVENTS));
        self.say(format!("mount {w}, {id}: events.json in way {way}, {} bytes", bytes.len()));
        match way {
            0 => fs::write(&path, &bytes),
            1 => write_in_pieces(&path, &bytes),
            2 => replace(&path, &path.with_extension("json.tmp"), &bytes),
            _ => replace(&path, &path.with_file_name(".events.json.Ab12Cd"), &bytes),
        }
        .expect("events.json is saved");
        self.model.save(w, id, EVENTS, bytes);
        Some(Touched::file(Some(w), id, EVENTS))
    }

    /// What is not JSON is a draft.
    pub(super) fn save_broken(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let name = [EVENTS, METADATA][self.below(2)];
        let (path, bytes) = (self.at(w, id, name), format!("[ broken {}", self.unique()).into_bytes());
        self.say(format!("mount {w}, {id}: {name} broken"));
        if self.chance(2) { fs::write(&path, &bytes) } else { replace(&path, &path.with_extension("tmp"), &bytes) }
            .expect("a draft is kept");
        self.model.show_name(w, id, name);
        self.model.views[w].drafts.insert((id, name.to_owned()), bytes);
        Some(Touched::file(Some(w), id, name))
    }

    pub(super) fn write_file(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let name = self.file_name(id);
        let (way, text) = (self.below(5), self.fresh());
        let path = self.at_made(w, id, &name);
        let is_shown = self.is_shown(w, id, &name);
        self.say(format!("mount {w}, {id}: {name} in way {way}, {} bytes", text.len()));
        let bytes = match way {
            2 if is_shown => {
                let mut bytes = self.stored(id, &name);
                let offset = self.below(bytes.len() + 10);
                let file = OpenOptions::new().write(true).open(&path).expect("a shown file is opened");
                file.write_all_at(text.as_bytes(), offset as u64).expect("written at an offset");
                bytes.resize(bytes.len().max(offset + text.len()), 0);
                bytes[offset..offset + text.len()].copy_from_slice(text.as_bytes());
                bytes
            }
            3 if is_shown => {
                let mut bytes = self.stored(id, &name);
                let size = self.below(bytes.len() + 10);
                let file = OpenOptions::new().write(true).open(&path).expect("a shown file is opened");
                file.set_len(size as u64).expect("truncated");
                bytes.resize(size, 0);
                bytes
            }
            4 => {
                replace(&path, &path.with_extension("tmp"), text.as_bytes()).expect("replaced");
                text.into_bytes()
            }
            _ => {
                fs::write(&path, &text).expect("written");
                text.into_bytes()
            }
        };
        self.model.save(w, id, &name, bytes);
        Some(Touched::file(Some(w), id, &name))
    }

    pub(super) fn append(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let (id, name) = self.user_file(w)?;
        let line = self.unique() + "\n";
        self.say(format!("mount {w}, {id}: {name} gets {line:?}"));
        append_line(&self.at(w, id, &name), &line).expect("appended");
        let bytes = [self.stored(id, &name), line.into_bytes()].concat();
        self.model.save(w, id, &name, bytes);
        Some(Touched::file(Some(w), id, &name))
    }

    /// Both mounts and the store append, one after the other, and nobody waits until the others have seen it. After an
    /// append a mount shows every line there is.
    pub(super) fn append_in_turn(&mut self) -> Option<Touched> {
        let (id, name) = self.shared_file()?;
        let stored = self.world.stored(id).join(&name);
        let paths = [self.at(0, id, &name), self.at(1, id, &name), stored];
        let turns: Vec<usize> = (0..4 + self.below(8)).map(|_| self.below(3)).collect();
        self.say(format!("{id}: {name} gets lines by {turns:?} (2 is the store)"));
        for by in turns {
            let line = self.unique() + "\n";
            append_line(&paths[by], &line).expect("appended");
            let bytes = [self.stored(id, &name), line.into_bytes()].concat();
            if by < 2 {
                let seen = fs::read(&paths[by]).expect("read");
                assert!(seen == bytes, "mount {by} shows {}, expected {}", told(&seen), told(&bytes));
            }
            self.model.store(id, &name, bytes);
        }
        Some(Touched::file(None, id, &name))
    }

    /// The same by threads at once. Each line is there once, those of one thread in order.
    pub(super) fn append_at_once(&mut self) -> Option<Touched> {
        let (id, name) = self.shared_file()?;
        let stored = self.world.stored(id).join(&name);
        let paths = [self.at(0, id, &name), self.at(1, id, &name), stored.clone()];
        let lines: Vec<Vec<String>> = (0..3).map(|_| (0..6).map(|_| self.unique() + "\n").collect()).collect();
        self.say(format!("{id}: {name} gets lines by threads: {lines:?}"));
        let before = self.stored(id, &name);
        thread::scope(|scope| {
            for (path, lines) in paths.iter().zip(&lines) {
                scope.spawn(move || {
                    for line in lines {
                        patiently(|| append_line(path, line)).expect("appended");
                    }
                });
            }
        });
        let after = fs::read(&stored).expect("the store has it");
        let rest = after.strip_prefix(before.as_slice());
        let rest = rest.unwrap_or_else(|| panic!("what was there has changed: {}", told(&after)));
        let rest = String::from_utf8_lossy(rest).into_owned();
        let seen: Vec<&str> = rest.split_inclusive('\n').collect();
        for lines in &lines {
            let own: Vec<&str> = seen.iter().copied().filter(|line| lines.iter().any(|own| own == line)).collect();
            assert!(own == *lines, "of {lines:?} there are {own:?}, in {rest:?}");
        }
        assert_eq!(seen.len(), 18, "no other lines: {rest:?}");
        self.model.store(id, &name, after);
        Some(Touched::file(None, id, &name))
    }

    /// A user file that both mounts show.
    fn shared_file(&mut self) -> Option<(u64, String)> {
        let (id, name) = self.user_file(0)?;
        let both = self.world.is_mounted[0] && self.world.is_mounted[1] && self.is_shown(1, id, &name);
        both.then_some((id, name))
    }

    pub(super) fn map(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let (id, name, offset, text, bytes) = self.mapping(w)?;
        self.say(format!("mount {w}, {id}: {name} mapped, {text:?} at {offset}"));
        let path = self.at(w, id, &name);
        assert_eq!(self.world.mapper.write(&path, offset, &text), 0, "the error number of a mapped write");
        self.model.save(w, id, &name, bytes);
        Some(Touched::file(Some(w), id, &name))
    }

    /// A change in place that leaves a document a document: file, offset, text, and what the file is then.
    pub(super) fn mapping(&mut self, w: usize) -> Option<(u64, String, usize, String, Vec<u8>)> {
        let (id, name) = if self.chance(3) { (self.visible(w)?, EVENTS.to_owned()) } else { self.user_file(w)? };
        if !self.is_shown(w, id, &name) {
            return None;
        }
        let (mut bytes, text) = (self.stored(id, &name), self.unique());
        let offset = if name == EVENTS {
            bytes.windows(5).position(|part| part == b"step ")?
        } else {
            self.below(bytes.len().checked_sub(text.len())? + 1)
        };
        bytes.get_mut(offset..offset + text.len())?.copy_from_slice(text.as_bytes());
        Some((id, name, offset, text, bytes))
    }

    /// To another name, of the same conversation or another one, whether or not something is there.
    pub(super) fn rename_file(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let (id, name) = self.user_file(w)?;
        let to = if self.chance(3) { self.visible(w)? } else { id };
        let new = self.file_name(to);
        if (to, &new) == (id, &name) {
            return None;
        }
        self.say(format!("mount {w}: {name} of {id} is renamed to {new} of {to}"));
        fs::rename(self.at(w, id, &name), self.at_made(w, to, &new)).expect("renamed");
        self.renamed(w, (id, &name), (to, &new));
        Some(Touched::files(Some(w), [(id, name), (to, new)]))
    }

    fn renamed(&mut self, w: usize, from: (u64, &str), to: (u64, &str)) {
        let bytes = self.model.take(from.0, from.1).expect("a shown file is in the store");
        self.model.save(w, to.0, to.1, bytes);
        if !self.on.contains(&Class::OldNames) {
            self.model.views[w].hide((from.0, from.1.to_owned()), Hidden::Maybe);
        }
    }

    /// A directory of a conversation gets another name, with what is in it.
    pub(super) fn rename_directory(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let names: Vec<String> =
            self.model.get(id).files.keys().filter(|name| name.starts_with("sub/")).cloned().collect();
        let is_free = !self.model.get(id).files.keys().any(|name| name.starts_with("moved/"));
        let hides = |name: &String| {
            let mut paths = dirs(name).chain([name.as_str()]);
            paths.any(|path| self.model.views.iter().any(|view| view.hidden.contains_key(&(id, path.to_owned()))))
        };
        let new = |name: &String| format!("moved/{}", &name["sub/".len()..]);
        if names.is_empty() || !is_free || names.iter().any(|name| hides(name) || hides(&new(name))) {
            return None;
        }
        self.say(format!("mount {w}, {id}: sub becomes moved"));
        fs::rename(self.at(w, id, "sub"), self.at(w, id, "moved")).expect("renamed");
        let dirs = self.model.get(id).dirs.iter().filter_map(|dir| Some(format!("moved{}", dir.strip_prefix("sub")?)));
        let dirs: Vec<String> = dirs.collect();
        self.model.get_mut(id).dirs.extend(dirs);
        let mut touched = BTreeSet::new();
        for name in names {
            let new = new(&name);
            self.renamed(w, (id, &name), (id, &new));
            touched.extend([(id, name), (id, new)]);
        }
        self.left(w, id, "sub");
        if self.chance(3) {
            return Some(Touched::files(Some(w), touched));
        }
        // And back, so that it can be done again.
        self.say("and sub again".to_owned());
        let both = Touched::files(Some(w), touched.clone());
        if let Some(told) = self.world.difference(&self.model, &both) {
            panic!("{told}");
        }
        fs::rename(self.at(w, id, "moved"), self.at(w, id, "sub")).expect("renamed back");
        let names: Vec<String> =
            touched.iter().map(|(_, name)| name.clone()).filter(|n| n.starts_with("moved/")).collect();
        for name in names {
            let old = format!("sub/{}", &name["moved/".len()..]);
            self.renamed(w, (id, &name), (id, &old));
        }
        self.left(w, id, "moved");
        Some(both)
    }

    /// A directory has left this name.
    fn left(&mut self, w: usize, id: u64, dir: &str) {
        if !self.on.contains(&Class::OldNames) {
            let old = self.model.get(id).dirs.iter().filter(|other| Path::new(other).starts_with(dir));
            for old in old.cloned().collect::<Vec<_>>() {
                self.model.views[w].hide((id, old), Hidden::Maybe);
            }
        }
    }

    /// Removed, alone or with its directory: hidden here, and the store keeps it.
    pub(super) fn unlink_file(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let (id, name) = self.user_file(w)?;
        if name.starts_with("sub/") && self.chance(2) {
            self.say(format!("mount {w}, {id}: sub is removed"));
            fs::remove_dir_all(self.at(w, id, "sub")).expect("removed");
            let names: Vec<String> =
                self.model.get(id).files.keys().filter(|name| name.starts_with("sub/")).cloned().collect();
            self.model.hide_dir(w, id, "sub");
            return Some(Touched::files(Some(w), names.into_iter().map(|name| (id, name))));
        }
        self.say(format!("mount {w}, {id}: {name} is removed"));
        fs::remove_file(self.at(w, id, &name)).expect("removed");
        self.model.hide_name(w, id, &name);
        Some(Touched::file(Some(w), id, &name))
    }

    pub(super) fn unlink_managed(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let name = MANAGED[self.below(3)];
        if !self.model.shown(w, id, name).is_some_and(|shown| shown.is_certain) {
            return None;
        }
        self.say(format!("mount {w}, {id}: {name} is removed"));
        fs::remove_file(self.at(w, id, name)).expect("removed");
        self.model.hide_name(w, id, name);
        Some(Touched::file(Some(w), id, name))
    }

    /// What was removed is copied back, with the bytes that the store has.
    pub(super) fn restore_equal(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let hidden = self.model.views[w].hidden.keys().filter(|(id, name)| {
            let is_stored = name == METADATA || self.model.get(*id).files.contains_key(name);
            is_stored && self.model.is_visible(w, *id)
        });
        let hidden: Vec<(u64, String)> = hidden.cloned().collect();
        let (id, name) = self.choose(&hidden)?;
        self.say(format!("mount {w}, {id}: {name} is copied back"));
        fs::write(self.at_made(w, id, &name), self.stored(id, &name)).expect("copied back");
        self.model.show_name(w, id, &name);
        Some(Touched::file(Some(w), id, &name))
    }

    /// A managed file is renamed: its bytes get the name, and it is hidden under its own.
    pub(super) fn managed_away(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        if !self.is_shown(w, id, EVENTS) {
            return None;
        }
        let new = "kept-events.md";
        self.say(format!("mount {w}, {id}: {EVENTS} is renamed to {new}"));
        fs::rename(self.at(w, id, EVENTS), self.at(w, id, new)).expect("renamed");
        let bytes = self.stored(id, EVENTS);
        self.model.save(w, id, new, bytes);
        self.model.hide_name(w, id, EVENTS);
        Some(Touched::files(Some(w), [EVENTS, new].map(|name| (id, name.to_owned()))))
    }

    /// Files of a large directory are saved in every way while others list it. Each name is listed as soon as it is there.
    pub(super) fn large_listing(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        if !self.model.is_visible(w, LARGE) {
            return None;
        }
        let dir = self.at(w, LARGE, LARGE_DIR);
        fs::create_dir_all(&dir).expect("the directory is there");
        let done = AtomicBool::new(false);
        self.say(format!("mount {w}, {LARGE}: saves in {LARGE_DIR} while it is listed"));
        let touched = thread::scope(|scope| {
            let list = || {
                while !done.load(Ordering::SeqCst) {
                    fs::read_dir(&dir).into_iter().flatten().for_each(drop);
                }
            };
            scope.spawn(list);
            let ended = SetOnDrop(&done);
            let touched = self.save_many(w);
            drop(ended);
            touched
        });
        Some(Touched::files(Some(w), touched.into_iter().map(|name| (LARGE, name))))
    }

    fn save_many(&mut self, w: usize) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        for _ in 0..10 {
            let number = self.random.below(310);
            let name = join(LARGE_DIR, &large_name(number));
            let (text, path, way) = (self.fresh(), self.at(w, LARGE, &name), self.below(3));
            match way {
                0 if self.is_shown(w, LARGE, &name) => {
                    fs::remove_file(&path).expect("removed");
                    fs::write(&path, &text).expect("made again");
                }
                1 if self.is_shown(w, LARGE, &name) => {
                    let backup = format!("{LARGE_DIR}/backup-{number}.md");
                    fs::rename(&path, self.at(w, LARGE, &backup)).expect("renamed");
                    self.renamed(w, (LARGE, &name), (LARGE, &backup));
                    fs::write(&path, &text).expect("made again");
                    touched.insert(backup);
                }
                _ => replace(&path, &path.with_extension("tmp"), text.as_bytes()).expect("replaced"),
            }
            self.model.save(w, LARGE, &name, text.into_bytes());
            self.say(format!("{name} in way {way}"));
            let listed: BTreeSet<String> = fs::read_dir(self.at(w, LARGE, LARGE_DIR))
                .expect("listed")
                .map(|entry| entry.expect("named").file_name().to_string_lossy().into_owned())
                .collect();
            let told = self.model.listing(w, LARGE, LARGE_DIR).difference(&listed);
            assert!(told.is_none(), "the listing of {LARGE_DIR}, at once: {}", told.unwrap_or_default());
            touched.insert(name);
        }
        touched
    }

    /// Threads write different files at once, through either mount.
    pub(super) fn threads(&mut self) -> Option<Touched> {
        let mut work: BTreeMap<(u64, String), Saves> = BTreeMap::new();
        for _ in 0..5 {
            let w = self.a_mount()?;
            let id = self.visible(w)?;
            let is_events = self.chance(3);
            let name = if is_events { EVENTS.to_owned() } else { self.file_name(id) };
            let path = self.at_made(w, id, &name);
            let saves =
                (0..4).map(|_| if is_events { self.fresh_events() } else { self.fresh().into_bytes() }).collect();
            work.insert((id, name), Saves { w, path, saves });
        }
        self.say(format!("threads write {:?}", work.iter().map(|(key, saves)| (saves.w, key)).collect::<Vec<_>>()));
        thread::scope(|scope| {
            for Saves { path, saves, .. } in work.values() {
                scope.spawn(move || {
                    for bytes in saves {
                        patiently(|| fs::write(path, bytes)).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
                    }
                });
            }
        });
        let touched = Touched::files(None, work.keys().cloned());
        for ((id, name), Saves { w, saves, .. }) in work {
            self.model.save(w, id, &name, saves.into_iter().next_back().unwrap_or_default());
        }
        Some(touched)
    }
}

/// What one thread writes to one file, one after the other.
struct Saves {
    w: usize,
    path: PathBuf,
    saves: Vec<Vec<u8>>,
}

/// Ends what waits for it, also by a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Tries again while another process is in the way, which one that saves may be for a moment.
fn patiently(mut act: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut done = Ok(());
    until(BUSY_LIMIT, || {
        done = act();
        !done.as_ref().is_err_and(|err| err.raw_os_error() == Some(libc::EBUSY))
    });
    done
}

pub(super) fn append_line(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())
}

pub(super) fn replace(path: &Path, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(temporary, bytes)?;
    fs::rename(temporary, path)
}

fn write_in_pieces(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    bytes.chunks(bytes.len().div_ceil(3)).try_for_each(|part| file.write_all(part))
}
