//! Proves that the check of each kind can fail: each kind has a case that passes, and that fails as soon as any one of
//! its expected values is changed.
//!
//! The cases are written by hand, one file per kind in `tests/data`. A kind without a case fails the test.

use std::fs;
use std::path::{Path, PathBuf};

use conformance::kinds::{Check, EXPECTED, KINDS, VectorKind};
use conformance::suite::Suite;
use serde_json::{Value, json};

/// Goal: the check of each kind compares all expected values. Method: walk the case, change one leaf below a field with
/// expectations at a time, and run the case again.
#[test]
fn each_changed_expectation_fails_the_case_of_its_kind() {
    for kind in KINDS {
        let case = case(kind);
        let mut check = checker(kind);
        assert_eq!(check(&case), Ok(()), "{}: the unchanged case", kind.name);
        let mut places = Vec::new();
        leaves(&case, false, String::new(), &mut places);
        assert!(!places.is_empty(), "{}: the case has no expectations", kind.name);
        for place in places {
            for (how, changed) in perturbations(case.pointer(&place).expect("a collected leaf")) {
                let mut perturbed = case.clone();
                *perturbed.pointer_mut(&place).expect("a collected leaf") = changed;
                assert!(check(&perturbed).is_err(), "{}: {place} {how}, and the case passed", kind.name);
            }
        }
    }
}

/// Goal: a file left behind by a removed kind is detected.
#[test]
fn each_case_belongs_to_a_kind() {
    for entry in fs::read_dir(folder()).expect("tests/data") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|s| s.to_str()).expect("a name");
        assert!(KINDS.iter().any(|kind| kind.name == name), "{} belongs to no kind", path.display());
    }
}

/// Returns the function that runs the cases of a kind, with its shared state.
fn checker(kind: &VectorKind) -> Suite {
    match kind.check {
        Check::Pure(check) => Box::new(check),
        Check::Suite(open) => open(&None).expect("a suite that starts"),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn case(kind: &VectorKind) -> Value {
    let path = folder().join(format!("{}.json", kind.name));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{} needs a case of its own: {e}", path.display()));
    let case: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(case["kind"], kind.name, "{}", path.display());
    case
}

/// Collects JSON pointers to all leaves and lists below fields with expectations.
fn leaves(value: &Value, inside: bool, at: String, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let inside = inside || EXPECTED.iter().any(|prefix| name.starts_with(prefix));
                leaves(value, inside, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), places);
            }
        }
        Value::Array(elements) => {
            if inside {
                places.push(at.clone());
            }
            for (i, value) in elements.iter().enumerate() {
                leaves(value, inside, format!("{at}/{i}"), places);
            }
        }
        _ if inside => places.push(at),
        _ => {}
    }
}

/// Returns changed values, each with a description of the change.
fn perturbations(value: &Value) -> Vec<(&'static str, Value)> {
    match value {
        Value::Null => vec![("was null and became 0", json!(0))],
        Value::Bool(b) => vec![("was flipped", json!(!b))],
        Value::Number(n) => match n.as_i64() {
            Some(n) => vec![("grew by one", json!(n.wrapping_add(1)))],
            None => {
                let n = n.as_f64().expect("a number");
                vec![("grew by 0.1 %", json!(n + (n.abs() * 1e-3).max(1e-3)))]
            }
        },
        Value::String(s) => vec![("got a letter more", json!(format!("{s}x")))],
        Value::Array(list) => {
            let mut longer = list.clone();
            longer.push(list.last().cloned().unwrap_or(json!(1)));
            let mut all = vec![("got an element more", Value::Array(longer))];
            if let [head @ .., _] = list.as_slice() {
                all.push(("lost its last element", Value::Array(head.to_vec())));
            }
            all
        }
        Value::Object(_) => Vec::new(),
    }
}
