//! Whose words are searched.

use clap::ValueEnum;
use jp_store::events::Scope;

/// A scope as typed; some stand for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    /// Everything.
    All,
    /// What the user and the assistant say.
    Chat,
    /// Tool calls and their results.
    Tool,
    /// Titles.
    Title,
    /// Requests.
    User,
    /// Answers in prose.
    Assistant,
    /// What the assistant thinks.
    Reasoning,
    /// Answers as data.
    Structured,
    /// Tools' names and arguments.
    ToolCall,
    /// What tools give back.
    ToolResult,
    /// Questions asked on the way, and their answers.
    Inquiry,
}

impl ScopeArg {
    /// Whether texts of this scope are meant; `None` is a title.
    pub(crate) fn covers(self, scope: Option<Scope>) -> bool {
        match self {
            Self::All => true,
            Self::Chat => matches!(scope, Some(Scope::User | Scope::Assistant | Scope::Structured)),
            Self::Tool => matches!(scope, Some(Scope::ToolCall | Scope::ToolResult)),
            Self::Title => scope.is_none(),
            Self::User => scope == Some(Scope::User),
            Self::Assistant => scope == Some(Scope::Assistant),
            Self::Reasoning => scope == Some(Scope::Reasoning),
            Self::Structured => scope == Some(Scope::Structured),
            Self::ToolCall => scope == Some(Scope::ToolCall),
            Self::ToolResult => scope == Some(Scope::ToolResult),
            Self::Inquiry => scope == Some(Scope::Inquiry),
        }
    }
}

/// The word for a scope in output.
pub(crate) fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::User => "user",
        Scope::Assistant => "assistant",
        Scope::Reasoning => "reasoning",
        Scope::Structured => "structured",
        Scope::ToolCall => "tool-call",
        Scope::ToolResult => "tool-result",
        Scope::Inquiry => "inquiry",
    }
}
