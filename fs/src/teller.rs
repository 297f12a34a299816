//! Tells the kernel what it should not remember any more, from a thread of its own that holds no lock: the kernel may wait
//! for an answer of ours before it listens.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::catalog::Stale;
use crate::vfs::Vfs;

/// What a kernel can be told.
pub trait Kernel: Send {
    /// A name in a directory may be, or not be, what it was.
    fn forget_name(&self, parent: u64, name: &OsStr) -> io::Result<()>;
    /// The attributes of a node, and its content with them, may have changed.
    fn forget_content(&self, number: u64) -> io::Result<()>;
}

/// Where news are dropped.
#[derive(Clone, Debug)]
pub struct Outbox(Sender<Letter>);

/// Where they are taken out.
#[derive(Debug)]
pub struct Inbox(Receiver<Letter>);

#[derive(Debug)]
enum Letter {
    Stale(Vec<Stale>),
    Receipt(Sender<()>),
    End,
}

/// Both ends.
pub fn post() -> (Outbox, Inbox) {
    let (sender, receiver) = channel();
    (Outbox(sender), Inbox(receiver))
}

impl Outbox {
    /// Drops news. Nobody may be there to take them, which is fine.
    pub fn send(&self, stale: Vec<Stale>) {
        let _ = self.0.send(Letter::Stale(stale));
    }

    /// Waits until everything dropped so far has been told; `false` when that takes longer than the limit.
    pub fn flush(&self, limit: Duration) -> bool {
        let (sender, receiver) = channel();
        self.0.send(Letter::Receipt(sender)).is_ok() && receiver.recv_timeout(limit).is_ok()
    }

    /// No more.
    pub fn end(&self) {
        let _ = self.0.send(Letter::End);
    }
}

impl Inbox {
    /// Throws away what is from before there was a kernel to tell. It would be worse than useless: a kernel that is told to
    /// forget the top while it asks about it for the first time takes it for closed to everybody.
    pub fn clear(&self) {
        for _ in self.0.try_iter() {}
    }

    /// Tells until the end. News that pile up are told once.
    pub fn run(self, vfs: &Vfs, kernel: &dyn Kernel) {
        while let Ok(first) = self.0.recv() {
            let (mut stale, mut receipts, mut end) = (HashSet::new(), Vec::new(), false);
            for letter in std::iter::once(first).chain(self.0.try_iter()) {
                match letter {
                    Letter::Stale(news) => stale.extend(news),
                    Letter::Receipt(sender) => receipts.push(sender),
                    Letter::End => end = true,
                }
            }
            // Names first: what a name stood for may be of another kind now, and whoever asks about that is told it is broken.
            let (names, rest): (Vec<_>, Vec<_>) = stale.into_iter().partition(|news| matches!(news, Stale::Name(..)));
            for news in names.into_iter().chain(rest) {
                if let Err(error) = tell(vfs, kernel, &news) {
                    tracing::debug!(?news, %error, "the kernel was not told");
                }
            }
            for receipt in receipts {
                // Whoever asked may have given up.
                let _ = receipt.send(());
            }
            if end {
                return;
            }
        }
    }
}

fn tell(vfs: &Vfs, kernel: &dyn Kernel, news: &Stale) -> io::Result<()> {
    match news {
        Stale::Name(dir, name) => match vfs.known(dir) {
            Some(parent) => kernel.forget_name(parent, name),
            None => Ok(()),
        },
        Stale::Content(node) | Stale::Attr(node) => match vfs.known(node) {
            Some(number) => kernel.forget_content(number),
            None => Ok(()),
        },
    }
}
