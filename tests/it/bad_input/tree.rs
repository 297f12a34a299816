//! Parents that are no parents, circles, and trees that are deeper than a path can be.

use std::fs;

use jp_tests::{Place, Sample, Workspace};
use serde_json::{Value, json};

use super::{A, B, C, assert_same, civil, jp, listed, problems, roots, sample, shots, workspace};

#[test]
fn every_spelling_of_a_parent() {
    let yes = json!(format!("jp-c{B}"));
    let table = [
        (json!(B), &yes, None),
        (json!(B.to_string()), &yes, None),
        (json!(format!("jp-c{B}")), &yes, None),
        (json!(format!("jp-c{B}-ab1cd")), &yes, None),
        (Value::Null, &Value::Null, None),
        (json!("garbage"), &Value::Null, Some("garbage-parent")),
        (json!("\u{1b}[31m\n"), &Value::Null, Some("garbage-parent")),
        (json!(""), &Value::Null, Some("garbage-parent")),
        (json!(-5), &Value::Null, Some("garbage-parent")),
        (json!(17_528_842_001.5), &Value::Null, Some("garbage-parent")),
        (json!(u64::MAX), &Value::Null, Some("garbage-parent")),
        (json!([B]), &Value::Null, Some("garbage-parent")),
        (json!({ "id": B }), &Value::Null, Some("garbage-parent")),
        (json!(true), &Value::Null, Some("garbage-parent")),
        (json!(17), &Value::Null, Some("missing-parent")),
        (json!(A), &Value::Null, Some("cycle")),
    ];
    for (parent, shown, kind) in table {
        let work = workspace();
        sample(B, "Parent").write(&work, Place::Both);
        sample(A, "Child").key("parent_id", parent.clone()).write(&work, Place::Both);
        let before = shots(&work);
        assert_eq!(listed(&work, A)["parent"], *shown, "{parent}");
        assert_eq!(jp(&work, &["c", "ls", "--tree"]).ok().stdout.lines().count(), 2, "{parent}");
        let (code, found) = problems(&work);
        let kinds: Vec<_> = found.iter().map(|one| one["kind"].as_str()).collect();
        assert_eq!((code, kinds), (0, Vec::from_iter(kind.map(Some))), "{parent}: {found:#?}");
        assert_same(&before, &work);

        // A change of something else leaves what stands there.
        jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).ok();
        let bytes = fs::read(roots(&work)[0].join(format!("{A}-new/metadata.json"))).expect("read");
        let metadata: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(metadata["parent_id"], parent);
        jp(&work, &["c", "mv", &A.to_string(), "--root"]).ok();
        jp(&work, &["doctor"]).ok();
    }
}

#[test]
fn a_circle_is_cut_once_at_its_smallest_id() {
    for ids in [&[A, B][..], &[A, B, C]] {
        for place in [Place::User, Place::Both] {
            let work = workspace();
            for (at, id) in ids.iter().enumerate() {
                sample(*id, "Round").parent(ids[(at + 1) % ids.len()]).write(&work, place);
            }
            let before = shots(&work);
            let output = jp(&work, &["c", "ls", "--tree"]).ok();
            assert_eq!(output.stdout.lines().count(), ids.len(), "{}", output.told());
            assert!(output.stdout.starts_with(&format!("jp-c{A}\t")), "{}", output.told());
            let (code, found) = problems(&work);
            assert_eq!((code, found.len()), (0, 1), "{found:#?}");
            assert_eq!((&found[0]["kind"], &found[0]["id"]), (&json!("cycle"), &json!(format!("jp-c{A}"))));
            for args in super::super::real_store::readers(&B.to_string()) {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                assert!(jp(&work, &args).code <= 1);
            }
            assert_same(&before, &work);

            for id in ids {
                jp(&work, &["c", "edit", "--title", "New", &id.to_string()]).ok();
            }
            jp(&work, &["c", "mv", &A.to_string(), "--parent", &B.to_string()]).fails_with(1);
            jp(&work, &["c", "archive", "-y", &A.to_string()]).ok();
            assert_eq!(
                jp(&work, &["c", "ls", "--archived", "--json"]).json().as_array().map(Vec::len),
                Some(ids.len())
            );
            jp(&work, &["c", "unarchive", &A.to_string()]).ok();
            jp(&work, &["c", "mv", &A.to_string(), "--root"]).ok();
            jp(&work, &["doctor"]).ok();
        }
    }
}

const LEVELS: u64 = 300;

fn deep(work: &Workspace) -> Vec<u64> {
    let ids: Vec<u64> = (0..LEVELS).map(|level| A + level * 10).collect();
    for (at, id) in ids.iter().enumerate() {
        let one = Sample::new(*id).events(1).without("base_config.json");
        let one = if at == 0 { one } else { one.parent(ids[at - 1]) };
        one.write(work, Place::User);
    }
    ids
}

#[test]
fn a_local_tree_may_be_as_deep_as_it_likes() {
    let work = workspace();
    let ids = deep(&work);
    let before = shots(&work);
    let leaf = ids[ids.len() - 1].to_string();
    assert_eq!(jp(&work, &["c", "ls", "--tree"]).ok().stdout.lines().count(), ids.len());
    assert_eq!(jp(&work, &["c", "ls", "--tree", "--json"]).json().as_array().map(Vec::len), Some(ids.len()));
    assert_eq!(problems(&work), (0, Vec::new()));
    assert_same(&before, &work);
    jp(&work, &["c", "edit", "--title", "Leaf", &leaf]).ok();
    jp(&work, &["c", "mv", &ids[0].to_string(), "--parent", &leaf]).fails_with(1);
    jp(&work, &["c", "mv", &ids[150].to_string(), "--root"]).ok();
    assert_eq!(listed(&work, ids[150])["parent"], Value::Null);
}

#[test]
fn a_projected_tree_ends_where_the_system_refuses() {
    // In memory, because some hundred copies are brought to disk one by one.
    let memory = std::path::Path::new("/dev/shm");
    let env = if memory.is_dir() { jp_tests::TestEnv::below(memory) } else { jp_tests::TestEnv::new() };
    let work = env.init_workspace("main", "ab1cd");
    let ids = deep(&work);
    let leaf = ids[ids.len() - 1].to_string();
    let before = shots(&work);
    // All of them are private, so each is named.
    let all: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let args: Vec<&str> = ["c", "edit", "--local=false"].into_iter().chain(all.iter().map(String::as_str)).collect();
    let output = jp(&work, &args).fails_with(4).says("is safe in the store");
    output.says(roots(&work)[1].to_str().expect("UTF-8")).says("name too long");
    before[0].assert_same(&shots(&work)[0]);

    // Whatever fits is there, and everything goes on working.
    let listing = jp(&work, &["c", "ls", "--json"]).json();
    let shown = listing.as_array().expect("an array").iter().filter(|one| one["presence"] == "projected").count();
    assert!(shown > 50 && shown < ids.len(), "{shown}");
    jp(&work, &["doctor"]).ok();
    jp(&work, &["c", "edit", "--title", "Leaf", &leaf]).ok();
    // A longer name above would push the lowest out of reach.
    let title = "A title that is long enough to make a difference";
    civil(work.jp(&["c", "edit", "--title", title, &ids[0].to_string()])).fails_with(4).says("is safe in the store");
    assert_eq!(listed(&work, ids[0])["title"], title);
    assert_eq!(problems(&work).0, 0);
    jp(&work, &["c", "edit", "--local", &ids[0].to_string()]).ok();
    assert_eq!(jp(&work, &["c", "ls", "--local", "--json"]).json().as_array().map(Vec::len), Some(ids.len()));
    jp(&work, &["doctor"]).ok();
}
