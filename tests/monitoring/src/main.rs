//! Writes the files generated from the alert rules. With `queries`, prints every query of rules and board, one per
//! line.

use anyhow::Context;
use monitoring::{board, made, place, rules};

fn main() -> anyhow::Result<()> {
    let rules = rules::read()?;
    if std::env::args().nth(1).as_deref() == Some("queries") {
        let queries = rules.iter().map(|rule| (rule.alert.clone(), rule.expr.clone())).chain(board::queries()?);
        for (of, query) in queries {
            println!("{of}\t{}", query.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        return Ok(());
    }
    for (path, text) in [(made::OBJECT, made::object()?), (made::PAGE, made::page(&rules))] {
        std::fs::write(place(path), text).context(path)?;
    }
    Ok(())
}
