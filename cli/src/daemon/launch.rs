//! From the terminal into the background: the command starts its own executable once more and waits for one line that
//! says how it went.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use jp_fs::mount::Brought;
use jp_store::beneath::trusted;
use nix::unistd::{close, dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use serde::{Deserialize, Serialize};

use super::{Job, Ready, serve, tail};
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Kind, Result};
use crate::mounts::{Kind as MountKind, Record, StateDir};
use crate::ui::{Log, install_log};

/// The line.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    ready: bool,
    pid: Option<u32>,
    /// Whether somebody else was quicker.
    already: bool,
    mount: Option<Record>,
    /// What the real files brought.
    brought: Brought,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
    code: u8,
}

/// How the C library's allocator gives back what the start needed, which is several times what the daemon keeps. It reads this
/// when a process begins, and other allocators pass it over.
const FRUGAL: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_TRIM_THRESHOLD_", "262144")];

/// Starts the daemon and waits until the tree can be listed. If we are ended meanwhile, the daemon finds nobody to tell,
/// and ends as well.
pub(crate) fn launch(job: &Job) -> Result<Ready> {
    let failed = |error: &io::Error| Error::new(Kind::Damaged, "cannot start the daemon").because(error);
    let executable = std::env::current_exe().map_err(|error| failed(&error))?;
    let (reader, writer) = io::pipe().map_err(|error| failed(&error))?;
    let mut command = Command::new(executable);
    command.args(["mount", "--daemon"]).args((job.kind == MountKind::Mirror).then_some("--mirror"));
    command.args(job.names.iter().map(|name| format!("--{name}")));
    command.arg("--workspace").arg(&job.store.layout().project).arg("--").arg(&job.point);
    // Its standard output is the pipe: the one descriptor that needs no number to be told.
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).env_remove("NOTIFY_SOCKET");
    command.envs(FRUGAL);
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    // With our own copy of the pipe's other end, so that its end can be noticed.
    drop(command);
    let ready = await_line(reader, &StateDir::of(job.store.layout()));
    if ready.is_err() {
        let _ = child.wait();
    }
    ready
}

fn await_line(reader: PipeReader, state: &StateDir) -> Result<Ready> {
    let mut text = String::new();
    let read = BufReader::new(reader.take(1 << 20)).read_line(&mut text);
    let line = read.ok().and_then(|_| serde_json::from_str::<Line>(&text).ok());
    let Some(line) = line else {
        let mut died = Error::new(Kind::Damaged, "the daemon died before it was ready");
        died.causes.extend(tail(state));
        return Err(died
            .hint(format!("its log is {}", state.log().display()))
            .hint("`jp mount --foreground` shows more"));
    };
    match line {
        Line { ready: true, already: true, mount: Some(record), .. } => Ok(Ready::Already(record)),
        Line { ready: true, mount: Some(record), brought, .. } => Ok(Ready::Mounted(record, brought)),
        Line { message, causes, hints, code, .. } => Err(Error { kind: Exit(code).into(), message, causes, hints }),
    }
}

/// The daemon's own beginning: out of the terminal, then what every mount does.
pub(crate) fn detached(ctx: &Ctx<'_>, job: impl FnOnce() -> Result<Job>) -> Result<Exit> {
    let mut pipe = Some(leave().map_err(|error| Error::no("cannot leave the terminal").because(&error))?);
    let result = job().and_then(|job| {
        let state = StateDir::of(job.store.layout());
        state.make()?;
        let log = Log::open(state.files(), &state.log()).map_err(|error| Error::io("open", &state.log(), &error))?;
        install_log(log, ctx.env.clock.clone());
        std::panic::set_hook(Box::new(|info| tracing::error!("{info}")));
        serve(ctx, &job, |ready| {
            let line = match ready {
                Ready::Mounted(record, brought) => {
                    Line { ready: true, pid: Some(record.pid), mount: Some(record), brought, ..Line::default() }
                }
                Ready::Already(record) => {
                    Line { ready: true, already: true, pid: Some(record.pid), mount: Some(record), ..Line::default() }
                }
            };
            let told = pipe.take().map(|pipe| tell(pipe, &line));
            told.unwrap_or(Ok(())).map_err(|error| Error::no("nobody waits for the mount any more").because(&error))
        })
    });
    if let Err(error) = &result {
        // What went wrong at the end has been said.
        if let Some(pipe) = pipe.take() {
            tracing::error!("{}", error.whole());
            let Error { kind, message, causes, hints } = error;
            let (message, causes, hints) = (message.clone(), causes.clone(), hints.clone());
            let _ = tell(pipe, &Line { message, causes, hints, code: kind.exit().0, ..Line::default() });
        }
    }
    result
}

fn tell(mut pipe: File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    pipe.write_all(&text)
}

/// Lets go of the terminal, of the directory we were started in and of every file that was open there. Gives the pipe that
/// was standard output.
fn leave() -> io::Result<File> {
    let names = trusted::names("/proc/self/fd");
    let open: Vec<i32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).filter(|&fd| fd > 2).collect();
    for fd in open {
        // Nothing of ours is open yet; the listing's own descriptor is closed already.
        let _ = close(fd);
    }
    let pipe = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let null = trusted::open_device("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    // It fails for whoever leads a session already, who then needs none.
    let _ = setsid();
    std::env::set_current_dir("/")?;
    Ok(pipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(line: &str) -> Result<Ready> {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::in_dir(dir.path().join("state"), dir.path());
        state.make().unwrap();
        std::fs::write(state.log(), "1\n2\n3\n4\n5\n6\n").unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(line.as_bytes()).unwrap();
        drop(writer);
        await_line(reader, &state)
    }

    #[test]
    fn what_a_daemon_says() {
        let mount = r#"{"pid":7,"started":1,"point":"/p","project":"/","options":[],"version":"0","since":""}"#;
        let ready = format!("{{\"ready\":true,\"pid\":7,\"mount\":{mount}}}\n");
        assert!(matches!(hear(&ready), Ok(Ready::Mounted(record, _)) if record.pid == 7));
        let already = format!("{{\"ready\":true,\"already\":true,\"pid\":7,\"mount\":{mount}}}\n");
        assert!(matches!(hear(&already), Ok(Ready::Already(_))));
        let told =
            hear("{\"ready\":false,\"message\":\"no\",\"causes\":[\"c\"],\"hints\":[\"h\"],\"code\":4}\n").unwrap_err();
        assert_eq!((told.kind, told.message.as_str()), (Kind::Damaged, "no"));
        assert_eq!((told.causes, told.hints), (vec!["c".to_owned()], vec!["h".to_owned()]));
    }

    #[test]
    fn one_that_says_nothing_has_died() {
        for line in ["", "{\"ready\":tr", "panicked\n"] {
            let died = hear(line).unwrap_err();
            assert!(died.message.contains("died"), "{died}");
            assert_eq!(died.causes, ["2\n3\n4\n5\n6"]);
        }
    }
}
