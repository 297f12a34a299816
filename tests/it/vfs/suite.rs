//! One suite for every way to use the tree. Each scenario looks at what it is told and at what the store has.

use jp_fs::vfs::Rules;

use super::*;

// New conversations that arrive file by file, and known ones that are brought back.
mod arrivals;
// What real files that are kept in step do instead.
mod instead;
// Files, directories and links of the user's own, and programs' scratch.
mod own;
// Numbers, listings, attributes and locks.
mod nodes;
// Managed files are read and saved.
mod saves;
// Conversations move, get other names, are hidden.
mod tree;

fn run(which: Which, name: &str, scenario: fn(&mut World)) {
    let scenario = match which {
        Which::Mirror => instead::of(name).unwrap_or(scenario),
        Which::Forgetful | Which::Mindful | Which::Kernel | Which::CompatOpen => scenario,
    };
    if let Some(mut world) = World::new(which, Rules::default()) {
        scenario(&mut world);
    }
}

macro_rules! suite {
    ($($group:ident: $($scenario:ident)*;)*) => {
        suite!(forgetful, Forgetful, $($group: $($scenario)*;)*);
        suite!(mindful, Mindful, $($group: $($scenario)*;)*);
        suite!(kernel, Kernel, $($group: $($scenario)*;)*);
        suite!(compat_open, CompatOpen, $($group: $($scenario)*;)*);
        suite!(mirror, Mirror, $($group: $($scenario)*;)*);

        /// Every scenario, by name.
        const ALL: &[&str] = &[$($(stringify!($scenario),)*)*];
    };
    ($module:ident, $which:ident, $($group:ident: $($scenario:ident)*;)*) => {
        mod $module {
            $($(
                #[test]
                fn $scenario() {
                    super::run(super::Which::$which, stringify!($scenario), super::$group::$scenario);
                }
            )*)*
        }
    };
}

suite! {
    saves: reads_what_the_store_has in_place append truncate pieces by_rename backup_and_create broken_is_a_draft
        strict_says_so a_draft_outlives_the_mount overtaken_is_kept;
    tree: parent_edited parent_key_removed circle_is_a_draft title_edited other_names moved moved_to_the_archive_and_back
        renamed_is_retitled former_names_and_those_who_claim_them refused_moves managed_file_unlinked rmdir_rules
        removed_recursively shown_beside;
    arrivals: known_is_shown_again unknown_names any_order parent_by_place another_parent_in_the_file broken_then_good
        children_before_parents given_up into_the_archive outlives_the_mount;
    own: files_and_directories symlinks across_conversations scratch_never_enters_the_store hidden_and_made_again
        changed_while_hidden hidden_directory_is_kept_whole scratch_moves_with_its_directory
        over_a_directory_that_shows_nothing names_that_are_too_long no_replace_and_exchange at_the_top real_files_follow;
    nodes: chmod_and_utimens numbers listings read_only locked stale_and_orphans all_of_them;
}
