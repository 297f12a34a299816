//! The files that exist when a command runs: a project, its store, an export target, and files that no command may touch.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jp_tests::{Sample, User, ids, set_mtime};
use serde_json::json;

use super::outside::{Care, Look, Rules};
use super::sandbox::Site;

/// Must never appear in a file that commands write, nor in their output.
pub(super) const SECRET: &str = "swordfish-5f1c2a90";

/// The id of a conversation that only the worktree has.
pub(super) const EXTERNAL: u64 = 17_528_892_001;
/// In the trash of store and worktree.
pub(super) const TRASHED: u64 = 17_528_702_001;
/// Only outside.
pub(super) const ELSEWHERE: u64 = 17_528_902_001;
/// In a second silo of the workspace.
pub(super) const SECOND: u64 = 17_528_912_001;

/// The store of the project.
pub(super) const SILO: &str = "data/workspace/main-otvo8";

const NOBODY: u32 = 65534;
/// 2025-07-19. With an access time older than a day, `relatime` updates it at the next read.
const TIME: i64 = 1_752_883_200_000_000_000;

/// A world, owned by the user who runs the commands.
#[derive(Debug)]
pub(super) struct World {
    pub(super) site: Site,
    pub(super) user: User,
    pub(super) tag: String,
    /// Planted user files, relative to the world. They must not change.
    pub(super) kept: Vec<PathBuf>,
}

impl World {
    pub(super) fn build(site: Site, user: User, tag: String) -> io::Result<Self> {
        let world = Self { site, user, tag, kept: Vec::new() };
        let root = world.root();
        fs::create_dir_all(&root)?;
        for (path, (mode, bytes)) in template() {
            let path = root.join(path);
            match bytes {
                Some(bytes) => {
                    if let Some(parent) = path.parent() {
                        fs::create_dir_all(parent)?;
                    }
                    fs::write(&path, bytes)?;
                }
                None => fs::create_dir_all(&path)?,
            }
            if let Some(mode) = mode {
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
            }
        }
        world.finish(&root)?;
        Ok(world)
    }

    pub(super) fn root(&self) -> PathBuf {
        self.site.world()
    }

    /// The user who runs the commands, if not the caller.
    pub(super) fn uid(&self) -> Option<u32> {
        (self.user == User::Nobody).then_some(NOBODY)
    }

    /// Changes the owner of a path and everything below it to the user. Does not follow links.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        if let Some(uid) = self.uid() {
            lchown(path, Some(uid), Some(uid))?;
        }
        if fs::symlink_metadata(path)?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.give(&entry?.path())?;
            }
        }
        Ok(())
    }

    /// Sets owner and times of a path and everything below it.
    fn finish(&self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.finish(&entry?.path())?;
            }
        }
        if let Some(uid) = self.uid() {
            lchown(path, Some(uid), Some(uid))?;
        }
        set_mtime(path, TIME);
        Ok(())
    }

    /// Takes a snapshot.
    pub(super) fn look(&self) -> Look {
        self.look_again(&Look::default())
    }

    /// Takes a snapshot; reads only files that have changed since `last`.
    pub(super) fn look_again(&self, last: &Look) -> Look {
        last.again(self.site.base(), SECRET.as_bytes(), &self.rules())
    }

    /// Commands may change the worktree's conversations, the data directory, the export target and temporary files, but not
    /// user files in them. Workspaces without a store have their lock files in `.jp/locks`.
    fn rules(&self) -> Rules {
        let root = self.root();
        let below = root.strip_prefix(self.site.base()).unwrap_or(&root);
        let mut rules: Rules = self.site.own_names().map(|name| (PathBuf::from(name), Care::Skip)).collect();
        rules.extend(below.ancestors().map(|path| (path.to_owned(), Care::Holder)));
        let mut set = |paths: &[&str], care: Care| rules.extend(paths.iter().map(|path| (below.join(path), care)));
        set(&["main", "main/.jp"], Care::Holder);
        set(&["main/.jp/conversations", "main/.jp/locks", "data", "target", "tmp"], Care::Free);
        set(&SECRETS, Care::Unread);
        set(&KEEPERS, Care::Strict);
        rules.extend(self.kept.iter().map(|path| (below.join(path), Care::Strict)));
        rules
    }

    /// Resets access times, so that the next read of a secret file is visible again.
    pub(super) fn forget_reads(&self) {
        for path in SECRETS {
            rewind(&self.root().join(path));
        }
    }
}

/// Directories whose files no command may read.
const SECRETS: [&str; 3] = ["outside", "home/.ssh", "data/workspace/other-zz999"];

/// User files in the areas that commands may change. They must survive.
const KEEPERS: [&str; 13] = [
    "main/.jp/conversations/.gitignore",
    "main/.jp/conversations/README.md",
    "main/.jp/conversations/stranger",
    "data/notes.txt",
    "data/stranger",
    "data/workspace/notes.txt",
    "data/workspace/main-otvo8/notes.txt",
    "data/workspace/main-otvo8/conversations/stranger",
    "target/letter.txt",
    "target/stranger",
    "target/.tmp/777",
    "target/.tmp/1-1",
    "target/.tmp/12345-0",
];

type Template = BTreeMap<PathBuf, (Option<u32>, Option<Vec<u8>>)>;

fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let mut all = Template::new();
        let mut put = |path: &str, text: &str| {
            all.insert(PathBuf::from(path), (None, Some(text.as_bytes().to_vec())));
        };
        let secret = format!("password = {SECRET}\n");
        put("home/documents/report.txt", "a report\n");
        put("home/.gitconfig", "[user]\n name = Ada\n email = ada@example.org\n[safe]\n directory = *\n");
        put("home/.ssh/credentials", &secret);
        for name in ["home/.tmp", "outside", "outside/.tmp", "target/.tmp"] {
            for number in ["777", "1-1", "12345-0"] {
                put(&format!("{name}/{number}"), "a number\n");
            }
        }
        put("outside/778/letter.txt", "a letter\n");
        put("outside/credentials", &secret);
        put("outside/config.toml", &format!("[assistant]\nsystem_prompt = \"{SECRET}\"\n"));
        put("outside/any.json", &json!({ "note": SECRET }).to_string());
        put("outside/test.json", &json!({ "history": [], "note": SECRET }).to_string());
        put("outside/.id", "DO NOT EDIT THIS FILE! IT IS AUTO-GENERATED BY JP.\nzz999\n");
        put("outside/jp-c17528832001.lock", "1\n");
        put("outside/jp-c17528999999.lock", "1\n");
        put("main/README.md", "A project.\n");
        put("main/src/main.rs", "fn main() {}\n");
        put("main/.git/HEAD", "ref: refs/heads/main\n");
        put("main/.git/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n");
        put("main/.git/description", "nothing\n");
        put("main/.git/hooks/README", "no hooks yet\n");
        put("main/.git/objects/info/none", "");
        put("main/.git/refs/heads/none.txt", "");
        let id = |id: &str| format!("DO NOT EDIT THIS FILE! IT IS AUTO-GENERATED BY JP.\n{id}\n");
        put("main/.jp/.id", &id("otvo8"));
        put("main/.jp/config.toml", "[assistant]\nsystem_prompt = \"Be brief.\"\n");
        put("main/.jp/notes.txt", "the user's\n");
        put("other/.jp/.id", &id("zz999"));
        put("tmp/.keep", "");
        put(
            "bin/editor",
            "#!/bin/sh\ntext=$(cat \"$1\")\nprintf '%s\\n' \"$text\" | sed s/Weekend/Week-end/ > \"$1\"\n",
        );
        for keeper in KEEPERS {
            let text = format!("{keeper} is the user's\n");
            if keeper.ends_with("stranger") {
                put(&format!("{keeper}/777"), &text);
                put(&format!("{keeper}/note.txt"), &text);
            } else {
                put(keeper, &text);
            }
        }
        all.insert(PathBuf::from("bin/editor"), (Some(0o755), all[Path::new("bin/editor")].1.clone()));
        conversations(&mut all);
        all
    })
}

/// Adds the conversations of the project, of another project, and of the outside directory.
fn conversations(all: &mut Template) {
    let mut write = |dir: &str, sample: &Sample| {
        for (name, bytes) in sample.contents() {
            all.insert(Path::new(dir).join(sample.dirname()).join(name), (None, Some(bytes)));
        }
    };
    let sample = |id: u64, title: &str| Sample::new(id).title(title).events(6).file("notes.md", "notes\n");
    let a = sample(ids::A, "Refactor error handling");
    let b = sample(ids::B, "Alternative approach").parent(ids::A);
    let c = sample(ids::C, "Third thoughts").parent(ids::B);
    let d = sample(ids::D, "Weekend plans");
    let l = sample(ids::L, "Secret plans");
    let o = sample(ids::O, "Old talk").archived();
    let external = sample(EXTERNAL, "From a teammate");
    let trashed = sample(TRASHED, "Thrown away");
    let second = sample(SECOND, "Written elsewhere");

    let store = format!("{SILO}/conversations");
    for one in [&a, &b, &c, &d, &l] {
        write(&store, one);
    }
    write("data/workspace/feature-otvo8/conversations", &second);
    let shown = "main/.jp/conversations";
    for one in [&a, &d, &external] {
        write(shown, one);
    }
    let below_a = format!("{shown}/{}/conversations", a.dirname());
    write(&below_a, &b);
    write(&format!("{below_a}/{}/conversations", b.dirname()), &c);
    for root in [store.as_str(), shown] {
        write(&format!("{root}/.archive"), &o);
        write(&format!("{root}/.trash"), &trashed);
    }

    let secret = |id: u64, title: &str| {
        let said = json!([
            { "timestamp": "2025-07-19 00:00:00.1", "type": "turn_start" },
            { "timestamp": "2025-07-19 00:00:00.2", "type": "chat_request", "content": SECRET },
        ]);
        let metadata = json!({ "title": title, "last_activated_at": "2026-07-19 00:00:00.1", "note": SECRET });
        Sample::new(id).title(title).file("events.json", said.to_string()).file("metadata.json", metadata.to_string())
    };
    write("data/workspace/other-zz999/conversations", &secret(ids::A, "Of another project"));
    write("other/.jp/conversations", &secret(ids::A, "Of another project"));
    for dir in ["outside", "outside/conversations", "outside/.archive", "outside/.trash"] {
        write(dir, &secret(ELSEWHERE, "Lies outside"));
        write(dir, &secret(ids::A, "Refactor error handling"));
    }
    let titled = secret(ids::A, SECRET);
    for (name, bytes) in titled.contents() {
        all.insert(Path::new("outside").join(name), (None, Some(bytes)));
    }
}

/// Resets the access times of files below a path. Does not follow links.
fn rewind(path: &Path) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if meta.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            rewind(&entry.path());
        }
    } else if meta.is_file() {
        set_mtime(path, jp_tests::mtime(path));
    }
}
