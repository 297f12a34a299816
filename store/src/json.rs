//! stub
/// stub
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct JsonError {
    /// stub
    pub reason: String,
}
