//! Worktrees and clones, made and removed by the real git. Conversations outlive all of them.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use jp_tests::{Output, Shot, TestEnv, Workspace};

use crate::story::{
    SECOND, assert_twins, bytes, conflicts, family, in_store, in_work, jp, listed, nesting, new, presence, rewrite,
    says, stored, work_file,
};

#[track_caller]
fn git(env: &TestEnv, cwd: &Path, args: &[&str]) -> Output {
    let mut command = env.command(OsStr::new("git"), cwd);
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
        .args(args);
    Output::of(command, b"").ok()
}

/// A checkout with three generations and one local conversation, committed.
struct Repository {
    env: TestEnv,
    main: Workspace,
    family: [String; 3],
    private: String,
}

impl Repository {
    #[track_caller]
    fn new() -> Self {
        let env = TestEnv::new();
        let root = env.project("main");
        git(&env, &root, &["init", "--quiet", "--initial-branch=main"]);
        env.jp(&root, &["init"]).ok();
        let main = env.workspace("main");
        let family = family(&main);
        let private = new(&main, "Private", &["--local"]);
        git(&env, &root, &["add", "--all"]);
        git(&env, &root, &["commit", "--quiet", "--message=talk"]);
        Self { env, main, family, private }
    }

    #[track_caller]
    fn worktree(&self, name: &str) -> Workspace {
        let path = self.env.root().join(name);
        git(&self.env, self.main.root(), &["worktree", "add", "--quiet", path.to_str().expect("UTF-8")]);
        self.env.workspace(name)
    }

    /// A worktree is made, talked in, and gone.
    #[track_caller]
    fn outlives(&self, remove: impl FnOnce(&Workspace)) {
        let [a, b, c] = &self.family;
        let feature = self.worktree("feature");
        for id in &self.family {
            assert_eq!(presence(&feature, id), "projected", "git brought it along");
        }
        assert_eq!(presence(&feature, &self.private), "local");

        let child = new(&feature, "Idea", &["--parent", c]);
        let root = new(&feature, "Elsewhere", &[]);
        let middle = new(&feature, "Within", &["--parent", &root]);
        let leaf = new(&feature, "Deep", &["--parent", &middle]);
        let fork = feature.jp(&["c", "fork", b, "--title", "Other way"]).line().to_owned();
        let events = work_file(&feature, &child, "events.json");
        fs::write(&events, "[\n  { \"type\": \"note\", \"timestamp\": \"2026-01-01 00:00:00.0\" }\n]\n")
            .expect("written");
        // A hand edit is in the store once anything is written to the conversation.
        jp(&feature, &["c", "edit", &child, "--pin"]);
        jp(&feature, &["c", "edit", a, "--title", "Matriarch"]);
        rewrite(&work_file(&feature, &leaf, "metadata.json"), "Deep", "Deeper", SECOND);
        jp(&feature, &["c", "edit", &leaf, "--pin"]);

        let made = [&child, &root, &middle, &leaf, &fork];
        let before: Vec<_> = made.iter().map(|id| bytes(&in_work(&feature, id).expect("shown"))).collect();
        let store = Shot::of(&feature.silo().join("conversations"));
        remove(&feature);
        assert!(!feature.root().exists());
        store.assert_same(&Shot::of(&self.main.silo().join("conversations")));

        for (id, before) in made.iter().zip(&before) {
            assert_eq!(presence(&self.main, id), "local");
            assert_eq!(says(&self.main, id, "origin"), "feature");
            assert_eq!(&bytes(&in_store(&self.main, id).expect("kept")), before, "{id}");
        }
        assert_eq!(says(&self.main, &leaf, "title"), "Deeper");
        assert_eq!(says(&self.main, &child, "events"), 1);
        assert_eq!(says(&self.main, a, "title"), "Matriarch", "the store is newer than this checkout");
        assert_eq!(presence(&self.main, a), "projected");

        let told = jp(&self.main, &["c", "edit", &leaf, "--local=false"]);
        assert!(told.stderr.contains("2 conversations above it are shown with it"), "{}", told.told());
        assert_eq!(nesting(&self.main, &leaf), ["elsewhere", "within", "deeper"]);
        jp(&self.main, &["c", "edit", &child, &fork, "--local=false"]);
        assert_eq!(nesting(&self.main, &child), ["matriarch", "mother", "daughter", "idea"]);
        assert_eq!(nesting(&self.main, &fork), ["matriarch", "mother", "other-way"]);
        for (id, before) in made.iter().zip(&before) {
            assert_twins(&self.main, id);
            assert_eq!(&bytes(&in_work(&self.main, id).expect("shown")), before, "{id}");
            assert_eq!(says(&self.main, id, "origin"), "feature");
        }
        assert_eq!(conflicts(&self.main), []);
    }
}

#[test]
fn a_worktree_removed_by_hand() {
    Repository::new().outlives(|feature| fs::remove_dir_all(feature.root()).expect("removed"));
}

#[test]
fn a_worktree_removed_by_git() {
    let repository = Repository::new();
    let path = repository.env.root().join("feature");
    let path = path.to_str().expect("UTF-8");
    repository.outlives(|_| {
        git(&repository.env, repository.main.root(), &["worktree", "remove", "--force", path]);
    });
}

#[test]
fn a_clone_is_external_until_written_to() {
    let repository = Repository::new();
    let [a, b, c] = &repository.family;
    fs::create_dir(work_file(&repository.main, b, "assets")).expect("made");
    fs::write(work_file(&repository.main, b, "assets/plan.md"), "a plan").expect("written");
    git(&repository.env, repository.main.root(), &["add", "--all"]);
    git(&repository.env, repository.main.root(), &["commit", "--quiet", "--message=plan"]);

    let env = TestEnv::new();
    git(&env, env.root(), &["clone", "--quiet", repository.main.root().to_str().expect("UTF-8"), "clone"]);
    let clone = env.workspace("clone");
    let before = Shot::of(env.root()).without(&["clone/.git"]);
    for id in &repository.family {
        assert_eq!(presence(&clone, id), "external");
        jp(&clone, &["c", "show", id]);
        jp(&clone, &["c", "print", id]);
        let path = in_work(&clone, id).expect("cloned");
        assert_eq!(clone.jp(&["c", "path", id]).line(), path.to_str().expect("UTF-8"));
    }
    assert_eq!(nesting(&clone, c), ["grandmother", "mother", "daughter"]);
    assert_eq!(listed(&clone, &repository.private), None);
    before.assert_same(&Shot::of(env.root()).without(&["clone/.git"]));

    jp(&clone, &["c", "edit", b, "--title", "Stepmother"]);
    assert_eq!(presence(&clone, b), "projected");
    assert_eq!((presence(&clone, a).as_str(), presence(&clone, c).as_str()), ("external", "external"));
    assert_eq!((in_store(&clone, a), in_store(&clone, c)), (None, None));
    assert_twins(&clone, b);
    let plan = in_store(&clone, b).expect("imported").join("assets/plan.md");
    assert_eq!(fs::read_to_string(plan).expect("imported"), "a plan");
    assert!(!in_store(&clone, b).expect("imported").join("conversations").exists(), "the store is flat");
    assert_eq!(nesting(&clone, c), ["grandmother", "stepmother", "daughter"]);
    assert_eq!(stored(&clone, b)["origin"], "main", "set once");
}

#[test]
fn a_worktree_made_anew_has_no_past() {
    let repository = Repository::new();
    let [a, _, c] = &repository.family;
    let old = repository.worktree("feature");
    jp(&old, &["c", "edit", c, "--local"]);
    // Meant to be shown as soon as its parent is.
    let child = new(&old, "Waiting", &["--parent", c]);
    let shown = new(&old, "Shown", &[]);
    fs::remove_dir_all(old.root()).expect("removed");
    git(&repository.env, repository.main.root(), &["worktree", "prune"]);
    let path = repository.env.root().join("feature");
    git(
        &repository.env,
        repository.main.root(),
        &["worktree", "add", "--quiet", path.to_str().expect("UTF-8"), "feature"],
    );
    let anew = repository.env.workspace("feature");

    assert_eq!(presence(&anew, c), "projected", "its files are here, whatever was meant before");
    assert_eq!(presence(&anew, &shown), "local");
    jp(&anew, &["c", "edit", c, &child, &shown, "--pin"]);
    assert_eq!(presence(&anew, c), "projected");
    assert_eq!(presence(&anew, &child), "local", "what the old worktree meant is void");
    assert_eq!(presence(&anew, &shown), "local");
    assert_eq!(presence(&anew, a), "projected");
    assert_twins(&anew, c);
}

/// A is archived elsewhere; here the copies of A and of B, which lies in it, follow with another change. B is taken out
/// elsewhere. That the copy of B still lies in the archive here does not mean that somebody put it there.
#[test]
fn a_copy_that_followed_into_the_archive_puts_nothing_away() {
    let repo = Repository::new();
    let [a, b, c] = &repo.family;
    let feature = repo.worktree("feature");
    jp(&feature, &["export"]);
    let other = new(&feature, "Other", &[]);
    jp(&repo.main, &["c", "archive", "--yes", a]);
    jp(&feature, &["c", "mv", &other, "--root"]);
    let archive = feature.storage().join("conversations/.archive");
    assert!(archive.is_dir(), "the copies follow into the archive");
    jp(&repo.main, &["c", "unarchive", b]);
    jp(&feature, &["c", "edit", b, "--title", "Second"]);
    jp(&feature, &["c", "edit", c, "--title", "Third"]);
    for id in [b, c] {
        assert!(listed(&repo.main, id).is_some_and(|row| row["archived"] == false), "{id} was taken out");
    }
    assert!(listed(&repo.main, a).is_none_or(|row| row["archived"] == true), "{a} stays in the archive");
}
