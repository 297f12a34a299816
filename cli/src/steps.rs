//! What an export or an import does, or did, as it is told: to people, to machines, and by the process behind a mount.

use std::collections::BTreeSet;
use std::path::Path;

use jp_store::ConversationId;
use jp_store::plan::{Deed, Held, HeldKind, Plan, Step};
use jp_store::reconcile::Root;
use jp_store::writer::Reconciled;
use serde::{Deserialize, Deserializer, Serialize};

use crate::ui::clean;

/// Everything that is told of one export or import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) steps: Vec<Told>,
    /// What is left as it is until a person does something about it.
    pub(crate) held: Vec<Left>,
    /// What somebody is working on.
    pub(crate) busy: Vec<Left>,
    /// How many conversations were looked at; 0 when nobody counted.
    pub(crate) shown: usize,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) id: String,
    #[serde(rename = "do")]
    pub(crate) deed: String,
    /// Relative to the workspace's conversations.
    pub(crate) path: String,
    /// Where it was, for a move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// Whose bytes count, for a conflict: `"store"` or `"work"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    winner: Option<Root>,
    /// What it hangs beneath from now on; `null` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    parent: Option<Option<String>>,
    /// Its title from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

/// Something that is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) id: Option<String>,
    pub(crate) kind: HeldKind,
    pub(crate) reason: String,
}

/// A `null` that is said differs from nothing being said.
fn said<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

impl Outcome {
    /// Whether there is nothing to be done and nothing left.
    pub(crate) fn is_in_step(&self) -> bool {
        self.steps.is_empty() && self.held.is_empty() && self.busy.is_empty()
    }

    /// Whether a commit would record merge markers.
    pub(crate) fn has_merge_markers(&self) -> bool {
        self.held.iter().any(|left| left.kind == HeldKind::MergeMarkers)
    }

    /// One line: what was done, or would be, and how many conversations needed nothing.
    pub(crate) fn summary(&self, done: bool) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (deed, after, before) in WORDS {
            let number = self.steps.iter().filter(|step| step.deed == deed).count();
            if number > 0 {
                parts.push(format!("{} {}", thousands(number), if done { after } else { before }));
            }
        }
        let left = [(&self.held, "held"), (&self.busy, "busy")];
        for (those, word) in left.into_iter().filter(|(those, _)| !those.is_empty()) {
            parts.push(format!("{} {word}", thousands(those.len())));
        }
        let touched: BTreeSet<&str> = self.steps.iter().map(|step| &*step.id).collect();
        let left = self.held.iter().chain(&self.busy).filter_map(|left| left.id.as_deref());
        let touched = touched.into_iter().chain(left).collect::<BTreeSet<_>>().len();
        let rest = match self.shown.saturating_sub(touched) {
            0 => String::new(),
            rest => format!("{} in step", thousands(rest)),
        };
        match (parts.is_empty(), rest.is_empty()) {
            (true, true) => "Nothing to do.".to_owned(),
            (true, false) => format!("Nothing to do; {rest}."),
            (false, true) => format!("{}.", parts.join(", ")),
            (false, false) => format!("{}; {rest}.", parts.join(", ")),
        }
    }
}

/// Each kind of step: its name, what is said of it afterwards and before.
const WORDS: [(&str, &str, &str); 13] = [
    ("copy", "copied out", "to copy out"),
    ("write", "written", "to write"),
    ("move", "moved", "to move"),
    ("remove", "removed", "to remove"),
    ("withdraw", "withdrawn", "to withdraw"),
    ("import", "imported", "to import"),
    ("take", "taken", "to take"),
    ("conflict", "in conflict", "in conflict"),
    ("hide", "hidden", "to hide"),
    ("reparent", "hung elsewhere", "to hang elsewhere"),
    ("archive", "archived", "to archive"),
    ("unarchive", "unarchived", "to unarchive"),
    ("retitle", "retitled", "to retitle"),
];

impl Told {
    /// One line, the same in every version: the kind, the path, and what else there is to know.
    pub(crate) fn line(&self) -> String {
        let Self { deed, path, .. } = self;
        let path = clean(path);
        if let Some(from) = &self.from {
            return format!("{deed} {} -> {path}", clean(from));
        }
        let more = match (self.winner, &self.parent, &self.title) {
            (Some(Root::Store), _, _) => "store wins".into(),
            (Some(Root::Work), _, _) => "workspace wins".into(),
            (_, Some(Some(parent)), _) => format!("beneath {}", clean(parent)).into(),
            (_, Some(None), _) => "a root".into(),
            (_, _, Some(title)) => clean(title),
            (None, None, None) => return format!("{deed} {path}"),
        };
        format!("{deed} {path} ({more})")
    }
}

impl From<&Step> for Told {
    fn from(step: &Step) -> Self {
        let told = |deed: &str| Self {
            id: step.id.to_string(),
            deed: deed.to_owned(),
            path: text(&step.path),
            ..Self::default()
        };
        match &step.deed {
            Deed::Copy => told("copy"),
            Deed::Move { from } => Self { from: Some(text(from)), ..told("move") },
            Deed::Write => told("write"),
            Deed::Remove => told("remove"),
            Deed::Withdraw => told("withdraw"),
            Deed::Import => told("import"),
            Deed::Take => told("take"),
            Deed::Conflict { winner } => Self { winner: Some(*winner), ..told("conflict") },
            Deed::Hide => told("hide"),
            Deed::Reparent { parent } => {
                Self { parent: Some(parent.as_ref().map(ConversationId::to_string)), ..told("reparent") }
            }
            Deed::Archive => told("archive"),
            Deed::Unarchive => told("unarchive"),
            Deed::Retitle { title } => Self { title: Some(title.clone()), ..told("retitle") },
        }
    }
}

impl From<&Held> for Left {
    fn from(held: &Held) -> Self {
        Self { id: held.id.as_ref().map(ConversationId::to_string), kind: held.kind, reason: held.reason.clone() }
    }
}

impl From<Plan> for Outcome {
    fn from(plan: Plan) -> Self {
        Self {
            steps: plan.steps.iter().map(Told::from).collect(),
            held: plan.held.iter().map(Left::from).collect(),
            shown: plan.looked_at,
            ..Self::default()
        }
    }
}

impl From<Reconciled> for Outcome {
    fn from(done: Reconciled) -> Self {
        Self {
            steps: done.steps.iter().map(Told::from).collect(),
            held: done.held.iter().map(Left::from).collect(),
            busy: done.busy.iter().map(Left::from).collect(),
            shown: done.looked_at,
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// `9,996`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: u64, deed: Deed, path: &str) -> Step {
        Step { id: ConversationId::new(id).unwrap(), deed, path: path.into() }
    }

    /// The lines are read by scripts, and so is what goes through the socket.
    #[test]
    fn lines_and_values() {
        let check = |deed: Deed, line: &str, json: &str| {
            let told = Told::from(&step(5, deed, "5-a\u{1b}b/metadata.json"));
            assert_eq!(told.line(), line);
            let text = serde_json::to_string(&told).unwrap();
            let head = r#"{"id":"jp-c5","do":""#;
            assert_eq!(text, format!("{head}{json}").replace('@', r#","path":"5-a\u001bb/metadata.json""#));
            assert_eq!(serde_json::from_str::<Told>(&text).unwrap(), told);
        };
        let path = "5-a\\x1bb/metadata.json";
        check(Deed::Copy, &format!("copy {path}"), r#"copy"@}"#);
        check(Deed::Write, &format!("write {path}"), r#"write"@}"#);
        check(Deed::Remove, &format!("remove {path}"), r#"remove"@}"#);
        check(Deed::Withdraw, &format!("withdraw {path}"), r#"withdraw"@}"#);
        check(Deed::Import, &format!("import {path}"), r#"import"@}"#);
        check(Deed::Take, &format!("take {path}"), r#"take"@}"#);
        check(Deed::Hide, &format!("hide {path}"), r#"hide"@}"#);
        check(Deed::Archive, &format!("archive {path}"), r#"archive"@}"#);
        check(Deed::Unarchive, &format!("unarchive {path}"), r#"unarchive"@}"#);
        check(Deed::Move { from: "6/x".into() }, &format!("move 6/x -> {path}"), r#"move"@,"from":"6/x"}"#);
        let wins = |winner| Deed::Conflict { winner };
        check(wins(Root::Work), &format!("conflict {path} (workspace wins)"), r#"conflict"@,"winner":"work"}"#);
        check(wins(Root::Store), &format!("conflict {path} (store wins)"), r#"conflict"@,"winner":"store"}"#);
        let beneath = |parent: Option<u64>| Deed::Reparent { parent: parent.and_then(ConversationId::new) };
        check(beneath(Some(7)), &format!("reparent {path} (beneath jp-c7)"), r#"reparent"@,"parent":"jp-c7"}"#);
        check(beneath(None), &format!("reparent {path} (a root)"), r#"reparent"@,"parent":null}"#);
        let title = Deed::Retitle { title: "New\nwords".into() };
        check(title, &format!("retitle {path} (New\\nwords)"), r#"retitle"@,"title":"New\nwords"}"#);
    }

    #[test]
    fn summaries() {
        let check = |outcome: &Outcome, done: &str, before: &str| {
            assert_eq!((&*outcome.summary(true), &*outcome.summary(false)), (done, before));
        };
        check(&Outcome::default(), "Nothing to do.", "Nothing to do.");
        let nothing = Outcome { shown: 12, ..Outcome::default() };
        check(&nothing, "Nothing to do; 12 in step.", "Nothing to do; 12 in step.");
        let left = |id: u64| Held { id: ConversationId::new(id), kind: HeldKind::Invalid, reason: "no".into() };
        let done = Reconciled {
            steps: vec![
                step(1, Deed::Write, "1/metadata.json"),
                step(1, Deed::Write, "1/events.json"),
                step(2, Deed::Write, "2/events.json"),
                step(3, Deed::Move { from: "3".into() }, "4"),
            ],
            held: vec![left(8)],
            busy: vec![left(9)],
            looked_at: 10_001,
            stopped: false,
        };
        let some = Outcome::from(done);
        check(
            &some,
            "3 written, 1 moved, 1 held, 1 busy; 9,996 in step.",
            "3 to write, 1 to move, 1 held, 1 busy; 9,996 in step.",
        );
        check(
            &Outcome { shown: 0, ..some },
            "3 written, 1 moved, 1 held, 1 busy.",
            "3 to write, 1 to move, 1 held, 1 busy.",
        );
    }

    #[test]
    fn numbers() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
