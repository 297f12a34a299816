//! What every file must hold and what every directory must list, in each of several worktrees of one store. Pure: it touches
//! no file. Where the promises leave a choice, a name is `Maybe` hidden, and both answers are right.

use std::collections::{BTreeMap, BTreeSet};

use jp_tests::dirname;

/// How many worktrees there are. The first two are mounted; in the third only commands are run.
pub(super) const WORKTREES: usize = 3;
pub(super) const METADATA: &str = "metadata.json";
pub(super) const EVENTS: &str = "events.json";
pub(super) const CONFIG: &str = "base_config.json";
pub(super) const MANAGED: [&str; 3] = [METADATA, EVENTS, CONFIG];

/// A conversation as the store has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    pub(super) title: String,
    pub(super) parent: Option<u64>,
    pub(super) archived: bool,
    /// `metadata.json` to the byte, while only a user has written it.
    pub(super) metadata: Option<Vec<u8>>,
    /// Every other file, by its path in the conversation.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// Directories that there were. One may stay when all that was in it is hidden or gone.
    pub(super) dirs: BTreeSet<String>,
}

/// Whether a worktree hides a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    Sure,
    Maybe,
}

/// What is a worktree's own.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) projected: BTreeSet<u64>,
    /// Conversations that were projected and are hidden. Their real files may still be there while a mount covers them.
    pub(super) once_projected: BTreeSet<u64>,
    /// Conversations that a command made local, and that nobody has shown since.
    pub(super) made_local: BTreeSet<u64>,
    pub(super) hidden: BTreeMap<(u64, String), Hidden>,
    /// Names that were hidden at any time.
    pub(super) once_hidden: BTreeSet<(u64, String)>,
    pub(super) drafts: BTreeMap<(u64, String), Vec<u8>>,
    /// Drafts of conversations that are gone from the store. They stay until somebody gives them up.
    pub(super) left_drafts: BTreeMap<(u64, String), Vec<u8>>,
}

impl View {
    pub(super) fn hide(&mut self, key: (u64, String), how: Hidden) {
        self.once_hidden.insert(key.clone());
        self.hidden.insert(key, how);
    }
}

/// What a file must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected<'a> {
    Bytes(&'a [u8]),
    /// Metadata that a command wrote, or a move: these two keys are known.
    Metadata {
        title: &'a str,
        parent: Option<u64>,
    },
}

/// A file that a worktree shows, or may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown<'a> {
    pub(super) expected: Expected<'a>,
    pub(super) is_certain: bool,
}

/// Names that a directory must list, and names that it may list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) certain: BTreeSet<String>,
    pub(super) possible: BTreeSet<String>,
}

impl Listing {
    /// How a listing that was seen differs, in words.
    pub(super) fn difference(&self, seen: &BTreeSet<String>) -> Option<String> {
        let missing: Vec<_> = self.certain.difference(seen).collect();
        let surplus: Vec<_> = seen.iter().filter(|name| !self.certain.contains(*name)).collect();
        let surplus: Vec<_> = surplus.into_iter().filter(|name| !self.possible.contains(*name)).collect();
        let differs = !missing.is_empty() || !surplus.is_empty();
        differs.then(|| format!("missing {missing:?}, not expected {surplus:?}"))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) all: BTreeMap<u64, Conversation>,
    pub(super) views: [View; WORKTREES],
}

impl Model {
    pub(super) fn get(&self, id: u64) -> &Conversation {
        &self.all[&id]
    }

    pub(super) fn get_mut(&mut self, id: u64) -> &mut Conversation {
        self.all.get_mut(&id).expect("the walk names conversations that are there")
    }

    /// The parent in the tree: one that exists, and is archived if this one is.
    pub(super) fn parent(&self, id: u64) -> Option<u64> {
        let this = self.get(id);
        this.parent.filter(|parent| self.all.get(parent).is_some_and(|it| it.archived == this.archived))
    }

    /// The conversation and its ancestors.
    pub(super) fn line(&self, id: u64) -> Vec<u64> {
        std::iter::successors(Some(id), |id| self.parent(*id)).collect()
    }

    /// Whether `other` is this conversation, or an ancestor by the parents that files name, archived or not.
    pub(super) fn names_above(&self, id: u64, other: u64) -> bool {
        let line = std::iter::successors(Some(id), |id| self.all.get(id).and_then(|it| it.parent));
        line.take(self.all.len() + 1).any(|id| id == other)
    }

    /// The conversation and its descendants.
    pub(super) fn subtree(&self, id: u64) -> Vec<u64> {
        self.all.keys().copied().filter(|other| self.line(*other).contains(&id)).collect()
    }

    pub(super) fn is_visible(&self, w: usize, id: u64) -> bool {
        self.all.contains_key(&id) && self.line(id).iter().all(|id| self.views[w].projected.contains(id))
    }

    pub(super) fn name(&self, id: u64) -> String {
        dirname(id, Some(&self.get(id).title))
    }

    /// The directory that holds the conversation's directory, relative to the top.
    pub(super) fn place(&self, id: u64) -> String {
        match self.parent(id) {
            Some(parent) => join(&self.path(parent), "conversations"),
            None if self.get(id).archived => ".archive".to_owned(),
            None => String::new(),
        }
    }

    pub(super) fn path(&self, id: u64) -> String {
        join(&self.place(id), &self.name(id))
    }

    /// What a worktree shows under a name of a conversation that it shows.
    pub(super) fn shown(&self, w: usize, id: u64, name: &str) -> Option<Shown<'_>> {
        let (view, conversation) = (&self.views[w], self.get(id));
        let key = (id, name.to_owned());
        let hidden = view.hidden.get(&key);
        if hidden == Some(&Hidden::Sure) {
            return None;
        }
        let expected = if let Some(draft) = view.drafts.get(&key) {
            Expected::Bytes(draft)
        } else if name == METADATA {
            match &conversation.metadata {
                Some(bytes) => Expected::Bytes(bytes),
                None => Expected::Metadata { title: &conversation.title, parent: conversation.parent },
            }
        } else {
            Expected::Bytes(conversation.files.get(name)?)
        };
        let is_certain = hidden.is_none() && !dirs(name).any(|dir| view.hidden.contains_key(&(id, dir.to_owned())));
        Some(Shown { expected, is_certain })
    }

    /// Every file that a worktree shows of a conversation.
    pub(super) fn files(&self, w: usize, id: u64) -> BTreeMap<&str, Shown<'_>> {
        let names = self.get(id).files.keys().map(String::as_str).chain([METADATA]);
        names.filter_map(|name| Some((name, self.shown(w, id, name)?))).collect()
    }

    /// What a directory in a conversation lists; the empty path is the conversation's own directory.
    pub(super) fn listing(&self, w: usize, id: u64, dir: &str) -> Listing {
        let mut listing = Listing::default();
        for (name, shown) in self.files(w, id) {
            let Some(entry) = entry_below(dir, name) else { continue };
            let set = if shown.is_certain { &mut listing.certain } else { &mut listing.possible };
            set.insert(entry.to_owned());
        }
        let dirs = self.get(id).dirs.iter().filter_map(|path| entry_below(dir, path));
        listing.possible.extend(dirs.map(ToOwned::to_owned));
        if dir.is_empty() && self.all.keys().any(|other| self.parent(*other) == Some(id) && self.is_visible(w, *other))
        {
            listing.certain.insert("conversations".to_owned());
        }
        listing
    }

    /// What a directory of conversations lists: the top, `.archive` or the children of one.
    pub(super) fn conversations_in(&self, w: usize, place: &str) -> BTreeSet<String> {
        let here = self.all.keys().filter(|id| self.is_visible(w, **id) && self.place(**id) == place);
        let mut names: BTreeSet<String> = here.map(|id| self.name(*id)).collect();
        if place.is_empty() && !self.conversations_in(w, ".archive").is_empty() {
            names.insert(".archive".to_owned());
        }
        names
    }

    /// A save of a file through a worktree's mount: it is shown there, and the store has it.
    pub(super) fn save(&mut self, w: usize, id: u64, name: &str, bytes: Vec<u8>) {
        self.show_name(w, id, name);
        self.store(id, name, bytes);
    }

    /// The store has these bytes, whoever wrote them. A worktree that hides the name may go on hiding it.
    pub(super) fn store(&mut self, id: u64, name: &str, bytes: Vec<u8>) {
        for view in &mut self.views {
            if let Some(hidden) = view.hidden.get_mut(&(id, name.to_owned())) {
                *hidden = Hidden::Maybe;
            }
        }
        let conversation = self.get_mut(id);
        conversation.files.insert(name.to_owned(), bytes);
        conversation.dirs.extend(dirs(name).map(ToOwned::to_owned));
    }

    /// The file leaves the store.
    pub(super) fn take(&mut self, id: u64, name: &str) -> Option<Vec<u8>> {
        let bytes = self.get_mut(id).files.remove(name);
        for view in &mut self.views {
            if let Some(hidden) = view.hidden.get_mut(&(id, name.to_owned())) {
                *hidden = Hidden::Maybe;
            }
        }
        bytes
    }

    /// The name is shown here, and what it shows is the store's. What else is in a hidden directory may be shown then.
    pub(super) fn show_name(&mut self, w: usize, id: u64, name: &str) {
        for dir in dirs(name) {
            if self.views[w].hidden.remove(&(id, dir.to_owned())).is_none() {
                continue;
            }
            let below = self.all[&id].files.keys().filter(|name| dirs(name).any(|other| other == dir));
            for name in below.cloned().collect::<Vec<_>>() {
                self.views[w].hide((id, name), Hidden::Maybe);
            }
        }
        let key = (id, name.to_owned());
        self.views[w].hidden.remove(&key);
        self.views[w].drafts.remove(&key);
    }

    /// The name is hidden here; the store keeps what it has.
    pub(super) fn hide_name(&mut self, w: usize, id: u64, name: &str) {
        let key = (id, name.to_owned());
        self.views[w].drafts.remove(&key);
        self.views[w].hide(key, Hidden::Sure);
    }

    /// A directory is hidden here with what is in it. What others put into it later may be shown or not.
    pub(super) fn hide_dir(&mut self, w: usize, id: u64, dir: &str) {
        let below = self.all[&id].files.keys().filter(|name| dirs(name).any(|other| other == dir));
        for name in below.cloned().collect::<Vec<_>>() {
            self.hide_name(w, id, &name);
        }
        // Each directory by itself, with the files in it or without any.
        let inner = self.all[&id].dirs.iter().filter(|other| dirs(other).any(|above| above == dir));
        for name in inner.cloned().chain([dir.to_owned()]).collect::<Vec<_>>() {
            self.views[w].hide((id, name), Hidden::Sure);
        }
    }

    /// A conversation is hidden here, and nothing of it is hidden by itself any more.
    pub(super) fn hide(&mut self, w: usize, id: u64) {
        let view = &mut self.views[w];
        if view.projected.remove(&id) {
            view.once_projected.insert(id);
        }
        view.hidden.retain(|(other, _), _| *other != id);
        view.drafts.retain(|(other, _), _| *other != id);
    }

    /// Whether `mkdir` shows a conversation that is hidden here: it is not private.
    pub(super) fn may_be_made(&self, w: usize, id: u64) -> bool {
        let elsewhere = self.views.iter().any(|view| view.projected.contains(&id));
        let view = &self.views[w];
        !view.made_local.contains(&id) && (elsewhere || view.once_projected.contains(&id))
    }

    /// A conversation leaves the store.
    pub(super) fn remove(&mut self, id: u64) {
        for w in 0..WORKTREES {
            let drafts = self.views[w].drafts.clone();
            self.views[w].left_drafts.extend(drafts.into_iter().filter(|((other, _), _)| *other == id));
            self.hide(w, id);
        }
        self.all.remove(&id);
    }

    /// A command or a move writes the metadata.
    pub(super) fn rewrite(&mut self, id: u64, change: impl FnOnce(&mut Conversation)) {
        let conversation = self.get_mut(id);
        change(conversation);
        conversation.metadata = None;
    }

    /// Archives or unarchives a conversation with its subtree.
    pub(super) fn set_archived(&mut self, id: u64, archived: bool) {
        for id in self.subtree(id) {
            self.rewrite(id, |it| it.archived = archived);
        }
    }

    pub(super) fn has_draft(&self, w: usize, id: u64) -> bool {
        self.views[w].drafts.keys().any(|(other, _)| *other == id)
    }
}

/// A path of two parts, the first of which may be empty.
pub(super) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// The directories that a path leads through, the outermost first.
pub(super) fn dirs(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// The entry of `dir` that a path leads through.
fn entry_below<'a>(dir: &str, path: &'a str) -> Option<&'a str> {
    let rest = if dir.is_empty() { path } else { path.strip_prefix(dir)?.strip_prefix('/')? };
    rest.split('/').next()
}

mod tests {
    use super::*;

    fn family() -> Model {
        let mut model = Model::default();
        for (id, parent) in [(1, None), (2, Some(1)), (3, Some(2)), (4, None)] {
            let files = [EVENTS, CONFIG].map(|name| (name.to_owned(), b"[]".to_vec()));
            let title = format!("Number {id}");
            model.all.insert(id, Conversation { title, parent, files: files.into(), ..Conversation::default() });
            for view in &mut model.views {
                view.projected.insert(id);
            }
        }
        model
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn children_lie_beneath_their_parent() {
        let model = family();
        assert_eq!(model.path(3), "1-number-1/conversations/2-number-2/conversations/3-number-3");
        assert_eq!(model.conversations_in(0, ""), set(&["1-number-1", "4-number-4"]));
        assert_eq!(model.listing(0, 1, "").certain, set(&["conversations", METADATA, EVENTS, CONFIG]));
        assert_eq!(model.subtree(2), [2, 3]);
    }

    #[test]
    fn a_hidden_parent_hides_its_subtree_in_one_worktree() {
        let mut model = family();
        model.hide(0, 2);
        assert!(!model.is_visible(0, 3) && model.is_visible(1, 3));
        assert!(!model.listing(0, 1, "").certain.contains("conversations"));
        model.views[0].projected.insert(2);
        assert!(model.is_visible(0, 3));
    }

    #[test]
    fn a_hidden_name_is_in_the_store_and_in_the_other_worktree() {
        let mut model = family();
        model.save(0, 4, "a.md", b"one".to_vec());
        model.hide_name(0, 4, "a.md");
        assert_eq!(model.shown(0, 4, "a.md"), None);
        assert_eq!(model.shown(1, 4, "a.md").expect("shown").expected, Expected::Bytes(b"one"));
        // The other worktree writes it: here it may show up or not, but not with other bytes.
        model.save(1, 4, "a.md", b"two".to_vec());
        let shown = model.shown(0, 4, "a.md").expect("it may be shown");
        assert_eq!(shown, Shown { expected: Expected::Bytes(b"two"), is_certain: false });
        assert_eq!(model.listing(0, 4, "").difference(&set(&[METADATA, EVENTS, CONFIG])), None);
        assert_eq!(model.listing(0, 4, "").difference(&set(&[METADATA, EVENTS, CONFIG, "a.md"])), None);
        // Written here it is shown for certain.
        model.save(0, 4, "a.md", b"three".to_vec());
        assert!(model.shown(0, 4, "a.md").expect("shown").is_certain);
    }

    #[test]
    fn a_draft_is_shown_where_it_was_saved_and_nowhere_else() {
        let mut model = family();
        model.views[0].drafts.insert((4, EVENTS.to_owned()), b"[ bro".to_vec());
        assert_eq!(model.shown(0, 4, EVENTS).expect("shown").expected, Expected::Bytes(b"[ bro"));
        assert_eq!(model.shown(1, 4, EVENTS).expect("shown").expected, Expected::Bytes(b"[]"));
        model.save(0, 4, EVENTS, b"[1]".to_vec());
        assert_eq!(model.shown(0, 4, EVENTS).expect("shown").expected, Expected::Bytes(b"[1]"));
    }

    #[test]
    fn listings_of_subdirectories() {
        let mut model = family();
        model.save(0, 4, "big/one.md", Vec::new());
        model.save(0, 4, "big/deep/two.md", Vec::new());
        assert_eq!(model.listing(0, 4, "big").certain, set(&["one.md", "deep"]));
        assert!(model.listing(0, 4, "").certain.contains("big"));
        model.hide_name(0, 4, "big/deep/two.md");
        let listing = model.listing(0, 4, "big");
        assert_eq!((listing.certain, listing.possible), (set(&["one.md"]), set(&["deep"])));
        model.take(4, "big/deep/two.md");
        assert!(model.listing(0, 4, "big").possible.contains("deep"));
        assert!(model.listing(0, 4, "big").difference(&set(&["deep", "other"])).expect("wrong").contains("one.md"));
    }

    #[test]
    fn what_others_put_into_a_hidden_directory_may_be_shown() {
        let mut model = family();
        model.save(0, 4, "sub/a.md", b"one".to_vec());
        model.hide_dir(0, 4, "sub");
        assert_eq!(model.shown(0, 4, "sub/a.md"), None);
        model.save(1, 4, "sub/b.md", b"two".to_vec());
        assert!(!model.shown(0, 4, "sub/b.md").expect("it may be shown").is_certain);
        assert!(model.shown(1, 4, "sub/b.md").expect("shown").is_certain);
        model.save(0, 4, "sub/c.md", b"three".to_vec());
        assert!(model.shown(0, 4, "sub/c.md").expect("shown").is_certain);
        assert!(!model.shown(0, 4, "sub/b.md").expect("it may be shown").is_certain);
    }

    #[test]
    fn an_empty_directory_is_hidden_with_the_one_it_is_in() {
        let mut model = family();
        model.save(0, 4, "sub/deep/d.md", b"one".to_vec());
        model.take(4, "sub/deep/d.md");
        model.hide_dir(0, 4, "sub");
        model.save(0, 4, "sub/c.md", b"two".to_vec());
        // Made again by another, in a directory that may still be hidden here.
        model.save(1, 4, "sub/deep/d.md", b"three".to_vec());
        assert!(!model.shown(0, 4, "sub/deep/d.md").expect("it may be shown").is_certain);
        assert!(model.listing(0, 4, "sub").certain.contains("c.md"));
        model.save(0, 4, "sub/deep/d.md", b"four".to_vec());
        assert!(model.shown(0, 4, "sub/deep/d.md").expect("shown").is_certain);
    }

    #[test]
    fn an_archived_parent_is_no_parent_of_what_is_not() {
        let mut model = family();
        model.set_archived(4, true);
        assert_eq!(model.conversations_in(0, ""), set(&["1-number-1", ".archive"]));
        model.rewrite(3, |it| it.parent = Some(4));
        assert_eq!(model.parent(3), None);
        assert!(model.names_above(3, 4));
    }

    #[test]
    fn what_is_removed_is_nowhere() {
        let mut model = family();
        model.hide_name(1, 3, EVENTS);
        model.views[0].drafts.insert((3, EVENTS.to_owned()), b"[ bro".to_vec());
        model.remove(3);
        assert!(!model.is_visible(0, 3) && model.views[1].hidden.is_empty());
        // But a draft of it is kept for whoever saved it.
        assert!(model.views[0].drafts.is_empty() && model.views[0].left_drafts.contains_key(&(3, EVENTS.to_owned())));
    }
}
