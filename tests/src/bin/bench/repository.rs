//! A git repository that tracks the tree, with an index for each target. It has no contents of files: what is asked of it is
//! whether they changed, and hashes tell.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jp_tests::Workspace;

use crate::mount::{checked, fed};
use crate::site::Site;
use crate::targets::Target;

/// The repository, outside of every tree.
pub(crate) struct Repository {
    work: Workspace,
    dir: PathBuf,
}

impl Repository {
    /// Commits what the first target has, and makes an index of every target in which no file is left to be looked into.
    pub(crate) fn new(site: &Site, targets: &[Target]) -> Result<Self, Box<dyn Error>> {
        let repository = Self { work: site.work.clone(), dir: site.scratch("git") };
        let [first, ..] = targets else { return Err("there is nothing to track".into()) };
        // Files are older than their index by then, so that none of them has to be hashed again to tell a late change.
        if !repository.index(None).exists() {
            repository.commit(&first.root)?;
        }
        for target in targets {
            fs::copy(repository.index(None), repository.index(Some(target)))?;
            checked(repository.git(Some(target), &target.root).args(["update-index", "-q", "--refresh"]))?;
            // A second time, because entries that are as new as the index itself are hashed by every status.
            checked(repository.git(Some(target), &target.root).args([
                "update-index",
                "-q",
                "--refresh",
                "--force-write-index",
            ]))?;
        }
        Ok(repository)
    }

    /// `git status` of a target. It writes nothing.
    pub(crate) fn status(&self, target: &Target) -> Command {
        let mut command = self.git(Some(target), &target.root);
        command.args(["status", "--porcelain"]);
        command
    }

    fn commit(&self, tree: &Path) -> Result<(), Box<dyn Error>> {
        checked(self.git(None, tree).args(["init", "--quiet"]))?;
        let found =
            checked(self.work.env().command("find".as_ref(), tree).args([".", "-type", "f", "-printf", "%P\\n"]))?;
        let hashes = fed(self.git(None, tree).args(["hash-object", "--no-filters", "--stdin-paths"]), &found.stdout)?;
        let (paths, hashes) = (String::from_utf8(found.stdout)?, String::from_utf8(hashes.stdout)?);
        let mut entries = String::new();
        for (path, hash) in paths.lines().zip(hashes.lines()) {
            writeln!(entries, "100644 {hash}\t{path}")?;
        }
        fed(self.git(None, tree).args(["update-index", "--index-info"]), entries.as_bytes())?;
        let root = told(&checked(self.git(None, tree).args(["write-tree", "--missing-ok"]))?.stdout);
        let commit = told(&checked(self.git(None, tree).args(["commit-tree", "-m", "tree", &root]))?.stdout);
        checked(self.git(None, tree).args(["update-ref", "HEAD", &commit]))?;
        Ok(())
    }

    fn index(&self, target: Option<&Target>) -> PathBuf {
        self.dir.join(target.map_or("index".to_owned(), |target| format!("index.{}", target.name)))
    }

    fn git(&self, target: Option<&Target>, tree: &Path) -> Command {
        let mut command = self.work.env().command("git".as_ref(), tree);
        command
            .env("GIT_DIR", &self.dir)
            .env("GIT_WORK_TREE", tree)
            .env("GIT_INDEX_FILE", self.index(target))
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "bench").env(format!("GIT_{who}_EMAIL"), "bench@localhost");
        }
        command
    }
}

fn told(stdout: &[u8]) -> String {
    String::from_utf8_lossy(stdout).trim().to_owned()
}
