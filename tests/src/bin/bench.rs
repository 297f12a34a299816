//! Measures `jp c ls` against plain readers of the same files, in one run and in shuffled order. It judges nothing: it fails
//! only when a measured command does.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use jp_tests::{Bulk, Layout, Random, TestEnv, Workspace, jp_binary, pretty};
use serde_json::{Map, Value, json};

const USAGE: &str = "\
usage: scripts/bench [options]
  --size N         conversations in the store (10000)
  --rounds N       times each command is measured, at least 5 (7)
  --events-size N  typical bytes of an events.json (20000)
  --layout L       how the workspace shows the store: nested, flat, absent (nested)
  --dir DIR        make the store below DIR rather than in the temporary directory
  --json FILE      write the results
  --compare FILE   show them beside earlier ones
";

/// The argument with which this program runs itself as the bare reader.
const READER: &str = "--read-metadata";

/// Every other time is shown as a multiple of these two.
const FIND: &str = "find | xargs cat";
const BARE: &str = "bare reader";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match &args[..] {
        [flag, dirs @ ..] if flag == READER => read_all(dirs).map_err(Into::into),
        [flag] if flag == "--help" || flag == "-h" => say(USAGE).map_err(Into::into),
        _ => Options::parse(&args).and_then(|options| run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            let _ = writeln!(io::stderr(), "bench: {err}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    size: usize,
    rounds: usize,
    events_size: usize,
    layout: Layout,
    dir: Option<PathBuf>,
    json: Option<PathBuf>,
    compare: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[OsString]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            size: 10_000,
            rounds: 7,
            events_size: 20_000,
            layout: Layout::Nested,
            dir: None,
            json: None,
            compare: None,
        };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let name = name.to_string_lossy();
            let value = args.next().ok_or_else(|| format!("{name} wants a value\n{USAGE}"))?;
            let number = || value.to_string_lossy().parse::<usize>().map_err(|err| format!("{name}: {err}"));
            match &*name {
                "--size" => options.size = number()?.max(1),
                "--rounds" => options.rounds = number()?.max(5),
                "--events-size" => options.events_size = number()?,
                "--layout" => options.layout = layout(value)?,
                "--dir" => options.dir = Some(value.into()),
                "--json" => options.json = Some(value.into()),
                "--compare" => options.compare = Some(value.into()),
                _ => return Err(format!("unknown option {name}\n{USAGE}").into()),
            }
        }
        Ok(options)
    }
}

fn layout(value: &OsStr) -> Result<Layout, String> {
    match value.to_str() {
        Some("nested") => Ok(Layout::Nested),
        Some("flat") => Ok(Layout::Flat),
        Some("absent") => Ok(Layout::Absent),
        _ => Err(format!("unknown layout {}\n{USAGE}", value.display())),
    }
}

struct Job {
    name: &'static str,
    command: Command,
    millis: Vec<f64>,
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    // An unreadable file is better known before the measuring than after it.
    let earlier: Option<Value> = match &options.compare {
        Some(file) => {
            let bytes = fs::read(file).map_err(|err| format!("cannot read {}: {err}", file.display()))?;
            Some(serde_json::from_slice(&bytes).map_err(|err| format!("{}: {err}", file.display()))?)
        }
        None => None,
    };
    let env = options.dir.as_deref().map_or_else(TestEnv::new, TestEnv::below);
    let work = env.init_workspace("bench", "bench");
    say(&format!("making {} conversations in {}\n", options.size, env.root().display()))?;
    Bulk::new(options.size).events_size(options.events_size).layout(options.layout).write(&work)?;

    let mut jobs = jobs(&work)?;
    say(&format!("measuring {} rounds after one that warms the caches\n", options.rounds))?;
    let mut random = Random::new(1);
    for round in 0..=options.rounds {
        // What runs after what matters, so no job always has the same one before it.
        random.shuffle(&mut jobs);
        for job in &mut jobs {
            let millis = measure(job)?;
            if round > 0 {
                job.millis.push(millis);
            }
        }
    }
    let results = results(options, &mut jobs);
    say(&table(&results, earlier.as_ref()))?;
    if let Some(file) = &options.json {
        fs::write(file, pretty(&results)).map_err(|err| format!("cannot write {}: {err}", file.display()))?;
        say(&format!("written to {}\n", file.display()))?;
    }
    Ok(())
}

fn jobs(work: &Workspace) -> io::Result<Vec<Job>> {
    let store = work.silo().join("conversations");
    let program = |program: &Path| work.env().command(program.as_os_str(), work.root());
    let jp = |args: &[&str]| {
        let mut command = program(&jp_binary());
        command.args(args);
        command
    };
    let mut find = program(Path::new("sh"));
    find.args(["-c", "find \"$1\" -name metadata.json -print0 | xargs -0 cat > /dev/null", "sh"]).arg(&store);
    let mut bare = program(&std::env::current_exe()?);
    bare.arg(READER).arg(&store);
    let mut both = program(&std::env::current_exe()?);
    both.arg(READER).arg(&store).arg(work.storage().join("conversations"));
    let all = [
        (FIND, find),
        (BARE, bare),
        ("bare, both roots", both),
        ("jp c ls", jp(&["c", "ls"])),
        ("jp c ls --tree", jp(&["c", "ls", "--tree"])),
        ("jp c ls --json", jp(&["c", "ls", "--json"])),
    ];
    Ok(all.map(|(name, command)| Job { name, command, millis: Vec::new() }).into())
}

fn measure(job: &mut Job) -> Result<f64, Box<dyn Error>> {
    job.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let start = Instant::now();
    let status = job.command.status().map_err(|err| format!("cannot run {}: {err}", job.name))?;
    let millis = start.elapsed().as_secs_f64() * 1_000.0;
    if !status.success() {
        return Err(format!("{}: {status}", job.name).into());
    }
    Ok(millis)
}

fn results(options: &Options, jobs: &mut [Job]) -> Value {
    let median = |job: &Job| {
        let mut millis = job.millis.clone();
        millis.sort_by(f64::total_cmp);
        millis[millis.len() / 2]
    };
    // The order of the table is that of the names, baselines first, not that of the last shuffle.
    jobs.sort_by_key(|job| (job.name != FIND, job.name != BARE, job.name));
    let base = |name: &str| jobs.iter().find(|job| job.name == name).map_or(f64::NAN, &median);
    let (find, bare) = (base(FIND), base(BARE));
    let rows: Map<String, Value> = jobs
        .iter()
        .map(|job| {
            let least = job.millis.iter().copied().fold(f64::INFINITY, f64::min);
            let most = job.millis.iter().copied().fold(0.0, f64::max);
            let row = json!({
                "median_ms": median(job),
                "least_ms": least,
                "most_ms": most,
                "to_find": median(job) / find,
                "to_bare": median(job) / bare,
            });
            (job.name.to_owned(), row)
        })
        .collect();
    json!({
        "size": options.size,
        "rounds": options.rounds,
        "events_size": options.events_size,
        "layout": format!("{:?}", options.layout).to_lowercase(),
        "results": rows,
    })
}

fn table(results: &Value, earlier: Option<&Value>) -> String {
    let mut text =
        format!("\n{:<18} {:>10} {:>10} {:>10} {:>8} {:>8}", "", "median ms", "least", "most", "÷ find", "÷ bare",);
    if earlier.is_some() {
        text.push_str(&format!(" {:>10} {:>10}", "÷ bare was", "change"));
    }
    text.push('\n');
    for (name, row) in results["results"].as_object().into_iter().flatten() {
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        text.push_str(&format!(
            "{name:<18} {:>10.1} {:>10.1} {:>10.1} {:>8.2} {:>8.2}",
            number("median_ms"),
            number("least_ms"),
            number("most_ms"),
            number("to_find"),
            number("to_bare"),
        ));
        if let Some(earlier) = earlier {
            // Machines differ; the ratio within one run is what can be compared between two.
            match earlier["results"][name]["to_bare"].as_f64() {
                Some(was) => {
                    let change = (number("to_bare") / was - 1.0) * 100.0;
                    text.push_str(&format!(" {was:>10.2} {change:>+9.0}%"));
                }
                None => text.push_str(&format!(" {:>10} {:>10}", "–", "–")),
            }
        }
        text.push('\n');
    }
    if let Some(earlier) = earlier {
        for key in ["size", "events_size", "layout"] {
            if earlier[key] != results[key] {
                text.push_str(&format!("not the same {key}: {} then, {} now\n", earlier[key], results[key]));
            }
        }
    }
    text
}

/// The least that a lister can do: find every `metadata.json` and read it once. The store is flat, the workspace nested.
fn read_all(dirs: &[OsString]) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut total = 0;
    for (index, dir) in dirs.iter().enumerate() {
        let mut open = vec![PathBuf::from(dir)];
        while let Some(dir) = open.pop() {
            let entries = match fs::read_dir(&dir) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let conversation = entry?.path();
                buffer.clear();
                total += fs::File::open(conversation.join("metadata.json"))?.read_to_end(&mut buffer)?;
                if index > 0 {
                    open.push(conversation.join("conversations"));
                }
            }
        }
    }
    say(&format!("{total}\n"))
}

fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
