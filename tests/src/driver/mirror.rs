//! Real files that are kept in step with the store: each thing a program does is followed by a reconcile, as a mirror does
//! a moment later.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use jp_store::disk::RealDisk;
use jp_store::lock::Wait;
use jp_store::plan::{Direction, Wanted};
use jp_store::store::{Store, Surroundings};
use jp_store::writer::{Reconciled, Writer};

use super::{Attributes, Done, Driver, Files, Held, How, clock};
use crate::env::Workspace;

/// The real files of a workspace.
#[derive(Debug)]
pub struct Mirror {
    workspace: Workspace,
    files: Files,
    writer: Writer,
    last: Reconciled,
}

impl Mirror {
    /// Those of this one, in step with its store.
    #[track_caller]
    pub fn new(workspace: &Workspace) -> Self {
        let mut mirror = Self {
            workspace: workspace.clone(),
            files: Files::below(workspace.storage().join("conversations")),
            writer: writer(workspace),
            last: Reconciled::default(),
        };
        mirror.look();
        mirror
    }

    /// What the last reconcile did and left.
    pub fn last(&self) -> &Reconciled {
        &self.last
    }

    /// On a disk nobody can enter what is not there: whoever puts something among the children of a conversation that has
    /// none makes their directory first, and the archive's.
    fn make_room(&self, path: &str) {
        let path = self.files.path(path);
        let Some(above) = path.parent().filter(|above| !above.exists()) else { return };
        let is_ours = above.file_name().is_some_and(|name| name == "conversations" || name == ".archive");
        if is_ours && above.parent().is_some_and(Path::is_dir) {
            fs::create_dir(above).unwrap_or_else(|err| panic!("cannot make {}: {err}", above.display()));
        }
    }
}

#[track_caller]
fn writer(workspace: &Workspace) -> Writer {
    let around = Surroundings {
        disk: Arc::new(RealDisk::default()),
        data_dir: Some(workspace.env().data()),
        pid: std::process::id(),
        session: None,
        clock: clock(),
        covered: Arc::new(|_| false),
    };
    let store = Store::open(around, workspace.root()).expect("the store can be opened");
    store.writer().expect("the store can be written").0
}

impl Driver for Mirror {
    fn read(&mut self, path: &str) -> Done<Vec<u8>> {
        self.files.read(path)
    }

    fn write_in_pieces(&mut self, path: &str, bytes: &[u8], piece: usize) -> Done<()> {
        let done = self.files.write_in_pieces(path, bytes, piece);
        self.look();
        done
    }

    fn write_at(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Done<()> {
        let done = self.files.write_at(path, offset, bytes);
        self.look();
        done
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        let done = self.files.append(path, bytes);
        self.look();
        done
    }

    fn truncate(&mut self, path: &str, size: u64) -> Done<()> {
        let done = self.files.truncate(path, size);
        self.look();
        done
    }

    fn create(&mut self, path: &str) -> Done<()> {
        let done = self.files.create(path);
        self.look();
        done
    }

    fn rename_how(&mut self, from: &str, to: &str, how: How) -> Done<()> {
        self.make_room(to);
        let done = self.files.rename_how(from, to, how);
        self.look();
        done
    }

    fn unlink(&mut self, path: &str) -> Done<()> {
        let done = self.files.unlink(path);
        self.look();
        done
    }

    fn rmdir(&mut self, path: &str) -> Done<()> {
        let done = self.files.rmdir(path);
        self.look();
        done
    }

    fn mkdir(&mut self, path: &str) -> Done<()> {
        self.make_room(path);
        let done = self.files.mkdir(path);
        self.look();
        done
    }

    fn mkdir_and_leave(&mut self, path: &str) -> Done<()> {
        self.make_room(path);
        let done = self.files.mkdir_and_leave(path);
        self.look();
        done
    }

    fn symlink(&mut self, target: &str, path: &str) -> Done<()> {
        let done = self.files.symlink(target, path);
        self.look();
        done
    }

    fn readlink(&mut self, path: &str) -> Done<String> {
        self.files.readlink(path)
    }

    fn list(&mut self, path: &str) -> Done<Vec<String>> {
        self.files.list(path)
    }

    fn stat(&mut self, path: &str) -> Done<Attributes> {
        self.files.stat(path)
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Done<()> {
        let done = self.files.chmod(path, mode);
        self.look();
        done
    }

    fn set_mtime(&mut self, path: &str, mtime: i64) -> Done<()> {
        let done = self.files.set_mtime(path, mtime);
        self.look();
        done
    }

    fn sync(&mut self, path: &str) -> Done<()> {
        let done = self.files.sync(path);
        self.look();
        done
    }

    fn hold(&mut self, path: &str) -> Done<Box<dyn Held>> {
        self.files.hold(path)
    }

    fn look(&mut self) {
        let wanted = Wanted::all(Direction::Both);
        let done = self.writer.reconcile(&wanted, &Wait::none(), &mut |_| true);
        self.last = done.unwrap_or_else(|error| panic!("not in step: {error}"));
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn remount(&mut self) {
        self.writer = writer(&self.workspace);
        self.look();
    }

    fn held(&self) -> Vec<String> {
        self.last.held.iter().map(|held| held.reason.clone()).collect()
    }

    fn save(&mut self, path: &str, temporary: &str, bytes: &[u8]) -> Done<()> {
        // It is over before anybody looks, and so is the next.
        let done = self.files.save(path, temporary, bytes);
        self.look();
        done
    }

    fn remove_all(&mut self, path: &str) -> Done<()> {
        let done = self.files.remove_all(path);
        self.look();
        done
    }
}
