//! Locks between real processes: this test binary started again, `flock(1)`, and Python.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

const HELD: &str = "the lock is held";
const REFUSED: &str = "the lock is refused";

/// A process that says when it holds a lock, and lets go when its input ends.
struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// This binary again, as `child` below.
    fn of(ground: &Ground) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "lock::tests::processes::child", "--ignored", "--nocapture"]);
        let mut peer = Self::start(&mut command);
        writeln!(peer.input.as_mut().unwrap(), "{}", ground.dir.path().display()).unwrap();
        peer
    }

    /// What it says first: that it holds, or that it may not.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if [HELD, REFUSED].contains(&line.trim_end()) {
                return line.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("the other process ended without a word");
    }

    fn finish(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Not a test: what the tests start. Its instruction is the directory, on a line of its input.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    let mut input = std::io::stdin().lock();
    let mut dir = String::new();
    input.read_line(&mut dir).unwrap();
    let dir = Path::new(dir.trim_end());
    let locks = LockDir::new(Arc::new(RealDisk::beneath(dir).unwrap()), dir.join("locks"), None, dir.join("borrowed"));
    let guard = locks.try_acquire(id(1), &pid(std::process::id()));
    let answer = if guard.is_ok() { HELD } else { REFUSED };
    writeln!(std::io::stdout(), "\n{answer}").unwrap();
    input.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_holder_is_seen_and_leaves() {
    let ground = Ground::new();
    let locks = ground.locks();
    let mut peer = Peer::of(&ground);
    assert_eq!(peer.answer(), HELD);
    let them = peer.child.id();
    assert_locked(locks.try_acquire(id(1), &pid(1)), Some(them));
    let listed = locks.list().unwrap();
    assert_eq!((listed.len(), listed[0].state), (1, State::Held));
    assert!(locks.clear_orphans().unwrap().is_empty());
    peer.finish();
    assert_eq!(locks.list().unwrap(), []);
    drop(locks.try_acquire(id(1), &pid(1)).unwrap());
}

#[test]
fn a_killed_holder_leaves_an_orphan() {
    let ground = Ground::new();
    let locks = ground.locks();
    let killed = || {
        let mut peer = Peer::of(&ground);
        assert_eq!(peer.answer(), HELD);
        let them = peer.child.id();
        peer.kill();
        assert_eq!(locks.holder(id(1)), Some(pid(them)));
        assert!(!locks.is_held(id(1)));
    };
    killed();
    assert_eq!(locks.list().unwrap()[0].state, State::Orphan);
    assert_eq!(locks.clear_orphans().unwrap(), [id(1)]);
    assert_eq!(ground.names(), Vec::<String>::new());
    killed();
    let guard = locks.try_acquire(id(1), &pid(1)).unwrap();
    assert_eq!(locks.holder(id(1)), Some(pid(1)));
    drop(guard);
    assert_eq!(ground.names(), Vec::<String>::new());
}

#[test]
fn a_waiter_outlives_a_killed_holder() {
    let ground = Ground::new();
    let mut peer = Peer::of(&ground);
    assert_eq!(peer.answer(), HELD);
    let peer = Mutex::new(Some(peer));
    let on_wait = |_, _: &Option<Holder>| peer.lock().unwrap().take().unwrap().kill();
    let wait = Wait { timeout: LONG, on_wait: &on_wait, cancelled: &|| false };
    assert!(ground.locks().acquire(id(1), &pid(1), &wait).unwrap().is_current());
}

#[test]
fn children_borrow_and_siblings_exclude_each_other() {
    let ground = Ground::new();
    let guard = ground.locks().try_acquire(id(1), &pid(std::process::id())).unwrap();
    let mut first = Peer::of(&ground);
    assert_eq!(first.answer(), HELD);
    assert!(ground.borrowed().join("jp-c1.1.lock").exists());
    let mut second = Peer::of(&ground);
    assert_eq!(second.answer(), REFUSED);
    first.finish();
    second.finish();
    let mut third = Peer::of(&ground);
    assert_eq!(third.answer(), HELD);
    guard.release().unwrap();
    assert_locked(ground.locks().try_acquire(id(1), &pid(1)), Some(third.child.id()));
    third.finish();
    drop(ground.locks().try_acquire(id(1), &pid(1)).unwrap());
}

#[test]
fn other_programs_that_flock() {
    let script = format!("echo '{HELD}'; cat");
    let python = format!(
        "import fcntl,sys\nf=open(sys.argv[1],'a')\nfcntl.flock(f,fcntl.LOCK_EX)\nprint('{HELD}',flush=True)\nsys.stdin.read()"
    );
    let check = |program: &str, args: &dyn Fn(&str) -> Vec<String>| {
        let ground = Ground::new();
        let locks = ground.locks();
        fs::create_dir(ground.primary()).unwrap();
        let path = ground.primary().join("jp-c1.lock");
        let mut peer = Peer::start(Command::new(program).args(args(path.to_str().unwrap())));
        assert_eq!(peer.answer(), HELD, "{program}");
        assert_locked(locks.try_acquire(id(1), &pid(1)), None);
        assert!(locks.is_held(id(1)) && locks.clear_orphans().unwrap().is_empty());
        peer.finish();
        // And the other way round: they find ours held.
        let guard = locks.try_acquire(id(1), &pid(1)).unwrap();
        let refused = Command::new("flock").args(["-n", path.to_str().unwrap(), "true"]).status().unwrap();
        assert_eq!(refused.code(), Some(1));
        drop(guard);
    };
    let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect();
    check("flock", &|path| owned(&["-x", path, "-c", &script]));
    check("python3", &|path| owned(&["-c", &python, path]));
}
