//! Twenty processes read, save, move and remove through the mount while twenty commands work beside it. Nobody hangs, no
//! save is lost, and the daemon does not grow.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jp_tests::{Mounted, Running, Sample, TestEnv, User, have, setting, until};
use serde_json::Value;

use super::{asked, put};

const SAVERS: u64 = 10;
const MOVERS: u64 = 4;
const REMOVERS: u64 = 2;
const READERS: u64 = 4;
const COMMANDS: u64 = 20;

/// How much the daemon may grow in the second half.
const GROWTH: u64 = 30 * 1024 * 1024;

/// One process in the mount. What others do may hide a name for a moment or hold a conversation; nothing else may fail.
const WORKER: &str = r#"
import errno, json, os, random, select, shutil, sys, time
kind, own, others, seconds = sys.argv[1], sys.argv[2], sys.argv[3].split(","), float(sys.argv[4])
end = time.monotonic() + seconds
random.seed(own)
passing = (errno.EBUSY, errno.ENOENT, errno.ESTALE)
done = 0

def patiently(act):
    limit = time.monotonic() + 60
    while True:
        try:
            return act()
        except OSError as err:
            # Whose turn it is not tries again, but not for ever.
            if err.errno not in passing or time.monotonic() > limit:
                sys.exit(f"{kind} {own}: {err}")
            select.select([], [], [], 0.005)

def document(number):
    event = {"timestamp": "2026-01-01 00:00:00.0", "type": "chat_request", "content": f"{own} {number}"}
    text = {"timestamp": "2026-01-01 00:00:00.0", "type": "chat_response", "message": "so it is " * random.randrange(900)}
    return json.dumps([{"timestamp": event["timestamp"], "type": "turn_start"}, event, text], indent=2)

def save(number):
    path, text = f"{own}/events.json", document(number)
    if number % 3 == 0:
        with open(path, "w") as file:
            for at in range(0, len(text), 4096):
                file.write(text[at:at + 4096]); file.flush()
    else:
        with open(path + ".tmp", "w") as file:
            file.write(text)
            if number % 3 == 1:
                file.flush(); os.fsync(file.fileno())
        os.replace(path + ".tmp", path)

def place():
    for above in [".", *(f"{other}/conversations" for other in others)]:
        for name in os.listdir(above):
            if name.startswith(own):
                return f"{above}/{name}"
    raise FileNotFoundError(errno.ENOENT, "it is on its way", own)

def move():
    old = place()
    new = random.choice([".", *(f"{other}/conversations" for other in others)])
    if os.path.dirname(old) != new:
        os.rename(old, f"{new}/{os.path.basename(old)}")
    return new

def remove():
    # A removal that was disturbed goes on where it stopped.
    def again(function, path, info):
        if info[1].errno not in (*passing, errno.ENOTEMPTY):
            raise info[1]
    if os.path.lexists(name):
        shutil.rmtree(name, onerror=again)
    else:
        os.mkdir(name)

def read():
    def failed(err):
        if err.errno not in passing:
            raise err
    for dir, _, names in os.walk(".", onerror=failed):
        for name in names:
            try:
                with open(os.path.join(dir, name), "rb") as file:
                    file.read()
            except OSError as err:
                failed(err)

name = os.readlink(own) if kind == "remover" else None
last = None
while time.monotonic() < end or done == 0:
    if kind == "saver":
        patiently(lambda: save(done + 1))
    elif kind == "mover":
        last = patiently(move)
    elif kind == "remover":
        patiently(remove)
    else:
        patiently(read)
    done += 1
print(json.dumps({"done": done, "last": last}))
"#;

/// Commands beside the mount, by kind.
const BESIDE: [&str; 4] = [
    // What is removed while the report is made may be reported as missing.
    "jp c ls --json > /dev/null; jp status --json > /dev/null || test $? = 4",
    "new=$(jp c new --title \"Beside $1\"); jp c edit \"$new\" --title \"Beside $1 again\"; jp c rm --yes \"$new\"",
    "jp c label add --id \"jp-c$2\" \"round-$1-$round\"",
    "jp c print \"jp-c$2\" > /dev/null; jp c grep so --id \"jp-c$2\" > /dev/null || true",
];

struct Worker {
    kind: &'static str,
    id: u64,
    running: Running,
}

fn id(index: u64) -> u64 {
    17_650_000_000 + index * 10
}

#[test]
fn forty_at_once() {
    if !have(&["python3"]) {
        return;
    }
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    for index in 0..SAVERS + MOVERS + REMOVERS {
        let sample = Sample::new(id(index)).title(&format!("Worker {index}")).events(6);
        sample.write(m.workspace(), jp_tests::Place::Both);
    }
    m.begin(&[]);
    put(&m, "worker.py", WORKER);
    let seconds = setting("JP_STRESS_SECONDS").unwrap_or(15);
    let start = Instant::now();
    let mut workers: Vec<Worker> =
        (0..SAVERS + MOVERS + REMOVERS + READERS).map(|index| work(&m, index, seconds)).collect();
    let mut commands: Vec<Running> = (0..COMMANDS).map(|index| beside(&m, index, seconds)).collect();

    // The watchdog, and the size of the daemon meanwhile.
    let half = Duration::from_secs(seconds) / 2;
    let mut middle = None;
    let patience = Duration::from_secs(seconds + 180);
    let ended = until(patience, || {
        if middle.is_none() && start.elapsed() > half {
            middle = Some(size(&m));
        }
        workers.iter_mut().all(|worker| !worker.running.is_alive())
            && commands.iter_mut().all(|command| !command.is_alive())
    });
    assert!(ended, "somebody hangs\n{}", m.log());
    let (middle, last) = (middle.expect("halfway is on the way"), size(&m));
    assert!(last.saturating_sub(middle) < GROWTH, "the daemon grew from {middle} to {last} bytes");

    for command in commands {
        command.finish().ok();
    }
    until(Duration::from_secs(60), || m.status("drafts").is_empty());
    assert_eq!(m.status("drafts"), [] as [Value; 0], "whoever was told to come back later came back");
    for worker in workers {
        check(&m, worker);
    }
    m.check_store();
    assert!(!m.log().contains("panicked"), "{}", m.log());
}

#[track_caller]
fn work(m: &Mounted, index: u64, seconds: u64) -> Worker {
    let kinds = [("saver", SAVERS), ("mover", MOVERS), ("remover", REMOVERS), ("reader", READERS)];
    let all = kinds.iter().flat_map(|(kind, count)| std::iter::repeat_n(*kind, usize::try_from(*count).expect("few")));
    let kind = all.collect::<Vec<_>>()[usize::try_from(index).expect("few")];
    let others: Vec<String> = (0..SAVERS).map(|saver| id(saver).to_string()).collect();
    let script =
        format!("cd \"$M\" && exec python3 \"$T/worker.py\" {kind} {} {} {seconds}", id(index), others.join(","),);
    Worker { kind, id: id(index), running: m.start(&script) }
}

#[track_caller]
fn beside(m: &Mounted, index: u64, seconds: u64) -> Running {
    let command = BESIDE[usize::try_from(index % 4).expect("few")];
    // Commands of one kind work on what the savers save, so that both meet at the lock.
    let script = format!(
        "set -- {index} {}; export JP_SESSION=beside-{index} JP_LOCK_DURATION=2m; round=0
         exec 3>&2 > /dev/null 2> \"$T/beside-{index}\"; trap 'tail -n 5 \"$T/beside-{index}\" >&3' EXIT
         while [ $SECONDS -lt {seconds} ]; do round=$((round + 1)); {command}; done",
        id(index % SAVERS),
    );
    m.start(&script)
}

/// The memory of the daemon, in bytes.
#[track_caller]
fn size(m: &Mounted) -> u64 {
    let pid = m.daemon().expect("mount.json has the process");
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = fs::read_to_string(&path).unwrap_or_else(|err| panic!("the daemon is gone: {err}\n{}", m.log()));
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Asserts that what a worker is sure of is in the store.
#[track_caller]
fn check(m: &Mounted, worker: Worker) {
    let Worker { kind, id, running } = worker;
    let told = running.finish().ok();
    let done = told.json();
    assert!(done["done"].as_u64().is_some_and(|done| done > 0), "{}", told.told());
    match kind {
        "saver" => {
            let stored = asked(m.text(id, "events.json").as_bytes());
            assert_eq!(stored, Some(format!("{id} {}", done["done"])), "the last save of {id}");
        }
        "mover" => {
            let place = done["last"].as_str().expect("a place");
            let parent = place.split_once('/').map_or(Value::Null, |(above, _)| Value::from(format!("jp-c{above}")));
            assert_eq!(m.says(id, "parent"), parent, "the last move of {id}");
        }
        "remover" => {
            for (name, bytes) in Sample::new(id).events(6).contents() {
                if name != "metadata.json" {
                    assert_eq!(m.text(id, &name).as_bytes(), bytes, "{name} of {id}");
                }
            }
        }
        _ => assert_eq!(kind, "reader"),
    }
}
