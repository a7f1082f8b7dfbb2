//! Names in messages.

/// Lists names in a message: `a, b and c`, or `a, b and 4 more` if there are more than `max`.
pub(crate) fn list_names(names: &[String], max: usize) -> String {
    let mut parts: Vec<String> = names.iter().take(max).cloned().collect();
    if names.len() > max {
        parts.push(format!("{} more", names.len() - max));
    }
    match parts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_lists_some_names_and_counts_the_rest() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let lists = [(0, ""), (1, "a"), (2, "a and b"), (3, "a, b and c"), (4, "a, b, c and 1 more")];
        for (count, expected) in lists {
            assert_eq!(super::list_names(&names[..count], 3), expected);
        }
    }
}
