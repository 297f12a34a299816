//! Hostile repositories, stores and export targets.
//!
//! Links, FIFOs, sockets, devices, odd modes and odd names are planted in a worktree, in the store and in an export target.
//! Then commands run. No command may write, move or remove anything outside these three areas, copy or print a secret from
//! outside, destroy user files inside, panic, or hang. A trace of the system calls of each command gives the places at
//! which something is planted.
//!
//! Settings, as environment variables:
//! - `JP_HOSTILE_SEED=n`: another sample of commands.
//! - `JP_HOSTILE_FULL=1`: at every place, all commands that access it.
//! - `JP_HOSTILE_ONLY=text`: only places whose pattern contains the text.
//! - `JP_HOSTILE_REPORT=file`: appends every finding to this file (absolute path).
//! - `JP_HOSTILE_LIMIT=seconds`: the time limit of a command.

mod commands;
mod outside;
mod places;
mod plant;
mod sandbox;
mod suite;
mod trace;
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
fn commands_of_the_caller_are_confined() {
    confined(User::Own);
}

#[test]
fn commands_of_an_unprivileged_user_are_confined() {
    if geteuid().is_root() {
        confined(User::Nobody);
    } else {
        skip("the caller is an unprivileged user already");
    }
}

/// Control: with nothing planted, every command succeeds and there are no findings.
#[test]
fn a_benign_world_has_no_findings() {
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

/// Control: each of these scripts does one thing that no command may do.
#[test]
fn violations_are_found() {
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
fn a_hanging_command_is_killed() {
    in_world(|world| {
        let limit = Duration::from_millis(300);
        let ended = run_with(world, &["sh", "-c"], "mkfifo $W/tmp/p; echo begun; cat $W/tmp/p", limit);
        let ended = ended.expect("a shell can be run");
        assert!(ended.hung && ended.text == "begun\n", "{ended:?}");
        world.site.clear(&world.tag);
    });
}

/// With two `conversations -> ..` links, the number of paths doubles at each level. The number of system calls must not.
#[test]
fn upward_links_are_not_followed() {
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
                    // One of the two has children.
                    let _ = fs::remove_dir_all(&link);
                    symlink("..", &link).expect("the name is free");
                }
            }
            let (files, ended) = strace(world, "jp c ls", Duration::from_secs(10)).expect("strace works");
            world.site.clear(&world.tag);
            assert!(!ended.hung, "killed after {} system calls", trace::count(&files));
            trace::count(&files)
        })
    };
    let (plain, planted) = (calls(false), calls(true));
    assert!(planted < plain + plain / 2, "{plain} system calls without links, {planted} with two links");
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

/// Whether the required programs are installed.
#[track_caller]
fn ready() -> bool {
    have(&["strace", "fusermount3"])
}

/// Calls `work` in a new world.
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
