//! What one worktree remembers: which conversations it is meant to show, and what the last reconcile left behind. The
//! content of `projection.json` as a value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::ConversationId;
use crate::identity::Identity;
use crate::join::HoldReason;
use crate::layout::Partition;
use crate::parallel;
use crate::plan::Form;
use crate::presence::Projection;
use crate::reconcile::{Base, Digest, FileBase, ManagedFile};
use crate::scan::Place;

/// The part of a ledger that is about no conversation is shorter than this.
const HEAD: usize = 4096;

/// The ledger of one worktree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The `.jp` directory it was made for; a ledger of another directory is void.
    #[serde(default)]
    workspace: Option<Identity>,
    /// The last writer here was a mount, so the real files may be behind.
    #[serde(default)]
    pub covered: bool,
    /// How the real files are laid out.
    #[serde(default)]
    pub form: Form,
    /// Whether the copies that were in the worktree at its first write are recorded.
    #[serde(default)]
    pub(crate) survey: Survey,
    /// The directory that holds the `.jp` directory, so that other worktrees can see whether this one is still there.
    #[serde(default)]
    pub(crate) project: Option<String>,
    /// Shared, because whoever changes a ledger keeps it as it was beside it, and only a few of very many differ.
    #[serde(default)]
    conversations: BTreeMap<ConversationId, Arc<Entry>>,
}

/// Whether a worktree's copies were surveyed: at the first write, every copy of a conversation that the store has too is
/// recorded with how it was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Survey {
    /// The ledger was written before there were surveys. Its worktree is known.
    #[default]
    Older,
    /// The ledger is new. It does not make its worktree known yet.
    Pending,
    /// Done. A copy of a conversation that has no entry arrived later.
    Done,
}

/// How this worktree first saw a copy of a conversation, until the copy is synced with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstSeen {
    /// It was there when the store already knew the worktree.
    Known,
    /// It was there when the store did not know the worktree: file times do not decide.
    Unknown,
    /// It is held: the user has to join it.
    Held(HoldReason),
}

/// The part of a ledger that is about no conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Head {
    #[serde(default)]
    workspace: Option<Identity>,
    #[serde(default)]
    pub(crate) covered: bool,
    #[serde(default)]
    pub(crate) form: Form,
    #[serde(default)]
    pub(crate) survey: Survey,
}

impl Head {
    /// The head of a ledger that is not there.
    pub(crate) fn of_none() -> Self {
        Self { survey: Survey::Pending, ..Self::default() }
    }

    /// The head of the ledger in these bytes, if they are one and it was made for this directory.
    pub(crate) fn parse(bytes: &[u8], workspace: Identity) -> Option<Self> {
        let head: Self = serde_json::from_slice(bytes).ok()?;
        is_of(head.workspace, workspace).then_some(head)
    }
}

/// What is remembered of one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whether it is meant to be here.
    pub intent: Projection,
    /// What the last reconcile left behind; `None` when it has not been here since the intent was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Files of it that are not shown in this worktree, as paths relative to its directory. The store has them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hidden: BTreeSet<String>,
    /// What this worktree last showed of the files that it hides, and of those that it hid when it hid the conversation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last_shown: BTreeMap<String, Digest>,
    /// How the last reconcile left the copy, beyond its managed files; `None` when it has no base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// How a copy was first seen that is not synced yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<FirstSeen>,
    /// It was never projected in this worktree. Ledgers that are older than this key do not tell, and count as projected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_projected: bool,
    /// The user made it local in this worktree by a command, and has not shown it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made_local: bool,
    /// What was beneath it when it was made local: all of that was hidden with it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub took_along: BTreeSet<ConversationId>,
}

impl Entry {
    /// Meant to be here or not, and nothing else known.
    pub fn new(intent: Projection) -> Self {
        let never_projected = intent == Projection::LocalOnly;
        Self {
            intent,
            base: None,
            hidden: BTreeSet::new(),
            last_shown: BTreeMap::new(),
            left: None,
            first_seen: None,
            never_projected,
            made_local: false,
            took_along: BTreeSet::new(),
        }
    }

    /// What this worktree last showed or exported under a name that it does not show, as far as it is known.
    pub fn last_shown(&self, file: &str) -> Option<Digest> {
        self.last_shown.get(file).copied().or_else(|| self.exported(file))
    }

    fn exported(&self, file: &str) -> Option<Digest> {
        match ManagedFile::from_name(file) {
            Some(managed) => self.base?.file(managed).digest,
            None => self.left.as_ref()?.own.get(file)?.digest,
        }
    }

    /// Hides one of its files. What is known of the bytes that it had here stays known.
    pub(crate) fn hide(&mut self, file: &str) {
        if self.hidden.insert(file.to_owned())
            && let Some(digest) = self.exported(file)
        {
            self.last_shown.entry(file.to_owned()).or_insert(digest);
        }
    }

    /// The conversation is about to be hidden. What a file had that was hidden once and is shown now says nothing any more.
    pub(crate) fn end_showing(&mut self) {
        if self.intent == Projection::Projected {
            let hidden = &self.hidden;
            self.last_shown.retain(|file, _| hidden.contains(file));
        }
    }

    /// Forgets what the last reconcile left behind. It was also what a conversation that is hidden showed last.
    pub(crate) fn forget_base(&mut self) {
        if self.intent == Projection::LocalOnly {
            let managed = ManagedFile::ALL.map(|file| file.name().to_owned());
            let own = self.left.iter().flat_map(|left| left.own.keys().cloned());
            for file in own.chain(managed).collect::<Vec<_>>() {
                if let Some(digest) = self.exported(&file) {
                    self.last_shown.entry(file).or_insert(digest);
                }
            }
        }
        (self.base, self.left) = (None, None);
    }

    /// The user does not keep it local here any more.
    pub(crate) fn end_made_local(&mut self) {
        self.made_local = false;
        self.took_along.clear();
    }

    /// Shows files again. The copy may lack them, although nothing in its directories has changed since it was last looked
    /// at: it is looked at again.
    pub(crate) fn show(&mut self, shown: impl Fn(&str) -> bool) {
        let before = self.hidden.len();
        self.hidden.retain(|file| !shown(file));
        if let Some(left) = self.left.as_mut().filter(|_| self.hidden.len() < before) {
            left.named = [None; 2];
        }
    }

    /// Whether it is local here, and no copy of it ever was here.
    pub(crate) fn was_never_here(&self) -> bool {
        self.never_projected && self.intent == Projection::LocalOnly
    }

    /// Whether the user made it local here by a command. A copy that turns up does not show it again.
    pub(crate) fn was_made_local(&self) -> bool {
        self.made_local && self.intent == Projection::LocalOnly
    }

    /// Whether the conversation is local in this worktree by decision. A copy that is not synced yet is no decision.
    pub(crate) fn is_local(&self) -> bool {
        let undecided = matches!(self.first_seen, Some(FirstSeen::Known | FirstSeen::Unknown));
        self.intent == Projection::LocalOnly && !undecided
    }
}

/// A copy as the last reconcile left it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Where it was left; `None` once that says nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// When the names in its two directories last changed: in the store, in the workspace. Where that is as it was, there
    /// is no file that is not remembered.
    #[serde(default)]
    pub named: [Option<i64>; 2],
    /// Files of the user's own that both had alike, by their path in the conversation's directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, FileBase>,
    /// The transcript that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<FileBase>,
}

/// A place in the workspace. A copy that is found elsewhere was moved by somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// Among whose children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneath: Option<ConversationId>,
    /// The directory's name.
    pub name: String,
    /// In which partition.
    #[serde(default, skip_serializing_if = "is_live")]
    pub partition: Partition,
}

impl At {
    /// Whether a directory that was just found lies here.
    pub(crate) fn is(&self, place: &Place) -> bool {
        self.beneath == place.beneath && self.partition == place.partition && *self.name == *place.name
    }
}

/// Whether a ledger was made for this directory.
fn is_of(made_for: Option<Identity>, workspace: Identity) -> bool {
    made_for.is_some_and(|made_for| made_for.is_same(workspace))
}

fn is_live(partition: &Partition) -> bool {
    *partition == Partition::Live
}

impl Ledger {
    /// An empty ledger for this directory.
    pub fn new(workspace: Identity) -> Self {
        Self { workspace: Some(workspace), survey: Survey::Pending, ..Self::default() }
    }

    /// The ledger in these bytes, whichever directory it was made for, with that directory.
    pub(crate) fn parse_any(bytes: &[u8]) -> Option<(Self, Identity)> {
        let ledger = Self::parse_lines(bytes).or_else(|| serde_json::from_slice(bytes).ok())?;
        let workspace = ledger.workspace?;
        Some((ledger, workspace))
    }

    /// The ledger in these bytes, if they are one and it was made for this directory.
    pub fn parse(bytes: &[u8], workspace: Identity) -> Option<Self> {
        let ledger = Self::parse_lines(bytes).or_else(|| serde_json::from_slice(bytes).ok())?;
        // Where more is known of the directory by now than the file says, it is written down with the next change.
        is_of(ledger.workspace, workspace).then_some(Self { workspace: Some(workspace), ..ledger })
    }

    /// The ledger in these bytes, if they are laid out as [`Ledger::to_bytes`] does it: then every line can be parsed by
    /// itself, and many of them at once.
    fn parse_lines(bytes: &[u8]) -> Option<Self> {
        let (start, end): (&[u8], &[u8]) = (b"\n\"conversations\": {", b"\n}\n}\n");
        let body = bytes.strip_suffix(end)?;
        let at = body.windows(start.len()).take(HEAD).position(|window| window == start)?;
        let head = [&body[..at], start, b"}}"].concat();
        let mut ledger: Self = serde_json::from_slice(&head).ok()?;
        let lines: Vec<_> = body[at + start.len()..].split(|&byte| byte == b'\n').skip(1).collect();
        let count = lines.len();
        let parse = |&(from, line): &(usize, &[u8])| {
            let line = if from + 1 < count { line.strip_suffix(b",")? } else { line };
            let (id, entry) =
                line.strip_prefix(b"\"")?.split_at_checked(line.iter().skip(1).position(|&b| b == b'"')?)?;
            let id: u64 = std::str::from_utf8(id).ok()?.parse().ok()?;
            let entry: Entry = serde_json::from_slice(entry.strip_prefix(b"\": ")?).ok()?;
            Some((ConversationId::new(id)?, Arc::new(entry)))
        };
        let numbered: Vec<_> = lines.into_iter().enumerate().collect();
        let parsed = parallel::map(&numbered, parse);
        ledger.conversations = parsed.into_iter().collect::<Option<_>>()?;
        (ledger.conversations.len() == count).then_some(ledger)
    }

    /// Forgets what real files are measured against. It is for whoever never looks at any, and writes nothing down.
    pub fn without_bases(mut self) -> Self {
        // A place that is remembered without a base is one that the next change forgets, so that it must be known.
        for entry in self.conversations.values_mut().filter(|entry| entry.base.is_some()) {
            let entry = Arc::make_mut(entry);
            (entry.base, entry.left) = (None, None);
        }
        self
    }

    /// As bytes: one line for each conversation, so that a person can read it and a diff is short.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let mut out = format!("{{\n\"workspace\": {},\n", serde_json::to_string(&self.workspace)?);
        if self.covered {
            out.push_str("\"covered\": true,\n");
        }
        if self.form != Form::default() {
            out.push_str(&format!("\"form\": {},\n", serde_json::to_string(&self.form)?));
        }
        if self.survey != Survey::Older {
            out.push_str(&format!("\"survey\": {},\n", serde_json::to_string(&self.survey)?));
        }
        if let Some(project) = &self.project {
            out.push_str(&format!("\"project\": {},\n", serde_json::to_string(project)?));
        }
        out.push_str("\"conversations\": {");
        for (i, (id, entry)) in self.conversations.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            out.push_str(&format!("{comma}\n\"{}\": {}", id.deciseconds(), serde_json::to_string(entry)?));
        }
        out.push_str("\n}\n}\n");
        Ok(out.into_bytes())
    }

    /// What is remembered of a conversation.
    pub fn get(&self, id: ConversationId) -> Option<&Entry> {
        self.conversations.get(&id).map(|entry| &**entry)
    }

    /// What is remembered of a conversation, to be changed.
    pub(crate) fn get_mut(&mut self, id: ConversationId) -> Option<&mut Entry> {
        self.conversations.get_mut(&id).map(Arc::make_mut)
    }

    /// Remembers; `true` if that is news.
    pub fn set(&mut self, id: ConversationId, entry: Entry) -> bool {
        let news = self.get(id) != Some(&entry);
        self.conversations.insert(id, Arc::new(entry));
        news
    }

    /// Everything that is remembered, by id.
    pub fn entries(&self) -> impl Iterator<Item = (ConversationId, &Entry)> {
        self.conversations.iter().map(|(&id, entry)| (id, &**entry))
    }

    /// The conversations of which two ledgers remember different things.
    pub fn differences(&self, other: &Self) -> BTreeSet<ConversationId> {
        let (mine, theirs) = (&self.conversations, &other.conversations);
        let changed = mine.iter().filter(|(id, entry)| theirs.get(id) != Some(entry));
        let new = theirs.keys().filter(|id| !mine.contains_key(id));
        changed.map(|(&id, _)| id).chain(new.copied()).collect()
    }

    /// What is remembered of a conversation, to be changed; where nothing is, it is not meant to be here.
    pub(crate) fn entry(&mut self, id: ConversationId) -> &mut Entry {
        let entry = self.conversations.entry(id);
        Arc::make_mut(entry.or_insert_with(|| Arc::new(Entry::new(Projection::LocalOnly))))
    }

    /// Lays the real files out differently from now on. Where copies lie says nothing of what anybody wants any more.
    pub(crate) fn set_form(&mut self, form: Form) {
        if self.form.nesting != form.nesting {
            for left in self.conversations.values_mut().filter_map(|entry| Arc::make_mut(entry).left.as_mut()) {
                left.at = None;
            }
        }
        self.form = form;
    }

    /// Records that the user wants a held copy joined.
    pub(crate) fn join(&mut self, id: ConversationId) {
        let entry = self.entry(id);
        entry.first_seen = Some(FirstSeen::Unknown);
        entry.intent = Projection::Projected;
        entry.never_projected = false;
        entry.end_made_local();
    }

    /// Forgets a conversation; `true` if it was known.
    pub fn forget(&mut self, id: ConversationId) -> bool {
        self.conversations.remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Kind, Stat};
    use crate::plan::Nesting;
    use crate::reconcile::{Digest, Stamp};

    #[test]
    fn survives_its_file_and_is_void_elsewhere() {
        let at = |ino| Stat { kind: Kind::Dir, size: 0, mtime: 1, ctime: 1, ino, dev: 1, mode: 0o755, birth: Some(3) };
        let here = Identity::new(at(2), Some(7));
        let id = ConversationId::new(17528832001).unwrap();
        let mut ledger = Ledger::new(here);
        let stamp = Stamp { mtime: 1_752_883_200_123_456_789, size: 9, ino: u64::MAX };
        let file = FileBase { digest: Some(Digest::of(b"x")), store: Some(stamp), work: None };
        let entry = Entry {
            intent: Projection::Projected,
            base: Some(Base { files: [file, FileBase::default(), FileBase::default()], taken: 5 }),
            hidden: ["notes/plan \"b\".md", "events.json"].map(String::from).into(),
            last_shown: [("events.json".to_owned(), Digest::of(b"y"))].into(),
            left: Some(Left {
                at: Some(At { beneath: Some(id), name: "175-größe".to_owned(), partition: Partition::Archived }),
                named: [Some(1), None],
                own: [("notes.md".to_owned(), file)].into(),
                transcript: Some(file),
            }),
            first_seen: Some(FirstSeen::Held(HoldReason::Private)),
            never_projected: true,
            made_local: true,
            took_along: [id].into(),
        };
        assert!(ledger.set(id, entry.clone()));
        assert!(!ledger.set(id, entry));
        let bytes = ledger.to_bytes().unwrap();
        assert_eq!(Ledger::parse(&bytes, here), Some(ledger.clone()));
        assert_eq!(Ledger::parse(&bytes, Identity::new(at(9), Some(7))), None);
        assert_eq!(Ledger::parse(b"{", here), None);
        let cut = &bytes[..bytes.len() / 2];
        assert_eq!(Ledger::parse(cut, here), None);
        ledger.covered = true;
        assert_eq!(Ledger::parse(&ledger.to_bytes().unwrap(), here), Some(ledger.clone()));
        ledger.covered = false;
        let flat = Form { nesting: Nesting::Flat, transcripts: true };
        ledger.set_form(flat);
        assert_eq!(ledger.get(id).unwrap().left.as_ref().unwrap().at, None);
        assert_eq!(Ledger::parse(&ledger.to_bytes().unwrap(), here), Some(ledger.clone()));
        ledger.set_form(Form::default());
        assert!(ledger.forget(id));
        assert_eq!(Ledger::parse(&ledger.to_bytes().unwrap(), here), Some(Ledger::new(here)));
    }
}
