//! Extended attributes: what is known of a conversation, for programs that like to ask that way. Read only.

use std::ffi::OsStr;

use jp_store::ConversationId;
use jp_store::presence::StoragePresence;

use super::Vfs;
use crate::error::{FsError, Result};
use crate::node::Node;

/// Their names, without the common beginning.
const NAMES: [&str; 6] = ["id", "title", "parent", "presence", "locked", "draft"];

impl Vfs {
    /// Whether attributes are answered at all.
    pub fn has_xattrs(&self) -> bool {
        self.rules.xattrs
    }

    /// The value of an attribute.
    pub fn xattr(&self, number: u64, name: &OsStr) -> Result<Vec<u8>> {
        let node = self.node(number)?;
        let key = name.to_str().and_then(|name| name.strip_prefix("user.jp.")).ok_or(FsError::NoAttribute)?;
        let id = node.conversation().ok_or(FsError::NoAttribute)?;
        self.value(id, &node, key)?.map(String::into_bytes).ok_or(FsError::NoAttribute)
    }

    /// The names of the attributes a node has.
    pub fn xattrs(&self, number: u64) -> Result<Vec<u8>> {
        let node = self.node(number)?;
        let mut names = Vec::new();
        if let Some(id) = node.conversation() {
            for key in NAMES {
                if self.value(id, &node, key)?.is_some() {
                    names.extend_from_slice(format!("user.jp.{key}\0").as_bytes());
                }
            }
        }
        Ok(names)
    }

    fn value(&self, id: ConversationId, node: &Node, key: &str) -> Result<Option<String>> {
        let item = self.item(id)?;
        let yes = |is: bool| Some(if is { "true" } else { "false" }.to_owned());
        Ok(match key {
            "id" => Some(id.to_string()),
            "title" => item.title,
            "parent" => self.catalog.read().tree_parent(id).map(|parent| parent.to_string()),
            "presence" => Some(
                if item.shown { StoragePresence::Projected } else { StoragePresence::UserLocalOnly }.word().to_owned(),
            ),
            "locked" => yes(self.writer.store().locks().is_held(id)),
            "draft" => {
                let drafts = self.drafts.lock();
                yes(match node {
                    Node::Managed(id, file) => drafts.contains_key(&(*id, *file)),
                    _ => drafts.keys().any(|(other, _)| *other == id),
                })
            }
            _ => None,
        })
    }
}
