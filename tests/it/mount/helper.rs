//! The helper that mount(8) runs for lines of `/etc/fstab`: which programs it starts, as which user, and with what.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use jp_tests::{Output, Running, TestEnv, have, repository, skip};
use nix::unistd::geteuid;

/// A program that leaves `marker` behind.
fn plant(program: &Path, marker: &Path) {
    fs::create_dir_all(program.parent().expect("a program is in a directory")).expect("made");
    fs::write(program, format!("#!/bin/sh\necho ran > '{}'\n", marker.display())).expect("written");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

fn helper(env: &TestEnv, args: &[&str]) -> Output {
    let script = repository().join("scripts/mount.fuse.jp");
    let mut command = env.command(script.as_os_str(), env.root());
    command.args(args);
    Running::start(command).finish()
}

/// The command that the helper would run, one argument a line.
fn arguments(env: &TestEnv, args: &[&str]) -> Vec<String> {
    helper(env, &[args, &["-f"]].concat()).ok().stdout.lines().map(str::to_owned).collect()
}

#[test]
fn programs_come_from_system_directories_only() {
    let env = TestEnv::new();
    let marker = env.root().join("marker");
    for dir in [".cargo/bin", ".local/bin", "bin"] {
        plant(&env.home().join(dir).join("jp"), &marker);
    }
    for name in ["jp", "env", "setpriv", "getent", "id", "runuser"] {
        plant(&env.root().join("path").join(name), &marker);
    }
    let script = repository().join("scripts/mount.fuse.jp");
    for (path, user) in [("/usr/bin:/bin", ""), ("path:/usr/bin:/bin", ""), ("path:/usr/bin:/bin", "setuid=nobody")] {
        let path = path.replace("path", &env.root().join("path").display().to_string());
        let mut command = env.command(script.as_os_str(), env.root());
        command.env("PATH", &path).args(["/no/such/project", "/no/such/point", "-o", user]);
        // There is no such project, whether or not a jp is installed on the system.
        let output = Running::start(command).finish();
        assert_ne!(output.code, 0, "{}", output.told());
        assert!(!marker.exists(), "PATH={path} {user}: a planted program ran\n{}", output.told());
    }
}

#[test]
fn setuid_names_one_existing_user() {
    let env = TestEnv::new();
    for value in
        ["", "-l", "-", "--help", "-c id", "no-such-user", "4294967294", "nobody root", "nobody;id", "$(id)", "*"]
    {
        let output = helper(&env, &["/p", "/m", "-f", "-o", &format!("ro,setuid={value}")]).fails_with(1);
        assert_eq!(output.stdout, "", "setuid={value}");
        assert!(output.stderr.contains(&format!("setuid={value}")), "{}", output.told());
    }
    if !geteuid().is_root() {
        skip("only root mounts for other users");
        return;
    }
    for value in ["nobody", "65534"] {
        let told = arguments(&env, &["/p", "/m", "-o", &format!("setuid={value},ro")]);
        assert_eq!(told[0], "setpriv", "{told:?}");
        for expected in ["--reuid=65534", "--init-groups", "USER=nobody", "--workspace=/p", "--read-only"] {
            assert!(told.iter().any(|word| word == expected), "no {expected} in {told:?}");
        }
        assert!(!told.iter().any(|word| word == "sh" || word == "-c"), "no shell parses anything: {told:?}");
    }
}

#[test]
fn values_are_not_taken_for_options() {
    let env = TestEnv::new();
    for args in [["-x", "/m"], ["jp#-x", "/m"], ["jp#", "/m"], ["", "/m"], ["/p", "-x"], ["/p", ""]] {
        let output = helper(&env, &[&args[..], &["-f"]].concat()).fails_with(2);
        assert_eq!(output.stdout, "", "{args:?}");
    }
    helper(&env, &["/p", "/m", "-f", "-o", "data=-x"]).fails_with(1).says("data=-x");
    let told = arguments(&env, &["jp#/p q", "/m n", "-o", "data=/d e"]);
    for expected in ["--workspace=/p q", "JP_USER_DATA_DIR=/d e", "/m n"] {
        assert!(told.iter().any(|word| word == expected), "no {expected} in {told:?}");
    }
    assert_eq!(told[told.len() - 2..], ["--", "/m n"]);
}

/// What the documented line of `/etc/fstab` does, with a mount namespace in which the helper is installed and `jp` is a
/// program that says how it was called.
const FSTAB: &str = r#"
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$D/over"
mkdir "$D/over/upper" "$D/over/work"
mount -t overlay overlay -o "lowerdir=/usr/sbin,upperdir=$D/over/upper,workdir=$D/over/work" /usr/sbin || exit 77
cp "$SCRIPT" /usr/sbin/mount.fuse.jp
chmod 755 /usr/sbin/mount.fuse.jp
mount --bind "$D/bin" /usr/local/bin
printf '%s fuse.jp setuid=nobody,noauto,user 0 0\n' "$D/project $D/point" > "$D/fstab"
mount --bind "$D/fstab" /etc/fstab
case $1 in
    root) mount "$D/point" ;;
    *) setpriv "--reuid=$1" "--regid=$1" --clear-groups -- mount "$D/point" ;;
esac
"#;

#[test]
fn the_documented_line_works_for_its_user_and_root() {
    if !geteuid().is_root() || !have(&["unshare", "setpriv", "getent"]) {
        skip("a private mount namespace needs root");
        return;
    }
    let env = TestEnv::new();
    let dir = env.root();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    open(dir, 0o755);
    for name in ["over", "bin", "point", "project"] {
        fs::create_dir(dir.join(name)).expect("made");
    }
    let told = dir.join("told");
    let program = dir.join("bin/jp");
    fs::write(&program, format!("#!/bin/sh\n{{ id -u; env; printf '%s\\n' \"$@\"; }} > '{}'\n", told.display()))
        .expect("written");
    open(&program, 0o755);
    for caller in ["65534", "root", "1"] {
        fs::write(&told, "").expect("written");
        open(&told, 0o666);
        let mut command = env.command(OsStr::new("unshare"), dir);
        command.env("D", dir).env("SCRIPT", repository().join("scripts/mount.fuse.jp"));
        command.args(["-m", "sh", "-c", FSTAB, "sh", caller]);
        let output = Running::start(command).finish();
        if output.code == 77 {
            skip("there is no overlay filesystem to install the helper on");
            return;
        }
        let lines = fs::read_to_string(&told).expect("there");
        if caller == "1" {
            assert_ne!(output.code, 0, "another user cannot mount it\n{}", output.told());
            assert!(output.stderr.contains("only root and nobody"), "{}", output.told());
            assert_eq!(lines, "", "nothing ran");
            continue;
        }
        output.ok();
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.first(), Some(&"65534"), "{caller}: {lines:?}");
        let workspace = format!("--workspace={}", dir.join("project").display());
        for expected in ["mount", &workspace, "USER=nobody", "LOGNAME=nobody"] {
            assert!(lines.contains(&expected), "{caller}: no {expected} in {lines:?}");
        }
        assert!(lines.iter().any(|line| line.starts_with("HOME=")), "{caller}: {lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("JP_")), "{caller}: the caller's environment came along");
    }
}
