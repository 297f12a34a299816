//! Which conversations a listing or a search is about.

use std::str::FromStr;

use jp_store::conversation::Conversation;
use jp_store::meta::Meta;

/// `KEY`, or `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelFilter {
    key: String,
    value: Option<String>,
}

impl FromStr for LabelFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        if key.is_empty() {
            return Err("a label is KEY or KEY=VALUE".to_owned());
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

impl LabelFilter {
    /// Whether the conversation has the label.
    pub(crate) fn matches(&self, conversation: &Conversation) -> bool {
        let mut labels = conversation.meta.iter().flat_map(Meta::labels);
        labels.any(|(key, value)| key == self.key && self.value.as_deref().is_none_or(|wanted| wanted == value))
    }
}

/// Whether the conversation has them all.
pub(crate) fn has_all(labels: &[LabelFilter], conversation: &Conversation) -> bool {
    labels.iter().all(|label| label.matches(conversation))
}

#[cfg(test)]
mod tests {
    use jp_store::ConversationId;
    use jp_store::layout::Partition;
    use jp_store::presence::{Projection, StoragePresence};

    use super::*;

    #[test]
    fn labels() {
        let text = br#"{"last_activated_at": "2025-07-19 00:00:00.0", "labels": {"branch": "a=b", "wip": ""}}"#;
        let conversation = Conversation {
            id: ConversationId::new(1).unwrap(),
            partition: Partition::Live,
            presence: StoragePresence::Projected,
            intent: Projection::Projected,
            store: None,
            work: None,
            meta: Meta::parse(text).ok(),
            parent: None,
            origin: None,
            looked: None,
            alike: false,
            moved: None,
            rule: jp_store::observe::Rule::Newest,
        };
        for (text, expected) in [
            ("branch", true),
            ("branch=a=b", true),
            ("branch=a", false),
            ("wip", true),
            ("wip=", true),
            ("wip=x", false),
            ("other", false),
        ] {
            let filter: LabelFilter = text.parse().unwrap();
            assert_eq!(filter.matches(&conversation), expected, "{text}");
        }
        assert!("=x".parse::<LabelFilter>().is_err());
    }
}
