//! A commit goes around: it is made through a mount, cloned by somebody whose store is empty, read there, and mounted.

use jp_tests::{Shot, ids};

use super::{SHOWN, assert_clean, assert_stored, commit, git, hub, kept, plain, repository, tree};

#[test]
fn from_a_mount_to_another_store() {
    let Some(ours) = repository() else { return };
    ours.begin(&[]);
    assert_clean(&ours);
    ours.sh("sed -i 's/Question 0/Question zero/' \"$A/events.json\"
             sed -i 's/Alternative approach/Alternative approach, again/' \"$B/metadata.json\"
             echo 'one more thing' > \"$C/notes.md\"");
    // The name follows the title.
    commit(&ours, "edited");
    let shown = tree(&ours);
    assert_eq!(shown, plain(&ours, ours.root(), "main"));
    assert_stored(&ours, &shown);
    ours.end(&[]);
    assert_clean(&ours);
    assert_eq!(tree(&ours), shown, "the real files are what was shown");
    git(&ours, "push --quiet");

    let theirs = ours.cloned(&hub(&ours));
    let before = [theirs.root(), &theirs.workspace().env().data()].map(Shot::of);
    for id in SHOWN {
        assert_eq!(theirs.says(id, "presence"), "external");
    }
    let name = format!("{}", ids::C);
    for args in
        [&["c", "show", &name][..], &["c", "print", &name], &["c", "grep", "zero"], &["status"], &["import", "-n"]]
    {
        theirs.jp(args).ok();
    }
    assert_eq!(theirs.listed(ids::L), None, "what is local stays at home");
    for (before, path) in before.iter().zip([theirs.root(), &theirs.workspace().env().data()]) {
        before.assert_same(&Shot::of(path));
    }

    theirs.begin(&[]);
    assert_eq!(tree(&theirs), shown);
    assert_clean(&theirs);
    for id in SHOWN {
        assert_eq!(theirs.says(id, "presence"), "projected");
        assert_eq!(kept(&theirs, id), kept(&ours, id), "{id}");
    }
    theirs.end(&[]);
    assert_eq!(tree(&theirs), shown);
    assert_clean(&theirs);
    theirs.check_store();
    ours.check_store();
}
