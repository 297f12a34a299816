//! FUSE: decode, call, reply. The only file that knows the kernel's library.

use std::ffi::OsStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, SessionACL, TimeOrNow, WriteFlags,
};
use jp_store::disk::Kind;
use jp_store::modes::PERMISSIONS;

use crate::caller::Caller;
use crate::error::FsError;
use crate::mount::Options;
use crate::teller::Kernel;
use crate::vfs::{Attr, Found, Lookup, Opening, Rename, SetAttr, Vfs};

/// What is known to the kernel is good until it is told otherwise.
const LONG: Duration = Duration::from_secs(1 << 30);
/// What the kernel must ask again.
const NEVER: Duration = Duration::ZERO;

/// The filesystem as the library wants it.
#[derive(Debug)]
pub(crate) struct Host {
    vfs: Arc<Vfs>,
    /// Whether the kernel asks at every open.
    opens: bool,
}

/// Mounts. When this returns, the kernel has been greeted and requests wait to be served.
pub(crate) fn mount(vfs: Arc<Vfs>, point: &Path, options: &Options) -> io::Result<fuser::Session<Host>> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("jp".to_owned()),
        MountOption::Subtype("jp".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(4);
    config.clone_fd = true;
    fuser::Session::new(Host { vfs, opens: options.compat_open }, point, &config)
}

/// Tells the kernel.
pub(crate) struct Told(pub(crate) Notifier);

impl Kernel for Told {
    fn forget_name(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        self.0.inval_entry(INodeNo(parent), name)
    }

    fn forget_content(&self, number: u64) -> io::Result<()> {
        // The attributes alone: pages follow when the next reader learns of another time. To drop pages here waits for whoever
        // waits for us, and if we are killed meanwhile both wait for ever.
        self.0.inval_inode(INodeNo(number), -1, 0)
    }
}

impl Host {
    fn run<T>(&self, what: &str, number: u64, work: impl FnOnce(&Vfs) -> Result<T, FsError>) -> Result<T, Errno> {
        run(what, number, || work(&self.vfs))
    }

    /// How long what is about to be looked at may be remembered: not before every change of it is noticed.
    fn long(&self) -> Duration {
        if self.vfs.is_settled() { LONG } else { NEVER }
    }
}

/// Runs a request. A panic is an error of this request only.
fn run<T>(what: &str, number: u64, work: impl FnOnce() -> Result<T, FsError>) -> Result<T, Errno> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let errno = error.errno();
            if error.is_failure() {
                tracing::warn!(what, number, errno, %error, "a request failed");
            } else {
                tracing::trace!(what, number, errno, %error, "refused");
            }
            Err(Errno::from_i32(errno))
        }
        Err(_) => {
            tracing::error!(what, number, "a request panicked");
            Err(Errno::EIO)
        }
    }
}

impl Filesystem for Host {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let able = config.capabilities();
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_AUTO_INVAL_DATA;
        let without = InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        self.opens |= !able.contains(without);
        let wanted = if self.opens { wanted - without } else { wanted };
        // Only what the kernel offers is asked for, so it cannot refuse.
        let _ = config.add_capabilities(wanted & able);
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        let _ = config.set_time_granularity(Duration::from_nanos(1));
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let long = self.long();
        match self.run("lookup", parent.0, |vfs| vfs.lookup(caller(req), parent.0, name)) {
            Ok(Lookup::Found(Found { attr, keep })) => {
                reply.entry_with_ttls(&long, if keep { &long } else { &NEVER }, &told(&attr), Generation(0));
            }
            Ok(Lookup::Absent { keep: true }) => reply.entry(&long, &nothing(), Generation(0)),
            Ok(Lookup::Absent { keep: false }) => reply.error(Errno::ENOENT),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, count: u64) {
        let _ = self.run("forget", ino.0, |vfs| {
            vfs.forget(ino.0, count);
            Ok(())
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let long = self.long();
        match self.run("getattr", ino.0, |vfs| vfs.attr(ino.0)) {
            Ok(attr) => reply.attr(&long, &told(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let nanos = |time| match time {
            TimeOrNow::SpecificTime(time) => nanos_of(time),
            TimeOrNow::Now => self.vfs.now(),
        };
        let set = SetAttr { size, mode, uid, gid, atime: atime.map(nanos), mtime: mtime.map(nanos) };
        let long = self.long();
        match self.run("setattr", ino.0, |vfs| vfs.set_attr(caller(req), ino.0, set)) {
            Ok(Found { attr, keep }) => reply.attr(if keep { &long } else { &NEVER }, &told(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.run("readlink", ino.0, |vfs| vfs.read_link(ino.0)) {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return reply.error(Errno::EPERM);
        }
        let long = self.long();
        match self.run("mknod", parent.0, |vfs| vfs.create(caller(req), parent.0, name, mode)) {
            Ok(attr) => reply.entry(&long, &told(&attr), Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let long = self.long();
        match self.run("mkdir", parent.0, |vfs| vfs.make_dir(caller(req), parent.0, name, mode)) {
            Ok(attr) => reply.entry(&long, &told(&attr), Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.run("unlink", parent.0, |vfs| vfs.remove_file(caller(req), parent.0, name)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.run("rmdir", parent.0, |vfs| vfs.remove_dir(caller(req), parent.0, name)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let long = self.long();
        match self.run("symlink", parent.0, |vfs| vfs.make_link(caller(req), parent.0, name, target)) {
            Ok(attr) => reply.entry(&long, &told(&attr), Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            Rename::Exchange
        } else if flags.contains(RenameFlags::RENAME_NOREPLACE) {
            Rename::NoReplace
        } else if flags.is_empty() {
            Rename::Replace
        } else {
            return reply.error(Errno::EINVAL);
        };
        let rename = |vfs: &Vfs| vfs.rename(caller(req), (parent.0, name), (newparent.0, newname), how);
        match self.run("rename", parent.0, rename) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn link(&self, _req: &Request, _ino: INodeNo, _newparent: INodeNo, _newname: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.opens {
            true => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            false => reply.error(Errno::ENOSYS),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.run("read", ino.0, |vfs| vfs.read(ino.0, offset, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = |vfs: &Vfs| {
            if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                vfs.write_back(ino.0, offset, data)
            } else if flags.0 & libc::O_APPEND != 0 {
                vfs.append(caller(req), ino.0, offset, data)
            } else {
                vfs.write(caller(req), ino.0, offset, data)
            }
        };
        match self.run("write", ino.0, write) {
            // No request is longer than what was negotiated.
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        match self.opens {
            true => reply.ok(),
            false => reply.error(Errno::ENOSYS),
        }
    }

    fn fsync(&self, req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.run("fsync", ino.0, |vfs| vfs.sync(caller(req), ino.0)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.opens {
            true => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR),
            false => reply.error(Errno::ENOSYS),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listing = match self.run("readdir", ino.0, |vfs| vfs.list(ino.0, offset)) {
            Ok(listing) => listing,
            Err(errno) => return reply.error(errno),
        };
        for (position, listed) in listing.rest() {
            let number = INodeNo(self.vfs.number(&listed.node));
            if reply.add(number, position, kind(listed.kind), &listed.name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let listing = match self.run("readdirplus", ino.0, |vfs| vfs.list(ino.0, offset)) {
            Ok(listing) => listing,
            Err(errno) => return reply.error(errno),
        };
        let mut is_empty = true;
        for (position, listed) in listing.rest() {
            // The kernel does not count `.` and `..` as looked up, and takes nothing but their numbers.
            let dots = listed.is_dots();
            let long = self.long();
            let entered = self.run("readdirplus", ino.0, |vfs| match dots {
                true => Ok(Some(Attr::dir(vfs.number(&listed.node)))),
                false => vfs.enter_listed(ino.0, listed, offset == 0),
            });
            let attr = match entered {
                Ok(Some(attr)) => attr,
                Ok(None) => continue,
                Err(errno) if is_empty => return reply.error(errno),
                // What was found so far counts as looked up. The next request fails.
                Err(_) => break,
            };
            if reply.add(INodeNo(attr.number), position, &listed.name, &long, &told(&attr), Generation(0)) {
                if !dots {
                    self.vfs.forget(attr.number, 1);
                }
                break;
            }
            is_empty = false;
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.run("statfs", ino.0, Vfs::space) {
            Ok(space) => reply.statfs(
                space.blocks,
                space.free,
                space.available,
                space.files,
                space.files_free,
                space.block,
                255,
                space.block,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(if self.vfs.has_xattrs() { Errno::ENOTSUP } else { Errno::ENOSYS });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        answer_xattr(self.run("getxattr", ino.0, |vfs| vfs.xattr(ino.0, name)), size, reply);
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        answer_xattr(self.run("listxattr", ino.0, |vfs| vfs.xattrs(ino.0)), size, reply);
    }

    fn removexattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(if self.vfs.has_xattrs() { Errno::ENOTSUP } else { Errno::ENOSYS });
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself.
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let long = self.long();
        let create = |vfs: &Vfs| match flags & libc::O_EXCL {
            0 => vfs.open_or_create(caller(req), parent.0, name, mode, opening(req, flags)),
            _ => vfs.create(caller(req), parent.0, name, mode),
        };
        match self.run("create", parent.0, create) {
            Ok(attr) => {
                reply.created(&long, &told(&attr), Generation(0), FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(errno) => reply.error(errno),
        }
    }
}

fn answer_xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Err(errno) => reply.error(errno),
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

fn caller(req: &Request) -> Caller {
    Caller { pid: req.pid() }
}

fn opening(req: &Request, flags: i32) -> Opening {
    let access = flags & libc::O_ACCMODE;
    let (read, write) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
    Opening { uid: req.uid(), read, write, truncate: flags & libc::O_TRUNC != 0 }
}

fn told(attr: &Attr) -> FileAttr {
    let mtime = time(attr.mtime);
    FileAttr {
        ino: INodeNo(attr.number),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: time(attr.atime),
        mtime,
        ctime: time(attr.ctime),
        crtime: mtime,
        kind: kind(attr.kind),
        perm: (attr.mode & PERMISSIONS) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// A name that the kernel may take for absent until it is told otherwise.
fn nothing() -> FileAttr {
    told(&Attr {
        number: 0,
        kind: Kind::File,
        size: 0,
        mtime: 0,
        atime: 0,
        ctime: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        links: 0,
    })
}

fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File | Kind::Other => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Link => FileType::Symlink,
    }
}

fn time(nanos: i64) -> SystemTime {
    let since = Duration::from_nanos(nanos.unsigned_abs());
    let time = if nanos < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    time.unwrap_or(UNIX_EPOCH)
}

fn nanos_of(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_request() {
        let number = |result: Result<u8, Errno>| result.map_err(i32::from);
        assert_eq!(number(run("read", 1, || panic!("on purpose"))), Err(libc::EIO));
        assert_eq!(number(run("read", 1, || Err(FsError::Busy))), Err(libc::EBUSY));
        assert_eq!(number(run("read", 1, || Ok(7))), Ok(7));
    }

    #[test]
    fn times_go_both_ways() {
        for nanos in [0, 1, -1, 1_752_883_200_123_456_789, -1_000_000_001] {
            assert_eq!(nanos_of(time(nanos)), nanos);
        }
    }
}
