//! What a repository, another program or a name can do to a user: nothing.
//!
//! Whatever is planted in a worktree, in the store or in the target of an export, no command writes, moves or removes
//! anything outside those three, none copies or prints what it finds there, and none hangs. The places to plant at are those
//! that the commands open, as the kernel sees it (`trace`), and not those that somebody thought of.
//!
//! `JP_HOSTILE_SEED` chooses another sample of commands, `JP_HOSTILE_FULL=1` takes all of them, and
//! `JP_HOSTILE_ONLY=text` takes only the places whose pattern has that text in it. `JP_HOSTILE_REPORT=file` writes
//! everything that was found there.

// The commands, and one of them run to its end.
mod commands;
// Comparing everything outside.
mod outside;
// What is planted.
mod plant;
// A root directory of its own.
mod sandbox;
// What the program opens.
mod trace;
// Where things are planted.
mod places;
// Many worlds, and what was found in them.
mod suite;
// What lies around.
mod world;

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use jp_tests::{User, dirname, have, ids, setting, skip};
use nix::unistd::geteuid;

use self::commands::{COMMANDS, Cmd, one, run_with};
use self::places::strace;
use self::sandbox::Site;
use self::suite::{Job, jobs, run_all, tell};
use self::world::World;

const SEED: u64 = 20_251_117;

#[test]
fn whoever_runs_the_tests_is_safe() {
    confined(User::Own);
}

#[test]
fn a_user_without_rights_is_safe() {
    if geteuid().is_root() {
        confined(User::Nobody);
    } else {
        skip("whoever runs the tests is such a user already");
    }
}

/// Where nothing is planted, nothing is found: what the suite finds comes from what was planted.
#[test]
fn where_all_is_well_nothing_is_found() {
    if !ready() {
        return;
    }
    let users: &[User] = if geteuid().is_root() { &[User::Own, User::Nobody] } else { &[User::Own] };
    let mut all = Vec::new();
    for user in users {
        for known in [true, false] {
            let job = |commands| Job { place: None, known, user: *user, commands };
            all.extend(COMMANDS.iter().map(|command| job(vec![command])));
            all.push(job(COMMANDS.iter().collect()));
        }
    }
    let (found, runs) = run_all(&all);
    assert!(found.is_empty(), "{}", tell(&found, 0, runs));
}

/// The suite can fail: each of these does one thing that no command may do.
#[test]
fn what_must_not_happen_is_found() {
    static BAD: [(Cmd, &str); 9] = [
        (one("echo >> $W/outside/777"), "outside/777: other bytes"),
        (one("touch $W/main/src/main.rs"), "main/src/main.rs: other modification time"),
        (one("chmod 600 $W/home/documents/report.txt"), "report.txt: mode 644 is now 600"),
        (one("mkdir $W/other/.jp/conversations/new"), "created: srv/a/b/world/other/.jp/conversations/new (directory)"),
        (one("cat $W/home/.ssh/credentials"), "prints the secret"),
        (one("cat $W/home/.ssh/credentials > /dev/null"), "home/.ssh/credentials: was read"),
        (one("cp $W/outside/credentials .jp/conversations/copy"), "copies the secret to srv/a/b/world/main/.jp/conver"),
        (one("rm $W/target/.tmp/777"), "removed: srv/a/b/world/target/.tmp/777"),
        (one("echo 'thread main panicked at x' >&2; exit 101"), "crashed: thread main panicked at x"),
    ];
    let job = |cmd| Job { place: None, known: false, user: User::Own, commands: vec![cmd] };
    for (cmd, expected) in &BAD {
        let (found, _) = run_all(&[job(cmd)]);
        let told = tell(&found, 0, 1);
        assert!(told.contains(expected), "{}: expected {expected:?} in {told}", cmd.script);
    }
}

#[test]
fn a_command_that_hangs_is_ended() {
    in_world(|world| {
        let limit = Duration::from_millis(300);
        let ended = run_with(world, &["sh", "-c"], "mkfifo $W/tmp/p; echo begun; cat $W/tmp/p", limit);
        let ended = ended.expect("a shell can be run");
        assert!(ended.hung && ended.text == "begun\n", "{ended:?}");
        world.site.clear(&world.tag);
    });
}

/// Links that lead back up give a directory endlessly many names. Following them costs calls without end, so calls are
/// counted.
#[test]
fn links_that_lead_back_are_not_followed() {
    if !ready() {
        return;
    }
    let calls = |planted: bool| {
        in_world(move |world| {
            let top = world.root().join("main/.jp/conversations");
            let below = top.join(dirname(ids::A, Some("Refactor error handling"))).join("conversations");
            let inner = [(ids::B, "Alternative approach"), (ids::D, "Weekend plans")]
                .map(|(id, title)| dirname(id, Some(title)));
            fs::rename(top.join(&inner[1]), below.join(&inner[1])).expect("it is there");
            if planted {
                for name in &inner {
                    let link = below.join(name).join("conversations");
                    // The first of them has a child.
                    let _ = fs::remove_dir_all(&link);
                    symlink("..", &link).expect("nothing is in the way");
                }
            }
            let (files, ended) = strace(world, "jp c ls", Duration::from_secs(10)).expect("strace works");
            world.site.clear(&world.tag);
            assert!(!ended.hung, "no end after {} calls", trace::count(&files));
            trace::count(&files)
        })
    };
    let (plain, planted) = (calls(false), calls(true));
    assert!(planted < plain + plain / 2, "{plain} calls, and {planted} with two links");
}

#[track_caller]
fn confined(user: User) {
    if !ready() {
        return;
    }
    let seed = setting("JP_HOSTILE_SEED").unwrap_or(SEED);
    let (found, runs) = run_all(&jobs(user, seed));
    assert!(found.is_empty(), "{}", tell(&found, seed, runs));
}

/// Whether the places can be found. Says so when they cannot.
#[track_caller]
fn ready() -> bool {
    have(&["strace", "fusermount3"])
}

/// Does something in a world of its own.
#[track_caller]
fn in_world<T: Send>(work: impl FnOnce(&World) -> T + Send) -> T {
    thread::scope(|scope| {
        let inside = || {
            let site = Site::enter().expect("a site can be made");
            let tag = format!("{:?}", thread::current().id());
            work(&World::build(site, User::Own, tag).expect("a world can be built"))
        };
        scope.spawn(inside).join().expect("it does not panic")
    })
}
