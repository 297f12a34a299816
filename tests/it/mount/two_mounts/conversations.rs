//! Operations on conversations as directories, through the mounts.

use std::fs;
use std::process::Command;

use jp_tests::{Output, pretty, set_mtime};
use serde_json::json;

use super::model::{CONFIG, Conversation, EVENTS, METADATA, Model, join};
use super::walk::Walk;
use super::world::Touched;

/// Ids of conversations that arrive as directories.
const FIRST_ARRIVAL: u64 = 17_530_000_000;
/// No more conversations are made than this.
const MOST: usize = 14;

impl Walk {
    pub(super) fn save_metadata(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let archived = self.model.get(id).archived;
        let parent = if self.chance(3) { None } else { Some(self.another(w, id, archived)?) };
        if !self.may_change(|model| model.get_mut(id).parent = parent) {
            return None;
        }
        let title = self.title();
        let time = "2026-01-01 00:00:00.0";
        let bytes = pretty(&json!({ "title": title, "last_activated_at": time, "parent_id": parent }));
        self.say(format!("mount {w}, {id}: metadata says {title:?} beneath {parent:?}"));
        fs::write(self.at(w, id, METADATA), &bytes).expect("metadata is saved");
        self.model.show_name(w, id, METADATA);
        let conversation = self.model.get_mut(id);
        (conversation.title, conversation.parent, conversation.metadata) = (title, parent, Some(bytes));
        // The kernel hears of the new place after the save has returned.
        Some(Touched::conversations(None, [id]))
    }

    /// A title that was never used before.
    pub(super) fn title(&mut self) -> String {
        self.unique().replace("step", "Word")
    }

    /// A conversation that this one could be moved beneath.
    pub(super) fn another(&mut self, w: usize, id: u64, archived: bool) -> Option<u64> {
        self.conversation(|model, other| {
            model.is_visible(w, other) && model.get(other).archived == archived && !model.names_above(other, id)
        })
    }

    /// Beneath another one, to the top, into the archive or out of it. Then, if asked for, its metadata gets another time,
    /// and must not show what it said before.
    pub(super) fn move_conversation(&mut self, touch: bool) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let archived = if self.chance(8) { !self.model.get(id).archived } else { self.model.get(id).archived };
        let to = if self.chance(3) { None } else { Some(self.another(w, id, archived)?) };
        let dir = match to {
            Some(to) => join(&self.model.path(to), "conversations"),
            None if archived => ".archive".to_owned(),
            None => String::new(),
        };
        if !self.may_change(|model| moved(model, id, to, archived)) {
            return None;
        }
        if dir == self.model.place(id) || (touch && !self.is_shown(w, id, METADATA)) {
            return None;
        }
        let new = join(&dir, &self.model.name(id));
        self.say(format!("mount {w}: {} moves to {new}", self.model.path(id)));
        let new = self.world.mount(w, &new);
        if touch {
            fs::read(self.at(w, id, METADATA)).expect("read, so that it is cached");
        }
        fs::rename(self.world.mount(w, &self.model.path(id)), &new).expect("moved");
        if touch {
            set_mtime(&new.join(METADATA), 1_760_000_000_000_000_000 + self.below(1000) as i64);
        }
        // Into the archive and out of it others may move with their parents, and the kernel hears of those later.
        let by = (self.model.get(id).archived == archived).then_some(w);
        moved(&mut self.model, id, to, archived);
        Some(Touched::conversations(by, [id]))
    }

    pub(super) fn retitle(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let id = self.visible(w)?;
        let title = self.title();
        self.say(format!("mount {w}: {} is renamed to {title:?}", self.model.path(id)));
        let new = join(&self.model.place(id), &format!("{id}-{title}"));
        fs::rename(self.world.mount(w, &self.model.path(id)), self.world.mount(w, &new)).expect("renamed");
        self.model.rewrite(id, |it| it.title = title);
        Some(Touched::conversations(Some(w), [id]))
    }

    /// `rm -r` hides it here with everything beneath it.
    pub(super) fn remove_tree(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let shown = self.model.all.keys().filter(|id| self.model.is_visible(w, **id)).count();
        let id = self.visible(w)?;
        let gone: Vec<u64> = self.model.subtree(id).into_iter().filter(|id| self.model.is_visible(w, *id)).collect();
        if gone.len() + 4 > shown {
            return None;
        }
        self.say(format!("mount {w}: rm -r {}", self.model.path(id)));
        run("rm", &["-r"], &self.world.mount(w, &self.model.path(id)));
        gone.iter().for_each(|id| self.model.hide(w, *id));
        Some(Touched::conversations(Some(w), gone))
    }

    /// `mkdir` of one that is hidden here and not private shows it.
    pub(super) fn make_known(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        let near = |model: &Model, id: u64| model.parent(id).is_none_or(|parent| model.is_visible(w, parent));
        let id = self.conversation(|model, id| {
            !model.views[w].projected.contains(&id) && near(model, id) && model.may_be_made(w, id)
        })?;
        self.say(format!("mount {w}: mkdir {}", self.model.path(id)));
        run("mkdir", &[], &self.world.mount(w, &self.model.path(id)));
        self.model.views[w].projected.insert(id);
        let shown: Vec<u64> = self.model.subtree(id);
        Some(Touched::conversations(Some(w), shown))
    }

    /// A conversation that nobody has comes in as a directory with files.
    pub(super) fn arrive(&mut self) -> Option<Touched> {
        let w = self.a_mount()?;
        if !self.has_room() {
            return None;
        }
        let parent = if self.chance(2) { None } else { Some(self.visible(w)?) };
        let archived = parent.is_some_and(|parent| self.model.get(parent).archived);
        let (title, events) = (self.title(), self.fresh_events());
        let number: u64 = title.trim_start_matches("Word ").parse().expect("a title has a number");
        let id = FIRST_ARRIVAL + number * 10;
        let metadata = pretty(&json!({ "title": title, "last_activated_at": "2026-01-01 00:00:00.0" }));
        self.model.all.insert(id, Conversation { title, parent, archived, ..Conversation::default() });
        self.model.views[w].projected.insert(id);
        let path = self.model.path(id);
        self.say(format!("mount {w}: {path} arrives"));
        run("mkdir", &[], &self.world.mount(w, &path));
        let mut files = vec![(METADATA, metadata.clone()), (EVENTS, events), (CONFIG, b"{}".to_vec())];
        self.random.shuffle(&mut files);
        for (name, bytes) in files {
            fs::write(self.at(w, id, name), &bytes).expect("written");
            if name != METADATA {
                self.model.store(id, name, bytes);
            }
        }
        // Archiving stamps the metadata.
        self.model.get_mut(id).metadata = (!archived).then_some(metadata);
        let mut touched = Touched::conversations(Some(w), [id]);
        touched.files.extend([EVENTS, CONFIG].map(|name| (id, name.to_owned())));
        Some(touched)
    }

    pub(super) fn has_room(&self) -> bool {
        self.model.all.len() < MOST
    }
}

fn moved(model: &mut Model, id: u64, to: Option<u64>, archived: bool) {
    if model.get(id).archived != archived {
        model.set_archived(id, archived);
    }
    // A parent that it left behind in the other partition stays its parent, as when a command archives it.
    if model.parent(id) != to {
        model.rewrite(id, |it| it.parent = to);
    }
}

#[track_caller]
fn run(program: &str, flags: &[&str], path: &std::path::Path) {
    let mut command = Command::new(program);
    command.args(flags).arg(path);
    Output::of(command, b"").ok();
}
