//! Being asked to stop. It is heard between two measurements, so that what is mounted is unmounted and removed.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on these signals only ask.
pub(crate) fn listen() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ASKED))?;
    }
    Ok(())
}

/// Fails once we are asked to stop.
pub(crate) fn check() -> Result<(), Box<dyn Error>> {
    if ASKED.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
}
