//! The mirror of parent links and origins in `vfs/tree.json`. Another writer of metadata may drop keys it does not know; the
//! mirror is where they are found again. It is a value; reading and writing the file is the store's affair.

pub mod journal;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::ConversationId;
use crate::meta::{Meta, Parent};

/// What is mirrored, by conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    #[serde(default)]
    conversations: BTreeMap<ConversationId, Link>,
}

/// What is mirrored of one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<ConversationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

impl Link {
    /// As it is once it follows metadata.
    pub fn following(&self, meta: &Meta) -> Self {
        // Silence is what a writer leaves that does not know the key; it says nothing.
        let parent = self.effective_parent(meta);
        Self { parent, origin: meta.origin().map(ToOwned::to_owned).or_else(|| self.origin.clone()) }
    }

    /// The parent a conversation has: what its metadata says, and where that is silent this.
    pub fn effective_parent(&self, meta: &Meta) -> Option<ConversationId> {
        match meta.parent() {
            Parent::Of(parent) => Some(parent),
            Parent::Root => None,
            Parent::Absent | Parent::Garbage(_) => self.parent,
        }
    }

    /// As it is once the removal of the parent was meant.
    pub fn without_parent(&self) -> Self {
        Self { parent: None, ..self.clone() }
    }
}

impl Mirror {
    /// The mirrored parent.
    pub fn parent(&self, id: ConversationId) -> Option<ConversationId> {
        self.link(id).and_then(|link| link.parent)
    }

    /// The mirrored origin.
    pub fn origin(&self, id: ConversationId) -> Option<&str> {
        self.link(id).and_then(|link| link.origin.as_deref())
    }

    /// The parent a conversation has: what its metadata says, and where that is silent the mirror, then its place.
    pub fn effective_parent(
        &self,
        id: ConversationId,
        meta: Option<&Meta>,
        place: Option<ConversationId>,
    ) -> Option<ConversationId> {
        match meta.map_or(Parent::Absent, Meta::parent) {
            Parent::Of(parent) => Some(parent),
            Parent::Root => None,
            Parent::Absent | Parent::Garbage(_) => self.parent(id).or(place),
        }
    }

    /// Puts back into metadata what another writer dropped from it.
    pub fn heal(&self, id: ConversationId, meta: &mut Meta) {
        if let (Parent::Absent, Some(parent)) = (meta.parent(), self.parent(id)) {
            meta.set_parent(Parent::Of(parent));
        }
        if let (None, Some(origin)) = (meta.origin(), self.origin(id)) {
            meta.set_origin(origin);
        }
    }

    /// Makes the mirror follow metadata. `true` if that changed it.
    pub fn follow(&mut self, id: ConversationId, meta: &Meta) -> bool {
        self.set(id, self.of(id).following(meta))
    }

    /// As [`Mirror::follow`], for a file that came from elsewhere: where it names no parent, its place does.
    pub fn follow_place(&mut self, id: ConversationId, meta: &Meta, place: Option<ConversationId>) -> bool {
        match (meta.parent(), place) {
            (Parent::Absent, Some(parent)) => {
                let origin = meta.origin().or(self.origin(id)).map(ToOwned::to_owned);
                self.set(id, Link { parent: Some(parent), origin })
            }
            (Parent::Absent | Parent::Root | Parent::Of(_) | Parent::Garbage(_), _) => self.follow(id, meta),
        }
    }

    /// As [`Mirror::follow`], for a conversation that is put beneath this parent whatever its file says.
    pub fn place(&mut self, id: ConversationId, meta: &Meta, parent: Option<ConversationId>) -> bool {
        let origin = meta.origin().or(self.origin(id)).map(ToOwned::to_owned);
        self.set(id, Link { parent, origin })
    }

    /// Forgets a conversation. `true` if it was known.
    pub fn forget(&mut self, id: ConversationId) -> bool {
        self.conversations.remove(&id).is_some()
    }

    /// Forgets the parent alone, because its removal was meant. `true` if there was one.
    pub fn forget_parent(&mut self, id: ConversationId) -> bool {
        self.set(id, self.of(id).without_parent())
    }

    /// Takes over what another mirror knows and this one does not.
    pub fn absorb(&mut self, other: &Self) {
        for (id, link) in &other.conversations {
            let mine = self.conversations.entry(*id).or_default();
            mine.parent = mine.parent.or(link.parent);
            mine.origin = mine.origin.take().or_else(|| link.origin.clone());
        }
    }

    /// Everything that is mirrored of a conversation.
    pub fn of(&self, id: ConversationId) -> Link {
        self.link(id).cloned().unwrap_or_default()
    }

    /// The conversations of which two mirrors say different things.
    pub fn differences(&self, other: &Self) -> BTreeSet<ConversationId> {
        let (mine, theirs) = (&self.conversations, &other.conversations);
        let changed = mine.iter().filter(|(id, link)| theirs.get(id) != Some(link));
        let new = theirs.keys().filter(|id| !mine.contains_key(id));
        changed.map(|(&id, _)| id).chain(new.copied()).collect()
    }

    /// Makes this all that is mirrored of a conversation. `true` if that is news.
    pub fn set(&mut self, id: ConversationId, link: Link) -> bool {
        let before = if link == Link::default() {
            self.conversations.remove(&id)
        } else {
            self.conversations.insert(id, link.clone())
        };
        before.unwrap_or_default() != link
    }

    fn link(&self, id: ConversationId) -> Option<&Link> {
        self.conversations.get(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> ConversationId {
        ConversationId::new(n).unwrap()
    }

    fn meta(extra: &str) -> Meta {
        Meta::parse(format!(r#"{{"last_activated_at":"2025-07-19 00:00:00.0"{extra}}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn metadata_wins_then_the_mirror_then_the_place() {
        let mut mirror = Mirror::default();
        mirror.follow(id(1), &meta(r#","parent_id":7"#));
        for (extra, with_mirror, with_place, with_none) in [
            (r#","parent_id":5"#, Some(5), Some(5), Some(5)),
            (r#","parent_id":null"#, None, None, None),
            ("", Some(7), Some(9), None),
            (r#","parent_id":{"x":1}"#, Some(7), Some(9), None),
        ] {
            let meta = meta(extra);
            let got = |who, place: Option<u64>| {
                mirror.effective_parent(id(who), Some(&meta), place.map(id)).map(ConversationId::deciseconds)
            };
            assert_eq!(got(1, Some(9)), with_mirror, "{extra}");
            assert_eq!(got(2, Some(9)), with_place, "{extra}");
            assert_eq!(got(2, None), with_none, "{extra}");
        }
    }

    #[test]
    fn dropped_keys_are_healed_and_an_explicit_root_is_not() {
        let mut mirror = Mirror::default();
        assert!(mirror.follow(id(1), &meta(r#","parent_id":7,"origin":"feature-a""#)));
        assert!(!mirror.follow(id(1), &meta(r#","parent_id":7,"origin":"feature-a""#)));
        let mut stripped = meta("");
        mirror.heal(id(1), &mut stripped);
        assert_eq!(stripped.parent(), Parent::Of(id(7)));
        assert_eq!(stripped.origin(), Some("feature-a"));
        let mut root = meta(r#","parent_id":null"#);
        mirror.heal(id(1), &mut root);
        assert_eq!(root.parent(), Parent::Root);
        assert!(!mirror.follow(id(1), &meta("")));
        assert_eq!(mirror.parent(id(1)), Some(id(7)));
        assert!(mirror.follow(id(1), &root));
        assert_eq!(mirror.parent(id(1)), None);
        assert_eq!(mirror.origin(id(1)), Some("feature-a"));
        assert!(mirror.forget(id(1)) && !mirror.forget(id(1)));
        assert_eq!(mirror, Mirror::default());
    }
}
