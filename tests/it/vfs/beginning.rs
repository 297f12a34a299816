//! The beginning of a mount: it is there before anything is watched, and nothing that happens until then is missed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jp_fs::backing::RealBacking;
use jp_fs::caller::Caller;
use jp_fs::node::ROOT;
use jp_fs::teller;
use jp_fs::vfs::{Lookup, Rules, Seen, Vfs};
use jp_store::ConversationId;
use jp_store::disk::{Kind, RealDisk};
use jp_store::journal::Change;
use jp_store::lock::Wait;
use jp_store::plan::{Direction, Wanted};
use jp_store::presence::Projection;
use jp_store::store::{Store, Surroundings};
use jp_store::writer::Writer;
use jp_tests::driver::clock;
use jp_tests::{Place, Sample, TestEnv, Workspace, mtime, set_mtime};

const A: u64 = 17_528_832_001;
const B: u64 = 17_528_842_001;
const C: u64 = 17_528_852_001;
const N: u64 = 17_528_892_001;

/// Paths, and the contents of files.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// Something that is done, and what it is.
type Deed<'a> = (&'a str, &'a dyn Fn(&Workspace, &Writer));

/// A and B beneath it and C, in both roots and in step.
fn world() -> Workspace {
    let workspace = TestEnv::new().init_workspace("project", "otvo8");
    // Long ago, so that stamps tell.
    let time = 1_750_000_000_000_000_000;
    Sample::new(A).title("Anna").mtime(time).write(&workspace, Place::User);
    Sample::new(B).title("Berta").parent(A).mtime(time).write(&workspace, Place::User);
    Sample::new(C).title("Clara").mtime(time).write(&workspace, Place::User);
    let writer = real(&workspace);
    for id in [A, B, C] {
        writer.toggle(id_of(id), Projection::Projected, &Wait::none()).unwrap();
    }
    writer.reconcile(&Wanted::all(Direction::Out), &Wait::none(), &mut |_| true).unwrap();
    workspace
}

fn id_of(id: u64) -> ConversationId {
    ConversationId::new(id).unwrap()
}

fn real(workspace: &Workspace) -> Writer {
    let around = Surroundings {
        disk: Arc::new(RealDisk::default()),
        data_dir: Some(workspace.env().data()),
        pid: std::process::id(),
        session: None,
        // What the ledger remembers of files is as good as old.
        clock: Arc::new(|| clock()() + Duration::from_secs(120)),
        covered: Arc::new(|_| false),
    };
    Store::open(around, workspace.root()).unwrap().writer().unwrap().0
}

fn seen(real: &Writer) -> Seen {
    let (_, seen) = Seen::by(real.store(), || {
        let (covered, snapshot) = real.cover_and_look()?;
        assert!(snapshot.is_some(), "the real files have no news: {covered:?}");
        Ok(((), snapshot))
    })
    .unwrap();
    seen
}

fn vfs(workspace: &Workspace, real: &Writer, seen: Option<Seen>) -> Vfs {
    let (writer, _) = real.store().covered().writer().unwrap();
    let under = workspace.storage().join("conversations");
    let backing = Arc::new(RealBacking::new(writer.store().allowed().clone()));
    Vfs::with(writer, backing, under, Rules::default(), teller::post().0, seen).unwrap()
}

fn tree(vfs: &Vfs) -> Tree {
    let mut tree = Tree::new();
    look(vfs, ROOT, Path::new(""), &mut tree);
    tree
}

fn look(vfs: &Vfs, number: u64, at: &Path, tree: &mut Tree) {
    let listing = vfs.list(number, 0).unwrap();
    for (_, listed) in listing.rest().filter(|(_, listed)| !listed.is_dots()) {
        let path = at.join(&listed.name);
        let Lookup::Found(found) = vfs.lookup(Caller { pid: std::process::id() }, number, &listed.name).unwrap() else {
            panic!("{} is listed and not there", path.display());
        };
        let file = (listed.kind == Kind::File).then(|| vfs.read(found.attr.number, 0, 1 << 20).unwrap());
        tree.insert(path.clone(), file);
        if listed.kind == Kind::Dir {
            look(vfs, found.attr.number, &path, tree);
        }
    }
}

fn stored(workspace: &Workspace, id: u64) -> PathBuf {
    let listed = fs::read_dir(workspace.silo().join("conversations")).unwrap().flatten();
    let named = listed.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(&id.to_string()));
    named.unwrap()
}

#[test]
fn one_look_is_as_good_as_two() {
    let workspace = world();
    let real = real(&workspace);
    let quick = tree(&vfs(&workspace, &real, Some(seen(&real))));
    assert_eq!(quick, tree(&vfs(&workspace, &real, None)));
    assert_eq!(quick.iter().filter(|(path, _)| path.ends_with("metadata.json")).count(), 3, "{quick:?}");
}

#[test]
fn covering_is_a_line_when_nothing_else_is_new() {
    let workspace = world();
    let real = real(&workspace);
    let layout = real.store().layout().clone();
    let (file, before) = (layout.projection_file(), fs::read(layout.projection_file()).unwrap());
    assert!(real.cover_and_look().unwrap().1.is_some());
    assert_eq!(fs::read(&file).unwrap(), before, "the ledger is not written anew");
    assert!(real.store().read_ledger().unwrap().covered);
    // Whoever comes next sees that a mount died here, and lets the files follow.
    fs::remove_dir_all(stored(&workspace, C)).unwrap();
    assert!(!real.store().writer().unwrap().0.store().read_ledger().unwrap().covered);
}

#[test]
fn what_happens_before_anything_is_watched() {
    let deeds: [Deed<'_>; 8] = [
        ("another title", &|_, real| {
            let writer = real.store().covered().writer().unwrap().0;
            let guard = writer.lock(id_of(A), &Wait::none()).unwrap();
            writer.edit(&guard, |meta| meta.set_title(Some("Other"))).unwrap();
        }),
        ("a title of the same length, with the file's time put back", &|workspace, _| {
            let path = stored(workspace, A).join("metadata.json");
            let (text, time) = (fs::read_to_string(&path).unwrap(), mtime(&path));
            fs::write(&path, text.replace("Anna", "Olga")).unwrap();
            set_mtime(&path, time);
        }),
        ("another parent", &|_, real| {
            let writer = real.store().covered().writer().unwrap().0;
            let guard = writer.lock(id_of(B), &Wait::none()).unwrap();
            writer.reparent(&guard, Some(id_of(C))).unwrap();
        }),
        ("hidden", &|_, real| real.store().covered().writer().unwrap().0.note(&[Change::Hide(id_of(A))]).unwrap()),
        ("archived", &|_, real| {
            real.store().covered().writer().unwrap().0.archive(id_of(A), &Wait::none()).unwrap();
        }),
        ("removed", &|workspace, _| fs::remove_dir_all(stored(workspace, C)).unwrap()),
        ("a new one", &|workspace, real| {
            Sample::new(N).title("Nora").write(workspace, Place::User);
            real.store().covered().writer().unwrap().0.note(&[Change::Show(id_of(N))]).unwrap();
        }),
        ("a file of its own", &|workspace, _| fs::write(stored(workspace, B).join("notes.md"), "new").unwrap()),
    ];
    for (what, deed) in deeds {
        for late in [false, true] {
            let workspace = world();
            let real = real(&workspace);
            let seen = seen(&real);
            if !late {
                deed(&workspace, &real);
            }
            let vfs = vfs(&workspace, &real, Some(seen));
            let before = if late { Some(tree(&vfs)) } else { None };
            if late {
                deed(&workspace, &real);
            }
            assert!(!vfs.is_settled(), "nothing is remembered that may be wrong");
            vfs.catch_up().unwrap();
            assert!(vfs.is_settled());
            let now = tree(&vfs);
            assert_eq!(now, tree(&self::vfs(&workspace, &real, None)), "{what}, late: {late}");
            assert_ne!(Some(now), before, "{what} makes a difference");
        }
    }
}

#[test]
fn news_of_the_real_files_are_taken_in_first() {
    let workspace = world();
    let real = real(&workspace);
    let path = workspace.storage().join("conversations/17528832001-anna/events.json");
    let text = "[\n  {\"timestamp\": \"2025-07-19 00:00:00.0\", \"type\": \"new\"}\n]\n";
    // Of the same length and with its time put back it would be no news to anybody; this is.
    fs::write(&path, text).unwrap();
    let (covered, snapshot) = real.cover_and_look().unwrap();
    assert!(snapshot.is_none() && covered.refused.is_empty(), "{covered:?}");
    assert_eq!(fs::read_to_string(stored(&workspace, A).join("events.json")).unwrap(), text);
}
