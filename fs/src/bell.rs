//! A bell beside a watch: whoever waits for the system to tell of changes can be woken by others of this process.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::AddWatchFlags;

/// Everything that changes a name or a content.
pub(crate) const CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_MODIFY)
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_ONLYDIR);

/// The side of whoever waits.
#[derive(Debug)]
pub(crate) struct Bell {
    asked: Receiver<Ask>,
    ready: OwnedFd,
}

/// Wakes whoever waits.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    asks: Sender<Ask>,
    bell: Arc<OwnedFd>,
}

#[derive(Debug)]
enum Ask {
    Look(Sender<()>),
    End,
}

/// What was asked for since the last time.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Whoever wants to know when a fresh look has been taken.
    pub(crate) looks: Vec<Sender<()>>,
    /// No more.
    pub(crate) end: bool,
}

impl Asked {
    /// What was asked for later.
    pub(crate) fn add(&mut self, later: Self) {
        self.looks.extend(later.looks);
        self.end |= later.end;
    }

    /// Whether nobody asked.
    pub(crate) fn is_nothing(&self) -> bool {
        self.looks.is_empty() && !self.end
    }

    /// Tells everybody that a look has been taken.
    pub(crate) fn answer(self) {
        for look in self.looks {
            // Whoever asked may have given up.
            let _ = look.send(());
        }
    }
}

/// A bell, and what rings it.
pub(crate) fn bell() -> io::Result<(Bell, Waker)> {
    let (ready, bell) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
    let (asks, asked) = channel();
    Ok((Bell { asked, ready }, Waker { asks, bell: Arc::new(bell) }))
}

impl Waker {
    /// Has everything that happened so far noticed; `false` when that takes longer than the limit.
    pub(crate) fn look(&self, limit: Duration) -> bool {
        let (sender, receiver) = channel();
        self.ring(Ask::Look(sender)) && receiver.recv_timeout(limit).is_ok()
    }

    /// No more.
    pub(crate) fn end(&self) {
        self.ring(Ask::End);
    }

    fn ring(&self, ask: Ask) -> bool {
        self.asks.send(ask).is_ok() && nix::unistd::write(&*self.bell, b"!").is_ok()
    }
}

impl Bell {
    /// Waits until somebody asks, the other descriptor has something to say, or this long.
    pub(crate) fn wait(&self, other: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Asked {
        let mut fds = vec![PollFd::new(self.ready.as_fd(), PollFlags::POLLIN)];
        fds.extend(other.map(|other| PollFd::new(other, PollFlags::POLLIN)));
        let limit = limit.map_or(PollTimeout::NONE, |limit| {
            // The system counts in milliseconds; a wait that is cut short would be followed by very many shorter ones.
            let whole = Duration::from_millis(limit.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u64::MAX));
            PollTimeout::try_from(whole).unwrap_or(PollTimeout::MAX)
        });
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, limit);
        let mut sink = [0; 64];
        while nix::unistd::read(&self.ready, &mut sink).is_ok_and(|count| count == sink.len()) {}
        let mut asked = Asked::default();
        for ask in self.asked.try_iter() {
            match ask {
                Ask::Look(sender) => asked.looks.push(sender),
                Ask::End => asked.end = true,
            }
        }
        asked
    }
}
