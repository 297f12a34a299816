//! What was measured, as a table and as JSON.

use serde_json::{Map, Value, json};

use crate::job::{Group, Job};
use crate::options::Options;
use crate::sheet::Sheet;

/// Everything, for machines.
pub(crate) fn results(options: &Options, groups: &[Group], sheets: &[Sheet]) -> Value {
    let mut results: Map<String, Value> = groups.iter().flat_map(rows).collect();
    // One thing may be in two tables, with other figures in each.
    for (name, row) in sheets.iter().flat_map(Sheet::rows) {
        match (results.get_mut(&name).and_then(Value::as_object_mut), row) {
            (Some(known), Value::Object(row)) => known.extend(row),
            (_, row) => drop(results.insert(name, row)),
        }
    }
    json!({
        "size": options.size,
        "rounds": options.rounds,
        "slow_rounds": options.slow_rounds,
        "events_size": options.events_size,
        "layout": options.layout.name(),
        "results": results,
    })
}

fn rows(group: &Group) -> Map<String, Value> {
    let row = |job: &Job| {
        let mut row = Map::new();
        row.insert("median_ms".into(), json!(job.median()));
        row.insert("least_ms".into(), json!(job.least()));
        row.insert("most_ms".into(), json!(job.most()));
        for (base, _, key) in group.bases {
            row.insert((*key).to_owned(), json!(job.median() / group.median(base)));
        }
        (job.name.to_owned(), row.into())
    };
    group.jobs.iter().map(row).collect()
}

/// Why the ratios of two runs cannot be compared.
pub(crate) fn differences(results: &Value, earlier: &Value) -> String {
    let keys = ["size", "events_size", "layout"].into_iter().filter(|key| earlier[key] != results[key]);
    keys.map(|key| format!("not the same {key}: {} then, {} now\n", earlier[key], results[key])).collect()
}

/// One group, beside earlier results where there are any.
pub(crate) fn table(group: &Group, earlier: Option<&Value>) -> String {
    let mut text = format!("\n{:<20} {:>10} {:>10} {:>10}", group.title, "median ms", "least", "most");
    for (_, head, _) in group.bases {
        text.push_str(&format!(" {head:>8}"));
    }
    // Machines differ; the ratio within one run is what can be compared between two.
    let compared = group.bases.last();
    if let (Some(_), Some((_, head, _))) = (earlier, compared) {
        text.push_str(&format!(" {:>10} {:>10}", format!("{head} was"), "change"));
    }
    text.push('\n');
    for (name, row) in rows(group) {
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        text.push_str(&format!("{name:<20}"));
        for key in ["median_ms", "least_ms", "most_ms"] {
            text.push_str(&format!(" {:>10.1}", number(key)));
        }
        for (.., key) in group.bases {
            text.push_str(&format!(" {:>8.2}", number(key)));
        }
        if let (Some(earlier), Some((.., key))) = (earlier, compared) {
            match earlier["results"][&name][*key].as_f64() {
                Some(was) => {
                    let change = (number(key) / was - 1.0) * 100.0;
                    text.push_str(&format!(" {was:>10.2} {change:>+9.0}%"));
                }
                None => text.push_str(&format!(" {:>10} {:>10}", "–", "–")),
            }
        }
        text.push('\n');
    }
    text.push('\n');
    text
}
