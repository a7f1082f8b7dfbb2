//! Writes the files generated from the alert rules. With `queries`, prints every query of rules and board, one per
//! line.

use anyhow::Context;
use monitoring::{board, repository_path, rules};

fn main() -> anyhow::Result<()> {
    let rules = rules::read()?;
    if std::env::args().nth(1).as_deref() == Some("queries") {
        let queries = rules.iter().map(|rule| (rule.alert.clone(), rule.expr.clone())).chain(board::queries()?);
        for (of, query) in queries {
            println!("{of}\t{}", query.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        return Ok(());
    }
    for (path, text) in [(rules::OBJECT, rules::object()?), (rules::PAGE, rules::page(&rules))] {
        std::fs::write(repository_path(path), text).context(path)?;
    }
    Ok(())
}
