//! Tests that the manual matches the code: it lists all conditions, reasons, events, refusals, marks, keys and
//! variables. Its pages are in its summary, its links lead to existing headings, and its times are those of the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use workspace_tests::{read, root};

/// Returns all Rust sources of some folders, without tests.
fn sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "examples", "benches", "target"].contains(&&*name) {
            open.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push((path.clone(), code(path)));
        }
    }
    assert!(!found.is_empty(), "no sources in {folders:?}");
    found
}

/// Reads a Rust file without its inline tests.
fn code(file: impl AsRef<Path>) -> String {
    read(file).split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

/// Returns the texts between quotation marks, except in comments.
fn quoted(code: &str) -> impl Iterator<Item = &str> {
    code.lines().flat_map(|line| line.split("//").next().unwrap_or_default().split('"').skip(1).step_by(2))
}

/// Returns the text after each `before` up to the next quotation mark.
fn after<'a>(code: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    code.split(before).skip(1).filter_map(|rest| rest.split('"').next())
}

/// Returns the words in backticks in the first cells of the table under a heading.
fn listed<'a>(page: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let section = page.split(heading).nth(1).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Checks that a page lists the words of the code and no others.
fn equal(what: &str, page: &BTreeSet<&str>, code: &BTreeSet<&str>) {
    let missing: Vec<_> = code.difference(page).collect();
    let invented: Vec<_> = page.difference(code).collect();
    assert!(missing.is_empty() && invented.is_empty(), "{what}: missing {missing:?}, not in the code {invented:?}");
}

#[test]
fn every_refusal_is_in_the_manual() {
    let (page, code) = (read("deploy/docs/reference.md"), read("activator/src/refusal.rs"));
    let reasons = after(&code, "=> \"").chain(after(&code, "=> (\"")).collect();
    equal("refusals", &listed(&page, "\n## Refusals\n"), &reasons);
}

/// Goal: the manual lists each condition of a ZeroScaler and each of its reasons.
#[test]
fn every_condition_and_reason_is_in_the_manual() {
    let page = read("deploy/docs/reference.md");
    let conditions = read("common/api/src/zeroscaler/conditions.rs");
    let types: BTreeSet<_> = after(&conditions, ": &str = \"").collect();
    let allocation = code("autoscaler/src/standalone/scalers/allocation.rs");
    let own: String = sources(&["autoscaler/src/standalone"]).into_iter().map(|(_, code)| code).collect();
    // Reasons of failed metrics.
    let measure = code("autoscaler/hpa/core/src/measure.rs");
    let evaluation = read("autoscaler/src/metric_engine/evaluation.rs");
    let is_word =
        |word: &&str| word.len() > 3 && word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric);
    let mut reasons: BTreeSet<_> =
        after(&own, ": &str = \"").chain(after(&allocation, "=> \"")).filter(is_word).collect();
    reasons.extend(after(&own, "Finding::new(\""));
    reasons.extend(after(&measure, "Failure::new(\"").chain(after(&measure, "reason: \"")));
    reasons.extend(after(&evaluation, "Some((\""));
    // Reasons why pods do not serve.
    let causes = read("autoscaler/core/src/cause.rs");
    let causes = causes.split("\nfn cause(").nth(1).and_then(|rest| rest.split("\n}").next()).expect("fn cause");
    reasons.extend(after(causes, "\n        \""));
    let conditions_listed = listed(&page, "\n## Conditions\n");
    equal("conditions and reasons", &conditions_listed, &types.union(&reasons).copied().collect());
}

#[test]
fn every_event_is_in_the_manual() {
    let page = read("deploy/docs/reference.md");
    let all: String = sources(&["autoscaler/src"]).into_iter().map(|(_, code)| code).collect();
    let before = "warning(|normal(|Severity::Warning, |Severity::Normal, |warn(subject, |\
                  record_error(COMPONENT, &object, |REASON: &str = ";
    let before: Vec<_> = before.split('|').map(|before| format!("{before}\"")).collect();
    let code: BTreeSet<_> = before.iter().flat_map(|before| after(&all, before)).collect();
    equal("events", &listed(&page, "\n## Events\n"), &code);
}

/// Goal: the manual lists each finalizer, annotation and label that is written. Users set the label `response`.
#[test]
fn every_finalizer_annotation_and_label_is_in_the_manual() {
    let page = read("deploy/docs/reference.md");
    let all: String = sources(&["common", "autoscaler"]).into_iter().map(|(_, code)| code).collect();
    let code = after(&all, "&str = \"zeroscale.dev/").filter(|mark| *mark != "response").collect();
    let listed = listed(&page, "\n## Finalizers, annotations and labels\n");
    equal("marks", &listed.iter().filter_map(|mark| mark.strip_prefix("zeroscale.dev/")).collect(), &code);
}

/// Goal: each ConfigMap key that is read is in the map's example, or in the table of keys that only Knative's maps
/// have.
#[test]
fn every_key_of_a_config_map_is_in_its_example() {
    let settings = read("deploy/kubernetes/README.md");
    let theirs: BTreeSet<&str> = settings
        .split("**Keys that only Knative's ConfigMaps have.**")
        .nth(1)
        .and_then(|rest| rest.split("\n**").next())
        .expect("their table")
        .split('`')
        .skip(1)
        .step_by(2)
        .collect();
    let is_key = |word: &&str| {
        let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase());
        let (whole, parts) = (word.trim_end_matches('.'), |c| c == '-' || c == '.');
        whole.contains(parts) && whole.split(parts).all(is_part)
    };
    for name in ["autoscaler", "deployment", "leader-election", "logging", "network", "observability", "ports"] {
        let mut code_of_map = code(format!("common/src/config/{}.rs", name.replace('-', "_")));
        if name == "observability" {
            code_of_map += &code("activator/src/layers/request_log/config.rs");
        }
        let before = ["read.parse(&[\"", "const RANGE: &str = \""];
        let one_word = before.into_iter().flat_map(|before| after(&code_of_map, before));
        let keys: BTreeSet<&str> = quoted(&code_of_map).filter(is_key).chain(one_word).collect();
        let example = read(format!("deploy/kubernetes/base/config-{name}.yaml"));
        let is_there = |key: &str| example.contains(key) || theirs.iter().any(|there| there.starts_with(key));
        let missing: Vec<_> = keys.iter().filter(|key| !is_there(key)).collect();
        assert!(!keys.is_empty() && missing.is_empty(), "config-{name}.yaml does not name {missing:?}");
    }
}

/// Goal: each variable that a plane reads is in the settings, except those of the Kubernetes client and of logging.
#[test]
fn every_variable_is_in_the_settings() {
    let page = read("deploy/kubernetes/README.md");
    let sources = sources(&["activator", "autoscaler", "common"]);
    let is_variable = |word: &&str| {
        let (head, rest) = word.split_at_checked(1).unwrap_or_default();
        let letters = |text: &str| text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        head.chars().all(|c| c.is_ascii_uppercase()) && letters(rest) && word.contains('_') && !word.ends_with('_')
    };
    let ours = "ZEROSCALE_ CONFIG_ METRICS_PROMETHEUS_ STATEFUL_ MAX_IDLE_ KUBE_API_ ACTIVATOR_TLS POD_ OTEL_";
    let is_ours = |word: &&str| ours.split(' ').any(|prefix| word.starts_with(prefix));
    let mut read: BTreeSet<&str> = BTreeSet::new();
    for (_, code) in &sources {
        read.extend(quoted(code).filter(is_variable).filter(is_ours));
    }
    assert!(read.len() > 30, "{read:?}");
    // `_KEY` beside a variable stands for one with the same prefix, `STATEFUL_SERVICE_*` for all with that prefix.
    let words: BTreeSet<&str> =
        page.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || "_*".contains(c))).collect();
    let is_there = |variable: &str| {
        let is_head = |head: &str| !head.is_empty() && variable.starts_with(head);
        let begins = |word: &&str| word.strip_suffix('*').is_some_and(is_head);
        let ends = |word: &&str| word.starts_with('_') && word.len() > 2 && variable.ends_with(*word);
        // `ZEROSCALE_STAT_TLS` in the code is the prefix of several variables.
        let is_beginning = |word: &&str| word.strip_prefix(variable).is_some_and(|rest| rest.starts_with('_'));
        words.contains(variable) || words.iter().any(|word| begins(word) || ends(word) || is_beginning(word))
    };
    let missing: Vec<_> = read.iter().filter(|variable| !is_there(variable)).collect();
    assert!(missing.is_empty(), "deploy/kubernetes/README.md does not name {missing:?}");
}

/// Goal: no kubelet kills an activator during its shutdown: the grace period of the pod exceeds the activator's own
/// bounds. In the drop-in for Knative the activator does not wait until clients are routed elsewhere.
#[test]
fn the_grace_period_of_a_pod_exceeds_the_shutdown_of_its_activator() {
    let (options, endpoint_removal) =
        (read("activator/src/config/options.rs"), read("activator/src/endpoint_removal.rs"));
    let seconds = |text: &str, before: &str| -> u64 {
        let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before}")).1;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_else(|error| panic!("{before}{digits}: {error}"))
    };
    let bound = |text, name| seconds(text, &format!("{name}: Duration::from_secs("));
    let constant = |name| seconds(&endpoint_removal, &format!("const {name}: Duration = Duration::from_secs("));
    let (linger, drain) = (bound(&options, " linger"), bound(&options, " drain"));
    let elsewhere = constant("WAIT_MAX") + constant("NODE_DELAY");
    for (manifest, takes) in [
        ("deploy/kubernetes/base/activator.yaml", linger + elsewhere + drain),
        ("deploy/kubernetes/knative/activator/deployment.yaml", linger + drain),
    ] {
        let has = seconds(&read(manifest), "terminationGracePeriodSeconds: ");
        assert!(has > takes && has < takes + 60, "{manifest}: {has} s, and it takes {takes} s");
        let page = read("deploy/kubernetes/README.md");
        assert!(manifest.contains("/knative/") || page.contains(&format!("its pod has {has} s")), "{has}");
    }
    let page = read("deploy/docs/operating.md");
    for words in [format!("for {} s at most", linger + elsewhere), format!("within {drain} s")] {
        assert!(page.contains(&words), "operating.md does not say `{words}`");
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = read("deploy/docs/SUMMARY.md");
    for page in std::fs::read_dir(root().join("deploy/docs")).expect("the manual").flatten() {
        let name = page.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(summary.contains(&format!("]({name})")), "deploy/docs/SUMMARY.md does not list {name}");
        }
    }
}

/// Converts a heading into an anchor like GitHub and mdBook.
fn anchor(heading: &str) -> String {
    let words = heading.trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[test]
fn every_anchor_in_a_link_is_a_heading() {
    let documents = "\
        README.md .github/CONTRIBUTING.md .github/SECURITY.md .github/CHANGELOG.md deploy/kubernetes/README.md \
        deploy/kubernetes/chart/README.md deploy/images/README.md deploy/DIFFERENCES.md";
    let manual = std::fs::read_dir(root().join("deploy/docs")).expect("the manual").flatten().map(|entry| entry.path());
    let pages = manual.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut anchors = 0;
    for document in documents.split(' ').map(|file| root().join(file)).chain(pages) {
        let text = read(&document);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, fragment)) = target.split_once('#').filter(|_| !target.contains("://")) else { continue };
            let page =
                if file.is_empty() { text.clone() } else { read(document.parent().expect("a folder").join(file)) };
            let mut headings = page.lines().filter(|line| line.starts_with('#'));
            let found = headings.any(|line| anchor(line.trim_start_matches('#')) == fragment);
            assert!(found, "{} links to {target}, which has no such heading", document.display());
            anchors += 1;
        }
    }
    assert!(anchors > 5, "{anchors}");
}

/// Goal: workflows pin the actions of other projects to a commit, which cannot be moved.
#[test]
fn actions_are_pinned() {
    for workflow in std::fs::read_dir(root().join(".github/workflows")).expect("workflows").flatten() {
        let text = read(workflow.path());
        let actions: Vec<_> = after(&text.replace('\n', "\"\n"), "uses: ").map(str::to_owned).collect();
        assert!(!actions.is_empty(), "{}", workflow.path().display());
        for action in actions {
            let commit = action.split('@').nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit, "{}: {action} is not pinned to a commit", workflow.path().display());
        }
    }
}
