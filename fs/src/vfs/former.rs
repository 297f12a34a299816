//! Names that conversations had before, which outlive the mount: in `former.json` of this worktree's state.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jp_store::ConversationId;

use super::Vfs;
use crate::catalog::Former;

impl Vfs {
    /// Former names from an earlier mount. They are a convenience: without them nothing is lost.
    pub(super) fn load_former(&self) {
        let bytes = self.backing.read_all(&self.former_path()).ok();
        let former: Option<BTreeMap<ConversationId, Vec<Former>>> =
            bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut catalog = self.catalog.write();
        for (id, names) in former.into_iter().flatten() {
            for former in names {
                catalog.add_former(id, former);
            }
        }
        catalog.take_former_news();
    }

    /// Former names outlive the mount. Nothing is done where there are no new ones.
    pub fn keep_former(&self) {
        if self.rules.read_only || !self.catalog.write().take_former_news() {
            return;
        }
        let former: BTreeMap<_, _> = self.catalog.read().former().clone().into_iter().collect();
        let path = self.former_path();
        // Plain values are always JSON.
        let bytes = serde_json::to_vec(&former).unwrap_or_default();
        if let Err(error) = self.backing.replace(&path, &path.with_extension("new"), &bytes) {
            tracing::warn!(path = %path.display(), %error, "former names cannot be kept");
        }
    }

    fn former_path(&self) -> PathBuf {
        self.state.join("former.json")
    }
}
