//! How a command speaks with the process behind a mount: one line of JSON each way, over a socket only its owner can use.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jp_fs::mount::Status;
use jp_fs::refusal::Refusal;
use jp_store::beneath::{AllowedDirs, WrongKind};
use jp_store::plan::Form;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};

use crate::steps::{Left, Outcome};

/// How long a request may be; a longer one is none.
const LONGEST: usize = 1 << 20;
/// How long an answer may be: a line for each of very many conversations.
const LONGEST_ANSWER: usize = 1 << 28;
/// How long a client may take to say what it wants, and to listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(crate) enum Request {
    /// How things stand.
    Status,
    /// Look at the store again; answered once the kernel has been told.
    Refresh,
    /// End the mount.
    Unmount {
        /// Even while somebody is in it.
        #[serde(default)]
        lazy: bool,
        /// The real files follow.
        #[serde(default = "yes")]
        export: bool,
    },
    /// How the mount ends; answered once it has, and the real files have followed or could not.
    Ending,
    /// The real files beneath the mount become what it shows.
    Export {
        /// The form they have from now on.
        #[serde(default)]
        form: Option<Form>,
        #[serde(flatten)]
        part: Part,
    },
    /// The store gets what arrived in the real files beneath the mount.
    Import {
        #[serde(flatten)]
        part: Part,
    },
    /// A draft, or a conversation that is arriving, is given up or committed.
    Draft {
        /// The conversation, as `jp-c…`.
        id: String,
        /// The managed file; `None` for a conversation that is arriving.
        #[serde(default)]
        file: Option<String>,
        /// What becomes of it.
        act: Act,
        /// Whether it is committed over what the store got since the draft began.
        #[serde(default)]
        force: bool,
    },
}

/// What becomes of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Act {
    /// It is given up, and its bytes are kept.
    Drop,
    /// It is committed.
    Apply,
}

/// Which part of an export or an import is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Only these conversations, as `jp-c…`; `None` for all.
    #[serde(default)]
    pub(crate) only: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) what: What,
    /// How long to wait for a lock, as `30s`; not at all when nothing is said.
    #[serde(default)]
    pub(crate) wait: Option<String>,
}

/// Whether something is done or only told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// It is done.
    Run,
    /// It is told what would be done.
    #[default]
    Plan,
}

fn yes() -> bool {
    true
}

/// What is answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Whether it was done.
    #[serde(default)]
    pub(crate) ok: bool,
    /// Whether it was not done because somebody is in the mount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) busy: bool,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// How things stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Status>,
    /// What an export or an import did, or would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Outcome>,
    /// Where bytes are kept that a draft lost to the store, or the store to a draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<String>,
    /// Why a draft was left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<Refusal>,
    /// The exit code that goes with the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<u8>,
    /// How the mount ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Ended>,
}

/// How a mount ended. It ended well if both lists are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// What of the real files did not follow, and why.
    pub(crate) left: Vec<Left>,
    /// What else failed.
    pub(crate) failures: Vec<Failure>,
}

/// Something that failed when a mount ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// The exit code that goes with it.
    pub(crate) code: u8,
}

impl Answer {
    /// It is done.
    pub(crate) fn done() -> Self {
        Self { ok: true, ..Self::default() }
    }

    /// It is not done.
    pub(crate) fn failed(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }
}

/// What is asked.
pub(crate) trait Served: Send + Sync {
    /// Answers a process.
    fn answer(&self, request: Request, caller: u32) -> Answer;
}

/// Where a socket is.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// How it is reached.
    pub(crate) files: AllowedDirs,
    pub(crate) path: PathBuf,
}

impl Address {
    /// Whether a socket is there. Anything else in its place is an error.
    fn is_there(&self) -> io::Result<bool> {
        match self.files.stat(&self.path) {
            Ok(found) if found.is_socket() => Ok(true),
            Ok(_) => Err(WrongKind::error(&self.path, "not a socket")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Calls with a path to the socket that leads through the descriptor of its directory: it fits into an address however
    /// long the other one is.
    fn reach<T>(&self, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let dir = self.files.open_dir(self.path.parent().unwrap_or(Path::new("/")))?;
        call(&AllowedDirs::path_of(&dir).join(self.path.file_name().unwrap_or_default()))
    }
}

/// Makes the socket. One that is there belongs to a process that is gone: who calls this holds the mount's lock.
pub(crate) fn listen(address: &Address) -> io::Result<UnixListener> {
    if address.is_there()? {
        address.files.remove_file(&address.path)?;
    }
    let listener = address.reach(|path| UnixListener::bind(path))?;
    address.files.set_mode(&address.path, 0o600)?;
    Ok(listener)
}

/// Everybody who is being answered.
pub(crate) struct Talks(Arc<()>);

impl Talks {
    /// Waits until everybody has their answer, but not forever: whoever ended the mount is to hear of it before the
    /// process ends.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        // One is ours.
        while Arc::strong_count(&self.0) > 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Answers whoever connects, each in a thread of its own, until the process ends.
pub(crate) fn serve(listener: UnixListener, served: Arc<dyn Served>) -> Talks {
    let talks = Arc::new(());
    let one = Arc::downgrade(&talks);
    std::thread::spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let (served, talk) = (served.clone(), one.upgrade());
                    std::thread::spawn(move || {
                        let _talk = talk;
                        if let Err(error) = converse(stream, &*served) {
                            tracing::debug!("a client of the control socket went away: {error}");
                        }
                    });
                }
                Err(error) => {
                    // Too many files open, most likely; it passes.
                    tracing::warn!("the control socket: {error}");
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    });
    Talks(talks)
}

fn converse(mut stream: UnixStream, served: &dyn Served) -> io::Result<()> {
    let peer = getsockopt(&stream, sockopt::PeerCredentials)?;
    let answer = if peer.uid() == nix::unistd::geteuid().as_raw() {
        let line = read_line(&mut stream, Instant::now() + PATIENCE, LONGEST)?;
        answer(&line, served, peer.pid().try_into().unwrap_or(0))
    } else {
        Answer::failed("this mount belongs to another user")
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    write_line(&mut stream, &answer)
}

fn answer(line: &[u8], served: &dyn Served, caller: u32) -> Answer {
    match serde_json::from_slice(line) {
        Ok(request) => served.answer(request, caller),
        Err(error) => Answer::failed(format!("no such request: {error}")),
    }
}

/// Asks one thing, and waits for the answer at most so long.
pub(crate) fn ask(address: &Address, request: &Request, limit: Duration) -> io::Result<Answer> {
    Asked::begin(address, request, limit)?.end()
}

/// A question that is not answered yet.
#[derive(Debug)]
pub(crate) struct Asked {
    stream: UnixStream,
    until: Instant,
}

impl Asked {
    /// Sends a request.
    pub(crate) fn begin(address: &Address, request: &Request, limit: Duration) -> io::Result<Self> {
        let until = Instant::now() + limit;
        if !address.is_there()? {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut stream = address.reach(|path| connect_within(path, limit))?;
        write_line(&mut stream, request)?;
        Ok(Self { stream, until })
    }

    /// Whether the answer begins to arrive within this time.
    pub(crate) fn begins(&self, limit: Duration) -> bool {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut watched = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        // What cannot be watched is waited for.
        !matches!(poll(&mut watched, limit), Ok(0))
    }

    /// From now on the answer may take so long.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.until = Instant::now() + limit;
        self
    }

    /// Waits for the answer.
    pub(crate) fn end(mut self) -> io::Result<Answer> {
        let line = read_line(&mut self.stream, self.until, LONGEST_ANSWER)?;
        serde_json::from_slice(&line).map_err(io::Error::from)
    }
}

/// A queue that is full holds up a plain connect for as long as the other side likes.
fn connect_within(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let limit = TimeVal::new(limit.as_secs().try_into().unwrap_or(60), limit.subsec_micros().into());
    setsockopt(&fd, sockopt::SendTimeout, &limit)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(fd))
}

fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One line, without its end; an error when it does not come in time, however slowly it does.
fn read_line(stream: &mut UnixStream, until: Instant, longest: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut buffer = [0; 1 << 16];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = match stream.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        };
        let chunk = &buffer[..read];
        if let Some(end) = chunk.iter().position(|&byte| byte == b'\n') {
            line.extend_from_slice(&chunk[..end]);
            return Ok(line);
        }
        line.extend_from_slice(chunk);
        if read == 0 || line.len() > longest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use jp_store::plan::Nesting;

    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<Request>>);

    impl Served for Told {
        fn answer(&self, request: Request, caller: u32) -> Answer {
            assert_eq!(caller, std::process::id());
            self.0.lock().unwrap().push(request.clone());
            match request {
                Request::Status => {
                    let status = Status { staleness: "watching".into(), shown: 3, ..Status::default() };
                    Answer { status: Some(status), ..Answer::done() }
                }
                Request::Refresh => Answer::done(),
                Request::Ending => {
                    let failures = vec![Failure { message: "full".into(), code: 4 }];
                    Answer { ended: Some(Ended { left: Vec::new(), failures }), ..Answer::done() }
                }
                Request::Unmount { lazy: true, .. } => Answer::done(),
                Request::Unmount { lazy: false, .. } => Answer { busy: true, ..Answer::default() },
                Request::Export { .. } => Answer { outcome: Some(Outcome::default()), ..Answer::done() },
                Request::Import { .. } => Answer { code: Some(4), ..Answer::failed("full") },
                Request::Draft { force: true, .. } => Answer { kept: Some("/kept".into()), ..Answer::done() },
                Request::Draft { .. } => Answer { refused: Some(Refusal::Gone), ..Answer::default() },
            }
        }
    }

    fn address(dir: &Path, name: &str) -> Address {
        let files = AllowedDirs::default();
        files.allow(dir).unwrap();
        Address { files, path: dir.join(name) }
    }

    /// Nobody speaks through a link, and what is not a socket is not taken away for one.
    #[test]
    fn what_is_not_a_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = address(dir.path(), "control.sock");
        for plant in [|path: &Path| fs::write(path, "mine").unwrap(), |path: &Path| symlink("elsewhere", path).unwrap()]
        {
            plant(&at.path);
            let before = fs::symlink_metadata(&at.path).unwrap().len();
            assert!(jp_store::beneath::is_wrong_kind(&listen(&at).unwrap_err()));
            assert!(jp_store::beneath::is_wrong_kind(&ask(&at, &Request::Status, PATIENCE).unwrap_err()));
            assert_eq!(fs::symlink_metadata(&at.path).unwrap().len(), before);
            fs::remove_file(&at.path).unwrap();
        }
    }

    struct Slow;

    impl Served for Slow {
        fn answer(&self, _request: Request, _caller: u32) -> Answer {
            std::thread::sleep(Duration::from_millis(200));
            Answer::done()
        }
    }

    #[test]
    fn whoever_asked_is_answered_before_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let address = address(dir.path(), "socket");
        let talks = serve(listen(&address).unwrap(), Arc::new(Slow));
        let mut stream = UnixStream::connect(&address.path).unwrap();
        stream.write_all(b"{\"do\":\"refresh\"}\n").unwrap();
        while Arc::strong_count(&talks.0) == 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        talks.finish();
        stream.set_nonblocking(true).unwrap();
        let mut answer = [0; 64];
        assert!(stream.read(&mut answer).unwrap() > 0, "the answer is there");
    }

    fn exchange(served: &Told, line: &str) -> String {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(line.as_bytes()).unwrap();
        converse(there, served).unwrap();
        let mut answer = String::new();
        here.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn one_line_each_way() {
        let served = Told::default();
        let check = |line: &str, expected: &str| assert_eq!(exchange(&served, line), format!("{expected}\n"), "{line}");
        check(
            "{\"do\":\"status\"}\n",
            r#"{"ok":true,"status":{"staleness":"watching","shown":3,"arrivals":[],"refused":[]}}"#,
        );
        check("{\"do\":\"refresh\"}\n", r#"{"ok":true}"#);
        check("{\"do\":\"unmount\",\"lazy\":true,\"export\":false}\n", r#"{"ok":true}"#);
        check(
            "{\"do\":\"export\",\"what\":\"run\",\"only\":[\"jp-c5\"],\"form\":{\"nesting\":\"flat\",\"transcripts\":true}}\n",
            r#"{"ok":true,"outcome":{"steps":[],"held":[],"busy":[],"shown":0}}"#,
        );
        check("{\"do\":\"import\",\"wait\":\"2s\"}\n", r#"{"ok":false,"error":"full","code":4}"#);
        check("{\"do\":\"draft\",\"id\":\"jp-c5\",\"act\":\"drop\"}\n", r#"{"ok":false,"refused":{"why":"gone"}}"#);
        check(
            "{\"do\":\"draft\",\"id\":\"jp-c5\",\"file\":\"events.json\",\"act\":\"apply\",\"force\":true}\n",
            r#"{"ok":true,"kept":"/kept"}"#,
        );
        check("{\"do\":\"unmount\"}\n{\"do\":\"status\"}\n", r#"{"ok":false,"busy":true}"#);
        let asked = [
            Request::Status,
            Request::Refresh,
            Request::Unmount { lazy: true, export: false },
            Request::Export {
                form: Some(Form { nesting: Nesting::Flat, transcripts: true }),
                part: Part { only: Some(vec!["jp-c5".into()]), what: What::Run, wait: None },
            },
            Request::Import { part: Part { wait: Some("2s".into()), ..Part::default() } },
            Request::Draft { id: "jp-c5".into(), file: None, act: Act::Drop, force: false },
            Request::Draft { id: "jp-c5".into(), file: Some("events.json".into()), act: Act::Apply, force: true },
            Request::Unmount { lazy: false, export: true },
        ];
        assert_eq!(*served.0.lock().unwrap(), asked);
        for line in ["{\"do\":\"dance\"}\n", "{}\n", "nonsense\n", "\n"] {
            let answer: Answer = serde_json::from_str(&exchange(&served, line)).unwrap();
            assert!(!answer.ok && answer.error.is_some_and(|error| error.starts_with("no such request")), "{line}");
        }
        assert_eq!(served.0.lock().unwrap().len(), asked.len());
    }

    #[test]
    fn one_who_leaves_or_dawdles_gets_no_answer() {
        let (here, mut there) = UnixStream::pair().unwrap();
        drop(here);
        let soon = || Instant::now() + Duration::from_millis(20);
        assert_eq!(read_line(&mut there, soon(), LONGEST).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.write_all(b"{\"do\":").unwrap();
        assert_eq!(read_line(&mut there, soon(), LONGEST).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn silent_clients_keep_nobody() {
        let dir = tempfile::tempdir().unwrap();
        // Long enough that the address does not hold it.
        let deep = dir.path().join("d".repeat(60)).join("e".repeat(60));
        fs::create_dir_all(&deep).unwrap();
        for dir in [dir.path(), &deep] {
            let at = address(dir, "control.sock");
            assert!(ask(&at, &Request::Status, PATIENCE).is_err());
            // A leftover is replaced.
            drop(listen(&at).unwrap());
            assert!(ask(&at, &Request::Status, PATIENCE).is_err());
            serve(listen(&at).unwrap(), Arc::new(Told::default()));
            assert_eq!(fs::metadata(&at.path).unwrap().permissions().mode() & 0o777, 0o600);
            let silent: Vec<_> = (0..8).map(|_| at.reach(|path| UnixStream::connect(path)).unwrap()).collect();
            let answer = ask(&at, &Request::Status, PATIENCE).unwrap();
            assert_eq!(answer.status.unwrap().shown, 3);
            drop(silent);
        }
    }
}
