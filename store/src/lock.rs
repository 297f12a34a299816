//! stub
/// stub
#[derive(Debug, Clone)]
pub struct Holder;
impl std::fmt::Display for Holder {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
