//! What git takes away from a mounted worktree is hidden there, and in the store byte for byte.

use jp_tests::{Sample, contents, ids};

use super::{SHOWN, assert_clean, commit, git, kept, repository, tree};

const E: u64 = 17_600_000_001;

#[test]
fn stashed() {
    let Some(m) = repository() else { return };
    m.begin(&[]);
    let (committed, shown) = (m.store(), tree(&m));
    Sample::new(E).title("Untracked").events(6).write_below(&m.workspace().env().root().join("tmp"));
    m.sh("sed -i 's/Weekend/Stashed/' \"$D/metadata.json\"
          cp -r \"$T\"/17600000001-untracked \"$C/conversations\" 2>/dev/null || {
            mkdir -p \"$C/conversations\" && cp -r \"$T\"/17600000001-untracked \"$C/conversations/\"; }
          rm -r 17528812001-old-news");
    let (edited, changed) = (m.store(), tree(&m));
    let untracked = kept(&m, E);
    git(&m, "stash --quiet --include-untracked");
    assert_clean(&m);
    assert_eq!(tree(&m), shown);
    assert_eq!(kept(&m, E), untracked, "hidden, not gone");
    for (path, bytes) in &committed {
        assert_eq!(m.store().get(path), Some(bytes), "{}", path.display());
    }
    git(&m, "stash pop --quiet");
    assert_eq!(tree(&m), changed);
    assert_eq!(m.store(), edited);
    m.check_store();
}

#[test]
fn cleaned() {
    let Some(m) = repository() else { return };
    m.begin(&[]);
    let shown = tree(&m);
    Sample::new(E).title("Untracked").events(6).write_below(&m.workspace().env().root().join("tmp"));
    m.sh("mkdir -p \"$C/conversations\" && cp -r \"$T\"/17600000001-untracked \"$C/conversations/\"
          echo note > \"$D/notes.md\"");
    let before = m.store();
    git(&m, "clean -fdxq");
    assert_clean(&m);
    assert_eq!(tree(&m), shown);
    assert_eq!(m.store(), before, "the store keeps what was cleaned away");
    assert_eq!(m.says(E, "presence"), "local");
    m.end(&[]);
    assert_clean(&m);
    assert_eq!(tree(&m), shown);
    assert_eq!(m.store(), before);
    m.check_store();
}

#[test]
fn a_worktree_removed_with_its_mount() {
    let Some(m) = repository() else { return };
    let feature = m.worktree("feature");
    feature.begin(&[]);
    feature.sh("sed -i 's/Third thoughts/Fourth thoughts/' \"$C/metadata.json\"; echo note > \"$D/notes.md\"");
    let new = feature.jp(&["c", "new", "--title", "Made here", "--parent", &ids::D.to_string()]).line().to_owned();
    commit(&feature, "feature");
    let before = m.store();
    let (here, head) = (tree(&m), git(&m, "rev-parse HEAD"));
    // The mount point itself is in use; everything else goes.
    m.script("cd \"$P\" && git worktree remove --force ../feature");
    assert_eq!(m.store(), before, "the store has everything");
    feature.jp(&["unmount", "--lazy"]);
    m.script("rm -rf ../feature").ok();
    assert_eq!(m.store(), before, "and keeps it");

    let made: u64 = new.trim_start_matches("jp-c").parse().expect("an id");
    for id in SHOWN.into_iter().chain([made, ids::L]) {
        assert!(m.listed(id).is_some(), "{id} is not listed from the worktree that is left");
    }
    assert_eq!(m.says(made, "presence"), "local");
    assert_eq!(m.says(ids::C, "title"), "Fourth thoughts");
    assert_eq!((tree(&m), git(&m, "rev-parse HEAD")), (here, head), "what is left is as it was");
    assert_eq!(contents(&m.stored(ids::D)).get(std::path::Path::new("notes.md")), Some(&b"note\n".to_vec()));
    // The store's link back leads to a project that is there, as after any command that writes.
    m.jp(&["gc"]).ok();
    m.check_store();
}
