//! What listings tell of a conversation, to people and to machines.

use std::collections::HashMap;

use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::events;
use jp_store::layout::Partition;
use jp_store::meta::Meta;
use jp_store::presence::StoragePresence;
use jp_store::problem::Problem;
use jp_store::time::{Timestamp, rfc3339};
use serde::Serialize;

use crate::change::whole;
use crate::ctx::View;
use crate::target::is_pinned;

/// One conversation in `--json`. The keys are stable.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) title: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) presence: &'static str,
    pub(crate) archived: bool,
    pub(crate) pinned: bool,
    pub(crate) locked: bool,
    pub(crate) events: Option<usize>,
    pub(crate) created_at: String,
    pub(crate) last_activated_at: String,
    pub(crate) origin: Option<String>,
    pub(crate) path: String,
    pub(crate) expires_at: Option<String>,
    pub(crate) labels: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) depth: Option<usize>,
    pub(crate) problem: Option<String>,
}

/// What is wrong, by conversation; and the number of events, where somebody asked for it.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    counts: HashMap<ConversationId, Option<usize>>,
    problems: HashMap<ConversationId, Vec<String>>,
    /// How many problems there are in all.
    pub(crate) total: usize,
}

impl Findings {
    /// What the snapshot knows already.
    pub(crate) fn of(view: &View) -> Self {
        let mut findings = Self::default();
        findings.note(view.snapshot.problems());
        findings
    }

    /// Counts the events of these conversations, which means reading them all.
    pub(crate) fn count(&mut self, view: &View, conversations: &[&Conversation]) {
        let counted = jp_store::parallel::map(conversations, |conversation| {
            match view.store.stream(&view.snapshot, conversation) {
                Ok(stream) => {
                    let count = stream.events.and_then(|bytes| events::skim(&bytes).ok()).map(|skim| skim.count);
                    (count, stream.problems, None)
                }
                Err(error) => (None, Vec::new(), Some(whole(&error))),
            }
        });
        for (conversation, (count, problems, error)) in conversations.iter().zip(counted) {
            self.counts.insert(conversation.id, count);
            self.note(&problems);
            if let Some(error) = error {
                self.total += 1;
                self.problems.entry(conversation.id).or_default().push(error);
            }
        }
    }

    /// The number of events; `None` if nobody counted or they cannot be read.
    pub(crate) fn events(&self, id: ConversationId) -> Option<usize> {
        self.counts.get(&id).copied().flatten()
    }

    /// What is wrong with a conversation.
    pub(crate) fn problems(&self, id: ConversationId) -> &[String] {
        self.problems.get(&id).map_or(&[], Vec::as_slice)
    }

    fn note(&mut self, problems: &[Problem]) {
        self.total += problems.len();
        for problem in problems {
            if let Some(id) = problem.id {
                self.problems.entry(id).or_default().push(problem.to_string());
            }
        }
    }
}

impl Record {
    pub(crate) fn of(view: &View, findings: &Findings, conversation: &Conversation, depth: Option<usize>) -> Self {
        let id = conversation.id;
        let meta = conversation.meta.as_ref();
        let problems = findings.problems(id);
        Self {
            id: id.to_string(),
            title: conversation.title().map(ToOwned::to_owned),
            parent: view.snapshot.tree(conversation.partition).parent(id).map(|parent| parent.to_string()),
            presence: conversation.presence.word(),
            archived: conversation.partition == Partition::Archived,
            pinned: is_pinned(conversation),
            locked: view.is_locked(id),
            events: findings.events(id),
            created_at: rfc3339(id.timestamp()),
            last_activated_at: rfc3339(conversation.last_activated_at()),
            origin: conversation.origin.clone(),
            path: view.path(conversation).to_string_lossy().into_owned(),
            expires_at: expires_at(conversation).map(rfc3339),
            labels: meta.iter().flat_map(|meta| meta.labels()).map(|(k, v)| (k.to_owned(), v.into())).collect(),
            depth,
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }
}

/// When it may be collected.
pub(crate) fn expires_at(conversation: &Conversation) -> Option<Timestamp> {
    conversation.meta.as_ref().and_then(Meta::expires_at)
}

/// The listing's word for where a conversation is.
pub(crate) fn local(conversation: &Conversation) -> &'static str {
    match conversation.presence {
        StoragePresence::UserLocalOnly => "Y",
        StoragePresence::Projected => "N",
        StoragePresence::WorkspaceOnly => "ext",
    }
}

/// `branch=main, wip`.
pub(crate) fn labels(conversation: &Conversation) -> String {
    let meta = conversation.meta.iter();
    let pairs = meta.flat_map(Meta::labels).map(|(key, value)| match value {
        "" => key.to_owned(),
        value => format!("{key}={value}"),
    });
    pairs.collect::<Vec<_>>().join(", ")
}
