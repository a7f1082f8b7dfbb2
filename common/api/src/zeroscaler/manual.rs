//! Manual page about ZeroScalers, generated from the definition: every field with its type, default and rule.

use super::checks::{Check, fields};
use super::conditions::TYPES;
use super::crd::crd;
use super::rules::rules;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use std::fmt::Write;

/// Path of the page, relative to the repository.
pub const PAGE: &str = "deploy/docs/zeroscaler.md";

/// Template of the page; comments mark the places for content from the definition.
const TEMPLATE: &str = include_str!("manual.md");

/// Fields whose own fields are explained elsewhere: in another API, or in the spec.
const ELSEWHERE: [&str; 4] = ["spec.metrics", "spec.behavior", "status.fallback.match", "status.conditions"];

/// Renders the page.
pub fn page() -> String {
    let crd = crd();
    let columns = crd.spec.versions.iter().flat_map(|version| version.additional_printer_columns.iter().flatten());
    let (wide, plain): (Vec<_>, Vec<_>) = columns.partition(|column| column.priority.is_some());
    let names = |columns: &[&Column]| list(&columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>());
    let table = |field: &str| {
        let mut lines = String::new();
        if let Some(schema) = root(&crd).and_then(|root| root.properties.as_ref()?.get(field)) {
            rows(schema, field, &mut lines);
        }
        lines
    };
    TEMPLATE
        .replace("<!-- spec -->\n", &table("spec"))
        .replace("<!-- status -->\n", &table("status"))
        .replace(
            "<!-- rules -->\n",
            &rules().iter().map(|rule| format!("- {}.\n", rule.description)).collect::<String>(),
        )
        .replace("<!-- types -->", &list(&TYPES))
        .replace("<!-- plain -->", &names(&plain))
        .replace("<!-- wide -->", &names(&wide))
}

type Column = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

fn root(crd: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    crd.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn rows(schema: &JSONSchemaProps, path: &str, page: &mut String) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        let relative = path.split_once('.').map_or(path.as_str(), |(_, rest)| rest);
        let default = field.default.as_ref().map(|default| default.0.to_string()).filter(|text| text != "{}");
        let default = default.map(|text| format!("`{}`", text.trim_matches('"'))).unwrap_or_default();
        let required = schema.required.as_ref().is_some_and(|required| required.contains(name));
        let default = if required && path.starts_with("spec") { "required".to_owned() } else { default };
        let rule = rule(&path).map(|rule| format!(" Must be: {rule}.")).unwrap_or_default();
        let text = field.description.as_deref().unwrap_or_default().replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(page, "| `{relative}` | {} | {default} | {text}{rule} |", kind(field));
        if ELSEWHERE.contains(&path.as_str()) {
            continue;
        }
        rows(field, &path, page);
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            rows(items, &format!("{path}[]"), page);
        }
    }
}

/// Returns the expected form of a field, unless its description lists the allowed values.
fn rule(path: &str) -> Option<String> {
    let find = |path: &str| fields().find(|(field, _)| *field == path).map(|(_, check)| check);
    let check = find(path).or_else(|| find(&format!("{path}[]")))?;
    match check {
        Check::OneOf(_) => None,
        check => Some(check.rule().replace(" is expected", "").replace(" are expected", "")),
    }
}

fn kind(field: &JSONSchemaProps) -> String {
    let name = field.type_.as_deref().unwrap_or("number or text");
    match (&field.items, &field.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => format!("list of {}s", kind(items)),
        (_, Some(JSONSchemaPropsOrBool::Schema(_))) => "map of texts".to_owned(),
        _ => match (name, field.format.as_deref()) {
            ("string", Some("date-time")) => "time".to_owned(),
            ("string", _) => "text".to_owned(),
            ("integer", _) => "whole number".to_owned(),
            (name, _) => name.to_owned(),
        },
    }
}

fn list(names: &[&str]) -> String {
    names.join(", ")
}
