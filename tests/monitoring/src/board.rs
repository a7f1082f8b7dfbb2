//! Queries of the Grafana board.

use crate::repository_path;
use anyhow::Context;
use serde_json::Value;

/// Path of the board.
pub const FILE: &str = "deploy/kubernetes/monitoring/board.json";

/// Reads the board. Fails if the file cannot be read or is not JSON.
pub fn read() -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(repository_path(FILE)).context(FILE)?;
    serde_json::from_str(&text).context(FILE)
}

/// Returns all panels, those within rows included.
pub fn panels(board: &Value) -> Vec<&Value> {
    inside(board).into_iter().flat_map(|panel| std::iter::once(panel).chain(inside(panel))).collect()
}

fn inside(value: &Value) -> Vec<&Value> {
    value["panels"].as_array().map(|panels| panels.iter().collect()).unwrap_or_default()
}

/// Returns the title of each panel with each of its queries. Variables have values that select all workloads. Fails if
/// the board cannot be read.
pub fn queries() -> anyhow::Result<Vec<(String, String)>> {
    let board = read()?;
    let mut all = Vec::new();
    for panel in panels(&board) {
        let title = panel["title"].as_str().unwrap_or_default();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().with_context(|| format!("{title}: a target without expr"))?;
            all.push((title.to_owned(), with_variables(query)));
        }
    }
    Ok(all)
}

/// Returns a query with values of its variables, as Grafana sends it.
fn with_variables(query: &str) -> String {
    let variables =
        [("$__rate_interval", "1m"), ("$__range", "1h"), ("$namespace", ".+"), ("$workload", ".+"), ("$price", "0.04")];
    variables.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::promtool;
    use crate::promql::unknown_names;
    use std::collections::BTreeSet;

    /// Goal: no panel refers to an unknown metric. `promtool` checks that each query is valid.
    #[test]
    fn panels_query_existing_metrics() {
        let queries = queries().expect("a board");
        let mut rules = Vec::new();
        for (at, (title, query)) in queries.iter().enumerate() {
            assert_eq!(unknown_names(query), <[String; 0]>::default(), "{title}");
            assert!(!query.contains('$'), "{title}: {query}");
            rules.push(serde_json::json!({"record": format!("query:{at}"), "expr": query}));
        }
        let file = serde_json::json!({"groups": [{"name": "board", "rules": rules}]});
        promtool("check", &file);
    }

    /// Goal: Grafana shows each panel: ids are unique, no panel covers another, and only rows have no query.
    #[test]
    fn panels_do_not_overlap() {
        let board = read().expect("a board");
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels(&board) {
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().expect("a position"));
            assert!(x + w <= 24, "{panel}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{} covers another panel", panel["title"]);
            }
            let is_row = panel["type"] == "row";
            assert_eq!(panel["targets"].as_array().is_none_or(Vec::is_empty), is_row, "{}", panel["title"]);
        }
    }
}
