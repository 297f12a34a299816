//! What `jp status` says of mounts.

use std::path::Path;

use jp_fs::mirror::{InStep, Left};
use jp_fs::mount::Arrival;
use jp_store::layout::CONVERSATIONS;
use jp_store::mountinfo;
use serde::Serialize;

use crate::change;
use crate::ctx::View;
use crate::mounts::{self, Kind, Known, Standing, StateDir};

/// A mount of this worktree.
#[derive(Debug, Serialize)]
pub(crate) struct Mount {
    pub(crate) point: String,
    kind: Kind,
    pid: Option<u32>,
    /// Whether the process behind it is there.
    alive: bool,
    /// Whether it was left behind by one that is not.
    stale: bool,
    /// Whether it is not mounted any more, and its process waits for those who are still in it.
    detached: bool,
    options: Vec<String>,
    since: Option<String>,
    version: Option<String>,
    /// How changes beside the mount are noticed; `None` when it does not say.
    staleness: Option<String>,
    /// Why it polls, where it does.
    why_polled: Option<String>,
    shown: Option<usize>,
    arrivals: Vec<Arrival>,
    /// What of the real files is not in the store, and so is not shown.
    refused: Vec<String>,
    /// What stays as it is until a person does something about it; only in a mirror.
    held: Vec<Left>,
    /// What somebody is working on; only in a mirror.
    waiting: Vec<Left>,
    /// Why the two sides of a mirror are not in step.
    failure: Option<String>,
    /// How often the two sides of a mirror have been looked at.
    reconciles: Option<u64>,
    /// Whether a mirror has nothing to do.
    resting: Option<bool>,
}

impl Mount {
    /// This worktree's, and how many other worktrees of the store are mounted.
    pub(crate) fn list(view: &View) -> (Vec<Self>, usize) {
        let layout = view.store.layout();
        let here = StateDir::of(layout);
        let known = here.known();
        let mut found: Vec<Self> = known.iter().map(Self::of).collect();
        let default = mountinfo::place(&layout.storage.join(CONVERSATIONS));
        let noted = known.as_ref().is_some_and(|known| known.record.point == default);
        if !noted && matches!(mounts::standing(&default, None), Standing::Dead | Standing::Mute) {
            found.push(Self::left_at(&default));
        }
        let others = mounts::of_store(layout).into_iter().filter(|known| known.state.dir != here.dir && known.alive());
        (found, others.count())
    }

    fn of(known: &Known) -> Self {
        let alive = known.alive();
        let status = if alive { known.status() } else { None };
        let record = &known.record;
        let in_step = status.as_ref().and_then(|status| status.mirror.clone());
        let (reconciles, resting) = in_step.as_ref().map(|step| (step.reconciles, step.resting)).unzip();
        let InStep { held, waiting, failure, .. } = in_step.unwrap_or_default();
        Self {
            point: record.point.display().to_string(),
            kind: record.kind,
            pid: Some(record.pid),
            alive,
            stale: !alive,
            detached: alive && !known.is_there(),
            options: record.options.clone(),
            since: Some(record.since.clone()),
            version: Some(record.version.clone()),
            shown: status.as_ref().map(|status| status.shown),
            staleness: status.as_ref().map(|status| status.staleness.clone()),
            why_polled: status.as_ref().and_then(|status| status.why_polled.clone()),
            refused: status.as_ref().map(|status| status.refused.clone()).unwrap_or_default(),
            arrivals: status.map(|status| status.arrivals).unwrap_or_default(),
            held,
            waiting,
            failure,
            reconciles,
            resting,
        }
    }

    /// Whether its process is there, so that the real files follow when it ends.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive
    }

    /// Whether the mount is taking in this conversation.
    pub(crate) fn is_arriving(&self, id: &str) -> bool {
        self.arrivals.iter().any(|arrival| arrival.id == id)
    }

    /// One that nothing is known of.
    fn left_at(point: &Path) -> Self {
        Self {
            point: point.display().to_string(),
            kind: Kind::Mount,
            pid: None,
            alive: false,
            stale: true,
            detached: false,
            options: Vec::new(),
            since: None,
            version: None,
            staleness: None,
            why_polled: None,
            shown: None,
            arrivals: Vec::new(),
            refused: Vec::new(),
            held: Vec::new(),
            waiting: Vec::new(),
            failure: None,
            reconciles: None,
            resting: None,
        }
    }

    /// In a line for each thing there is to say.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let process = self.pid.map(|pid| format!("process {pid}"));
        let about = if self.stale {
            vec!["its process is gone; `jp mount` mounts it again, `jp unmount` clears it away".to_owned()]
        } else if self.detached {
            let waits = "detached: it ends, and the real files follow, when the last one in it leaves".to_owned();
            process.into_iter().chain([waits]).collect()
        } else {
            let shown = self.shown.map(|shown| format!("{} shown", change::count(shown, "conversation")));
            let manner = self.staleness.clone().unwrap_or_else(|| "does not answer".to_owned());
            process.into_iter().chain([manner]).chain(shown).chain(self.options.iter().cloned()).collect()
        };
        let polled = self.why_polled.iter().map(|why| ("polling", why.clone()));
        let arrivals = self.arrivals.iter().map(|one| ("arriving", format!("{} still needs {}", one.id, one.needs)));
        let refused = self.refused.iter().map(|left| ("covered", format!("not in the store, and not shown: {left}")));
        let held = self.held.iter().map(|left| ("held", left.reason.clone()));
        let waiting = self.waiting.iter().map(|left| ("waiting", left.reason.clone()));
        let failure = self.failure.iter().map(|why| ("failure", format!("not in step, and tried again: {why}")));
        let head = match self.kind {
            Kind::Mount => "mount",
            Kind::Mirror => "mirror",
        };
        let mount = (head, format!("{} ({})", self.point, about.join(", ")));
        std::iter::once(mount)
            .chain(polled)
            .chain(arrivals)
            .chain(refused)
            .chain(held)
            .chain(waiting)
            .chain(failure)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;
    use crate::mounts::Record;
    use crate::testing::Project;

    /// This worktree's state, once a command that writes has made it.
    fn state(project: &Project) -> StateDir {
        let vfs = fs::read_dir(project.silo().join("vfs")).unwrap();
        let mut dirs = vfs.map(|entry| entry.unwrap().path());
        StateDir::in_dir(dirs.find(|dir| dir.join("projection.json").exists()).unwrap(), &project.silo())
    }

    #[test]
    fn drafts_are_named_where_the_mount_shows_them() {
        let project = Project::new();
        project.conversation("17528832001-one", "One", "19 10:00", "");
        project.conversation("17528842001-two", "Two", "19 11:00", ", \"parent_id\": 17528832001");
        assert!(project.jp("c edit 17528832001 --pin").err.contains("changed"));
        let drafts = state(&project).drafts();
        for (path, text) in [
            (
                "17528842001/metadata.json",
                "{\"base\":null,\"reason\":{\"line\":3,\"column\":5,\"reason\":\"trailing comma\"},\"since\":\"2025-07-20T12:00:00Z\",\"waiting\":null}\n{,}",
            ),
            ("17528852001/events.json", "{\"reason\":null,\"waiting\":\"lock\"}\n[]"),
        ] {
            let path = drafts.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let said = project.jp("status");
        let place = "/.jp/conversations/17528832001-one/conversations/17528842001-two/metadata.json";
        let line = format!("{place}: line 3, column 5: trailing comma; the store's file was changed since\n");
        assert!(said.out.contains(&line), "{}", said.out);
        let line = "/17528852001/events.json: its conversation is not in the store\n";
        assert!(said.out.contains(line), "{}", said.out);
        let report: Value = serde_json::from_str(&project.jp("status --json").out).unwrap();
        let drafts = &report["drafts"];
        assert_eq!((&drafts[0]["id"], &drafts[0]["bytes"]), (&"jp-c17528842001".into(), &3.into()));
        assert_eq!((&drafts[0]["line"], &drafts[1]["line"]), (&3.into(), &Value::Null));
        assert!(drafts[0]["path"].as_str().unwrap().ends_with(place));
        assert_eq!((&drafts[0]["state"], &drafts[1]["state"]), (&"invalid".into(), &"gone".into()));
        let listed = project.jp("draft ls");
        assert!(listed.out.starts_with("jp-c17528842001\tmetadata.json\t3\t"), "{}", listed.out);
        let doctor: Value = serde_json::from_str(&project.jp("doctor --json").out).unwrap();
        let kinds = doctor["findings"].as_array().unwrap().iter().filter(|it| it["kind"] == "draft");
        assert_eq!((kinds.count(), &doctor["healthy"]), (2, &false.into()));
    }

    #[test]
    fn a_mount_whose_process_is_gone_is_named_and_cleared() {
        let project = Project::new();
        project.conversation("17528832001-one", "One", "19 10:00", "");
        assert!(project.jp("unmount").err.contains("nothing is mounted at"));
        project.jp("c edit 17528832001 --pin");
        let state = state(&project);
        let record = Record {
            pid: u32::MAX,
            started: Some(1),
            point: "/nowhere/talk".into(),
            project: "/nowhere".into(),
            kind: Kind::Mount,
            options: vec!["strict".into()],
            version: "0".into(),
            since: "2025-07-20T12:00:00Z".into(),
        };
        state.write(&record).unwrap();
        let report: Value = serde_json::from_str(&project.jp("status --json").out).unwrap();
        let mount = &report["mounts"][0];
        assert_eq!((&mount["point"], &mount["alive"]), (&"/nowhere/talk".into(), &false.into()));
        assert_eq!((&mount["stale"], &report["mounts_elsewhere"]), (&true.into(), &0.into()));
        assert!(project.jp("status").out.contains("/nowhere/talk (its process is gone"));
        assert!(project.jp("doctor").out.contains("/nowhere/talk: the process behind this mount is gone"));
        assert!(project.jp("doctor --fix").out.contains("cleared away"));
        assert!(state.known().is_none());
        let unmount = project.jp("unmount --all");
        assert!(unmount.err.contains("nothing is mounted"), "{}", unmount.err);
    }
}
