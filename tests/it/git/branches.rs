//! Branches with different trees change places beneath a mount.

use std::collections::BTreeMap;

use jp_tests::{Contents, Sample, ids};
use serde_json::Value;

use super::{N, SHOWN, assert_clean, assert_stored, commit, git, hub, kept, plain, repository, tree};

const E: u64 = 17_600_000_001;

#[test]
fn back_and_forth() {
    let Some(m) = repository() else { return };
    m.begin(&[]);
    // Moved, retitled, one more, one less, other words.
    git(&m, "checkout --quiet -b other");
    Sample::new(E).title("Elsewhere").events(6).write_below(&m.workspace().env().root().join("tmp"));
    m.sh("mv \"$D\" \"$B/conversations/\"
          sed -i 's/Third thoughts/Fourth thoughts/' \"$C/metadata.json\"
          cp -r \"$T\"/17600000001-elsewhere .
          sed -i 's/Question 0/Question zero/' \"$A/events.json\"
          echo note > \"$A/notes.md\"
          rm -r 17528812001-old-news");
    commit(&m, "other");
    // Nothing but one small tree, the other way up.
    git(&m, "checkout --quiet -b third main");
    m.sh("mv \"$C\" . && mv \"$B\" 17528852001-third-thoughts/conversations/ 2>/dev/null || {
            mkdir -p 17528852001-third-thoughts/conversations && mv \"$B\" 17528852001-third-thoughts/conversations/; }
          rm -r \"$A\" \"$O\"");
    commit(&m, "third");
    git(&m, "push --quiet origin other third");

    let branches = ["main", "other", "third"];
    let trees: BTreeMap<&str, Contents> =
        branches.iter().map(|branch| (*branch, plain(&m, &hub(&m), &format!("origin/{branch}")))).collect();
    assert_eq!(m.says(ids::B, "parent"), format!("jp-c{}", ids::C));
    // What is in no branch's reach at the moment is in the store all the same.
    let secret = kept(&m, ids::L);
    for round in 0..20 {
        let branch = branches[[0, 1, 2, 0, 2, 1][round % 6]];
        git(&m, &format!("checkout --quiet {branch}"));
        assert_clean(&m);
        assert_eq!(tree(&m), trees[branch], "round {round}: {branch}");
        assert_stored(&m, &trees[branch]);
        for id in SHOWN.into_iter().chain([E, ids::L]) {
            assert!(m.find_stored(id).is_some(), "round {round}: {id} is gone from the store");
        }
    }
    assert_eq!(kept(&m, ids::L), secret);
    assert_eq!(m.says(N, "presence"), "local", "the last branch has removed it");
    assert_eq!(m.status("drafts"), [] as [Value; 0]);
    m.end(&[]);
    assert_clean(&m);
    assert_eq!(tree(&m), trees["other"]);
    m.check_store();
}
