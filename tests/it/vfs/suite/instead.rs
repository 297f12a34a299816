//! What real files that are kept in step do instead, where they are not like a mount. `docs/SEMANTICS.md` has the reasons,
//! and its list is exact.

use std::collections::BTreeSet;

use super::super::*;

type Scenario = fn(&mut World);

/// What is different, by the name of the scenario it takes the place of.
const INSTEAD: &[(&str, Scenario)] = &[];

/// What takes the place of a scenario, if something does.
pub(super) fn of(name: &str) -> Option<Scenario> {
    INSTEAD.iter().find(|(other, _)| *other == name).map(|(_, scenario)| *scenario)
}
