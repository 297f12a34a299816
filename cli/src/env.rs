//! The world around the command as one value. Nothing else reads variables, the clock, the working directory or the
//! terminal session.
#![allow(clippy::disallowed_methods)]

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jp_store::disk::RealDisk;
use jp_store::session::{Hints, Session, TERMINAL_VARIABLES, choose};
use jp_store::store::{Clock, Surroundings};
use jp_store::time::Timestamp;

/// What a command may know of the world.
#[derive(Clone)]
pub struct Env {
    /// The working directory; `None` when it is gone.
    pub cwd: Option<PathBuf>,
    /// Where per-user data is kept; `None` without a home, and then the workspace is the only root.
    pub data_dir: Option<PathBuf>,
    /// This terminal.
    pub session: Option<Session>,
    /// How long to wait for a lock, as typed.
    pub lock_duration: Option<OsString>,
    /// The editor's command line, as typed.
    pub editor: Option<OsString>,
    /// Where temporary files go.
    pub temp_dir: PathBuf,
    /// Whether colour is welcome at a terminal.
    pub color: bool,
    /// The width of the terminal, where somebody knows it.
    pub columns: Option<usize>,
    /// Where the service manager wants to be told that we are ready.
    pub notify_socket: Option<OsString>,
    /// Which of the three streams are terminals.
    pub terminals: Terminals,
    /// This process.
    pub pid: u32,
    /// The time.
    pub clock: Clock,
}

/// Which streams are terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminals {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

impl Env {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cwd = std::env::current_dir().ok();
        let terminals = Terminals {
            stdin: std::io::stdin().is_terminal(),
            stdout: std::io::stdout().is_terminal(),
            stderr: std::io::stderr().is_terminal(),
        };
        Self {
            data_dir: data_dir(&var, cwd.as_deref()),
            session: choose(&hints(&var, session_leader())),
            lock_duration: var("JP_LOCK_DURATION"),
            editor: editor(&var),
            temp_dir: std::env::temp_dir(),
            color: wants_color(&var),
            columns: columns(&var).or_else(terminal_width),
            notify_socket: var("NOTIFY_SOCKET"),
            terminals,
            pid: std::process::id(),
            clock: Arc::new(Timestamp::now),
            cwd,
        }
    }

    /// What the store needs to know.
    pub fn surroundings(&self) -> Surroundings {
        Surroundings {
            disk: Arc::new(RealDisk::default()),
            data_dir: self.data_dir.clone(),
            pid: self.pid,
            session: self.session.clone(),
            clock: self.clock.clone(),
            covered: Arc::new(jp_store::mountinfo::is_ours_mounted),
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// Looks up a variable; an empty one is none.
type Vars<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

fn data_dir(var: &Vars<'_>, cwd: Option<&Path>) -> Option<PathBuf> {
    let text = |name| var(name).and_then(|value| value.into_string().ok());
    let chosen = text("JP_USER_DATA_DIR")
        .map(PathBuf::from)
        .or_else(|| text("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute()).map(|dir| dir.join("jp")))
        .or_else(|| var("HOME").map(|home| Path::new(&home).join(".local/share/jp")))?;
    // A relative one is relative to where we are; made absolute once, so that every path printed is.
    Some(cwd.map_or(chosen.clone(), |cwd| cwd.join(chosen)))
}

fn hints(var: &Vars<'_>, getsid: Option<i32>) -> Hints {
    let text = |name: &str| var(name).and_then(|value| value.into_string().ok());
    let terminal = TERMINAL_VARIABLES.into_iter().filter_map(|name| Some((name.to_owned(), text(name)?)));
    Hints { jp_session: text("JP_SESSION"), getsid, hwnd: None, terminal: terminal.collect() }
}

fn session_leader() -> Option<i32> {
    nix::unistd::getsid(None).ok().map(nix::unistd::Pid::as_raw)
}

fn editor(var: &Vars<'_>) -> Option<OsString> {
    ["JP_EDITOR", "VISUAL", "EDITOR"].into_iter().find_map(var)
}

fn wants_color(var: &Vars<'_>) -> bool {
    var("NO_COLOR").is_none() && var("TERM").as_deref() != Some(OsStr::new("dumb"))
}

fn columns(var: &Vars<'_>) -> Option<usize> {
    var("COLUMNS")?.to_str()?.parse().ok().filter(|&columns| columns > 0)
}

fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars<'a>(list: &'a [(&'a str, &'a [u8])]) -> impl Fn(&str) -> Option<OsString> + 'a {
        use std::os::unix::ffi::OsStrExt as _;
        move |name| {
            let found = list.iter().find(|(key, value)| *key == name && !value.is_empty());
            found.map(|(_, value)| OsStr::from_bytes(value).to_owned())
        }
    }

    #[test]
    fn data_dirs() {
        let check = |list: &[(&str, &[u8])], expected: Option<&str>| {
            let found = data_dir(&vars(list), Some(Path::new("/here")));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{list:?}");
        };
        check(&[], None);
        check(&[("HOME", b"/home/ada")], Some("/home/ada/.local/share/jp"));
        check(&[("HOME", b"/home/ada"), ("XDG_DATA_HOME", b"/xdg")], Some("/xdg/jp"));
        check(&[("HOME", b"/home/ada"), ("XDG_DATA_HOME", b"xdg")], Some("/home/ada/.local/share/jp"));
        check(&[("XDG_DATA_HOME", b"/xdg"), ("JP_USER_DATA_DIR", b"/mine")], Some("/mine"));
        check(&[("JP_USER_DATA_DIR", b"mine")], Some("/here/mine"));
        check(&[("JP_USER_DATA_DIR", b""), ("XDG_DATA_HOME", b"/xdg")], Some("/xdg/jp"));
        check(
            &[("JP_USER_DATA_DIR", b"/\xff"), ("XDG_DATA_HOME", b"/\xff"), ("HOME", b"/h")],
            Some("/h/.local/share/jp"),
        );
    }

    #[test]
    fn sessions() {
        let check = |list: &[(&str, &[u8])], sid, expected: &str| {
            let found = choose(&hints(&vars(list), sid)).map(|session| session.key());
            assert_eq!(found.as_deref().unwrap_or("none"), expected, "{list:?}");
        };
        check(&[], None, "none");
        check(&[("JP_SESSION", b"1234")], Some(77), "env-JP_SESSION-03ac674216f3e15c");
        check(&[("JP_SESSION", b"\xff"), ("TMUX_PANE", b"%3")], Some(77), "getsid-77");
        check(&[("WEZTERM_PANE", b"1"), ("TMUX_PANE", b"%3")], None, "env-TMUX_PANE-cb00ccd344b9bcfa");
    }

    #[test]
    fn editors() {
        let check = |list: &[(&str, &[u8])], expected: Option<&str>| {
            assert_eq!(editor(&vars(list)).as_deref(), expected.map(OsStr::new), "{list:?}");
        };
        check(&[], None);
        check(&[("EDITOR", b"vi")], Some("vi"));
        check(&[("EDITOR", b"vi"), ("VISUAL", b"code -w")], Some("code -w"));
        check(&[("EDITOR", b"vi"), ("VISUAL", b""), ("JP_EDITOR", b"")], Some("vi"));
        check(&[("EDITOR", b"vi"), ("VISUAL", b"code"), ("JP_EDITOR", b"hx")], Some("hx"));
    }

    #[test]
    fn colors_and_columns() {
        assert!(wants_color(&vars(&[])));
        assert!(wants_color(&vars(&[("NO_COLOR", b"")])));
        assert!(!wants_color(&vars(&[("NO_COLOR", b"0")])));
        assert!(!wants_color(&vars(&[("TERM", b"dumb")])));
        assert_eq!(columns(&vars(&[("COLUMNS", b"80")])), Some(80));
        assert_eq!(columns(&vars(&[("COLUMNS", b"0")])), None);
        assert_eq!(columns(&vars(&[("COLUMNS", b"wide")])), None);
    }
}
