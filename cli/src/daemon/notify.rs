//! Tells the service manager how we are, the way systemd's `sd_notify` does.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::env::Env;

/// Tells, where somebody wants to know. Nobody is held up by a manager that does not listen.
pub(crate) fn notify(env: &Env, state: &str) {
    let Some(name) = &env.notify_socket else { return };
    let address = match name.as_bytes() {
        // No file: a name the kernel keeps.
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(name),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!("the service manager was not told {state}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("jp-notify-{}", std::process::id());
        let file = UnixDatagram::bind(&path).unwrap();
        let kept = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, name) in [(file, path.into_os_string()), (kept, format!("@{name}").into())] {
            let env = Env { notify_socket: Some(name), ..Env::of_process() };
            notify(&env, "READY=1");
            let mut buffer = [0; 64];
            let read = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..read], b"READY=1");
        }
    }
}
