//! How conversations are named on the command line. Words become a [`Target`], a target becomes conversations; only
//! asking the user and reading stdin happen elsewhere, in [`mod@choose`].

mod choose;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::layout::{CONVERSATIONS, Partition};
use jp_store::meta::Meta;
use jp_store::reconcile::ManagedFile;

use crate::ctx::View;
use crate::error::{Error, Result};

pub(crate) use self::choose::{Targets, among, one};

/// Fewer digits than this are more likely a word of a title than an id: ids have had eleven since 2001.
const DIGITS: usize = 9;

/// What `help` prints.
pub(crate) const HELP: &str = "\
jp-c17528832001        the conversation with this id; the digits alone will do, and so will its
                       directory or a path to it
.  active              this terminal's active conversation
s  session             the one that was active before it; also prev, previous
r  recent              the one last worked on, here or elsewhere; also last, last-activated
n  newest              the one created last; also last-created
p  pinned              the one pinned last
a  archived            the one archived last
parent                 the parent of the active conversation
root                   the topmost ancestor of the active conversation
+live  +session  +pinned  +archived
                       all of them; also +l, +s, +p, +a
?  ?pinned  ?session  ?archived
                       choose from a list; also ?p, ?s, ?a
-                      ids from standard input, one per line, as `jp c ls` prints them
anything else          choose from the conversations whose titles contain it
";

/// What a word on the command line stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This very one.
    Id(ConversationId),
    /// Perhaps an id: bare digits, or a directory's name. A title may contain the same.
    Loose(ConversationId, String),
    /// The terminal's active one.
    Active,
    /// The terminal's previous one.
    Previous,
    /// The one activated last.
    Recent,
    /// The one created last.
    Newest,
    /// The one pinned last.
    Pinned,
    /// The one archived last.
    Archived,
    /// The parent of the active one.
    Parent,
    /// The topmost ancestor of the active one.
    Root,
    /// All of a group.
    All(Group),
    /// Whatever stdin names.
    Stdin,
    /// Let the user choose from a group.
    Pick(Group),
    /// Explain the words.
    Help,
    /// Let the user choose among titles with this text.
    Search(String),
}

/// Conversations that can be named together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// All that are not archived.
    Live,
    /// Those this terminal has been on.
    Session,
    /// The pinned ones.
    Pinned,
    /// The archived ones.
    Archived,
}

/// What a target comes to without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// These.
    Ids(Vec<ConversationId>),
    /// One that the user chooses from these; the text narrows the list down.
    Choice(Vec<ConversationId>, String),
    /// Those named on stdin.
    Stdin,
    /// None; the words are to be explained.
    Help,
}

impl Target {
    /// Reads a word.
    pub(crate) fn parse(word: &OsStr) -> Self {
        let Some(text) = word.to_str() else {
            return from_path(word).unwrap_or_else(|| Self::Search(word.to_string_lossy().into_owned()));
        };
        match text {
            "." | "active" => Self::Active,
            "s" | "session" | "prev" | "previous" => Self::Previous,
            "r" | "recent" | "last" | "last-activated" => Self::Recent,
            "n" | "newest" | "last-created" => Self::Newest,
            "p" | "pinned" => Self::Pinned,
            "a" | "archived" => Self::Archived,
            "parent" => Self::Parent,
            "root" => Self::Root,
            "-" => Self::Stdin,
            "help" => Self::Help,
            "" | "?" => Self::Pick(Group::Live),
            _ => {
                let group = |prefix| text.strip_prefix(prefix).and_then(Group::parse);
                if let Some(group) = group('+') {
                    Self::All(group)
                } else if let Some(group) = group('?') {
                    Self::Pick(group)
                } else if let Ok(id) = text.parse() {
                    Self::Id(id)
                } else {
                    from_path(word).unwrap_or_else(|| Self::Search(text.to_owned()))
                }
            }
        }
    }

    /// Finds what is meant.
    pub(crate) fn resolve(&self, view: &View) -> Result<Found> {
        let one = |found: Option<ConversationId>, missing: &str| match found {
            Some(id) => Ok(Found::Ids(vec![id])),
            None => Err(Error::no(missing).hint("`jp c ls` lists the conversations, `jp c show help` the words")),
        };
        let snapshot = &view.snapshot;
        let latest = |partition, when: fn(&Conversation) -> Option<jp_store::time::Timestamp>| {
            let dated = snapshot.partition(partition).filter_map(|it| Some((when(it)?, it.id)));
            dated.max().map(|(_, id)| id)
        };
        let from_active = |find: &dyn Fn(ConversationId) -> Option<ConversationId>| match view.active() {
            Some(active) => one(find(active), &format!("{active} has no parent")),
            None => Err(no_active()),
        };
        match self {
            Self::Id(id) => view.find(*id).map(|found| Found::Ids(vec![found.id])),
            Self::Loose(id, text) => match snapshot.get(*id) {
                Some(found) => Ok(Found::Ids(vec![found.id])),
                None if text.bytes().take_while(u8::is_ascii_digit).count() >= DIGITS => {
                    Err(view.find(*id).err().unwrap_or_else(no_active))
                }
                None => Ok(Found::Choice(search(view, text), text.clone())),
            },
            Self::Active => one(view.active(), "this terminal has no active conversation"),
            Self::Previous => one(view.previous(), "this terminal has no previous conversation"),
            Self::Recent => {
                one(latest(Partition::Live, |it| Some(it.last_activated_at())), "there are no conversations")
            }
            Self::Newest => one(latest(Partition::Live, |it| Some(it.id.timestamp())), "there are no conversations"),
            Self::Pinned => {
                let pinned = |it: &Conversation| it.meta.as_ref().and_then(Meta::pinned_at);
                one(latest(Partition::Live, pinned), "no conversation is pinned")
            }
            Self::Archived => {
                // Where it lies says that it is archived; metadata only says when. What went together has the same
                // time, and is named by its topmost: the others come and go with that one.
                let tree = snapshot.tree(Partition::Archived);
                let archived = snapshot.partition(Partition::Archived).max_by_key(|it| {
                    let at = it.meta.as_ref().and_then(Meta::archived_at).unwrap_or(it.id.timestamp());
                    (at, std::cmp::Reverse(tree.ancestors(it.id).count()), it.id)
                });
                one(archived.map(|it| it.id), "no conversation is archived")
            }
            Self::Parent => from_active(&|id| snapshot.tree(Partition::Live).parent(id)),
            Self::Root => from_active(&|id| Some(snapshot.tree(Partition::Live).root_of(id))),
            Self::All(group) => Ok(Found::Ids(group.members(view))),
            Self::Stdin => Ok(Found::Stdin),
            Self::Pick(group) => Ok(Found::Choice(group.members(view), String::new())),
            Self::Help => Ok(Found::Help),
            Self::Search(text) => Ok(Found::Choice(search(view, text), text.clone())),
        }
    }
}

impl Group {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "l" | "live" => Some(Self::Live),
            "s" | "session" => Some(Self::Session),
            "p" | "pinned" => Some(Self::Pinned),
            "a" | "archived" => Some(Self::Archived),
            _ => None,
        }
    }

    /// The group's conversations, in the order a list to choose from shows them: this terminal's own, then the others,
    /// each latest first.
    fn members(self, view: &View) -> Vec<ConversationId> {
        let own = view.session_ids();
        if self == Self::Session {
            return own;
        }
        let partition = if self == Self::Archived { Partition::Archived } else { Partition::Live };
        let wanted = |it: &&Conversation| self != Self::Pinned || is_pinned(it);
        let mut members: Vec<_> = view.snapshot.partition(partition).filter(wanted).collect();
        members.sort_by_key(|it| {
            let rank = own.iter().position(|&id| id == it.id).unwrap_or(own.len());
            (rank, std::cmp::Reverse((it.last_activated_at(), it.id)))
        });
        members.into_iter().map(|it| it.id).collect()
    }
}

/// Whether a conversation is pinned.
pub(crate) fn is_pinned(conversation: &Conversation) -> bool {
    conversation.meta.as_ref().is_some_and(|meta| meta.pinned_at().is_some())
}

/// What to say when there is no active conversation and nobody to ask.
pub(crate) fn no_active() -> Error {
    Error::no("no conversation is named, and this terminal has no active one")
        .hint("give an id, or a word such as `last`; `jp c show help` lists the words")
        .hint("in a script, set JP_SESSION to the same value each time, and choose with `jp c use`")
}

/// Live conversations whose title contains the text, whatever its case.
fn search(view: &View, text: &str) -> Vec<ConversationId> {
    let text = text.to_lowercase();
    let matches = |&id: &ConversationId| {
        let title = view.snapshot.get(id).and_then(Conversation::title);
        title.is_some_and(|title| title.to_lowercase().contains(&text))
    };
    Group::Live.members(view).into_iter().filter(matches).collect()
}

/// Bare digits, a directory's name, or a path to the directory or something in it.
fn from_path(word: &OsStr) -> Option<Target> {
    let inside = |name: &OsStr| name == CONVERSATIONS || name.to_str().and_then(ManagedFile::from_name).is_some();
    let name = Path::new(word).iter().rev().find(|name| !inside(name))?;
    let id = ConversationId::from_dirname(name)?;
    // `+5` is a directory's name to JP, and no id to anybody.
    name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit).then_some(())?;
    Some(Target::Loose(id, name.to_string_lossy().into_owned()))
}

/// Words as typed, as targets.
pub(crate) fn parse_all(words: &[OsString]) -> Result<Vec<Target>> {
    let targets: Vec<Target> = words.iter().map(|word| Target::parse(word)).collect();
    let alone = targets.iter().position(|it| matches!(it, Target::Stdin | Target::Pick(_) | Target::Help));
    match alone {
        Some(index) if targets.len() > 1 => {
            Err(Error::usage(format!("`{}` stands alone", words[index].to_string_lossy())))
        }
        _ => Ok(targets),
    }
}

#[cfg(test)]
mod tests;
