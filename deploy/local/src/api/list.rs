//! Lists: selection and resource version.

use std::sync::Arc;

use serde_json::{Value, json};

use super::columns::{partial, table};
use super::core::Api;
use super::media::Form;
use super::query::Query;
use super::query::Selector;
use super::resource::Resource;
use super::status::Causes;
use super::status::{ApiError, Result};
use super::store::Object;

/// Returns a list of objects in the requested form. `version` is the version of a list of stored objects.
pub(crate) fn represent_all(resource: &Resource, objects: &[Arc<Object>], version: Option<u64>, form: Form) -> Value {
    let metadata = version.map_or_else(|| json!({}), |version| json!({"resourceVersion": version.to_string()}));
    let objects = objects.iter().map(|object| &**object);
    let (kind, version, items): (&str, String, Vec<Value>) = match form {
        Form::Table(include) => return table(resource, objects, metadata, include, true),
        Form::Partial => ("PartialObjectMetadataList", "meta.k8s.io/v1".into(), objects.map(partial).collect()),
        // Items of built-in lists have no kind of their own.
        Form::Plain => {
            let item = |object: &Object| match resource.is_custom() {
                true => resource.full(&object.value),
                false => object.value.clone(),
            };
            (&*resource.list_kind, resource.api_version(), objects.map(item).collect())
        }
    };
    json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items})
}

/// Returns the version in a query. An absent version equals 0.
pub(crate) fn version(query: &Query) -> Result<u64> {
    let text = if query.text("resourceVersion").is_empty() { "0" } else { query.text("resourceVersion") };
    let refuse = |_| ApiError::bad_request(format!("Invalid value: \"{text}\": resourceVersion must be a version"));
    text.parse().map_err(refuse)
}

/// Checks the options shared by lists and watches.
pub(crate) fn check_options(query: &Query, watch: bool) -> Result<()> {
    const MATCH: &str = "resourceVersionMatch";
    let (initial, matching, version) =
        (query.flag("sendInitialEvents"), query.text(MATCH), query.text("resourceVersion"));
    let mut causes = Causes::default();
    match (watch, initial, matching) {
        (false, true, _) => causes.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"),
        (true, true, "NotOlderThan") | (_, false, "") => {}
        (true, true, _) => {
            causes.forbidden(MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        (true, false, _) => causes.forbidden(MATCH, "resourceVersionMatch is forbidden for watch"),
        (false, false, "Exact" | "NotOlderThan") if version.is_empty() => {
            causes.forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        (false, false, "Exact") if version == "0" => {
            causes.forbidden(MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        (false, false, "Exact" | "NotOlderThan") => {}
        (false, false, other) => causes.not_supported(MATCH, &other.into(), &["Exact", "NotOlderThan", ""]),
    }
    causes.into_result("meta.k8s.io", "ListOptions", "")
}

impl Api {
    /// Returns the current objects and their version. A `limit` is ignored, as the API allows: each list is complete.
    pub(crate) fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &Selector,
        query: &Query,
    ) -> Result<(Vec<Arc<Object>>, u64)> {
        check_options(query, false)?;
        query.number::<usize>("limit")?;
        if !query.text("continue").is_empty() {
            return Err(ApiError::bad_request("continue key is not valid"));
        }
        let (mut objects, current) = self.store.list(&resource.table, &resource.prefix(namespace));
        match version(query)? {
            requested if requested > current => return Err(ApiError::version_too_large(requested, current)),
            requested if requested < current && query.text("resourceVersionMatch") == "Exact" => {
                return Err(ApiError::expired(format!("The provided version is too old: {requested} is forgotten")));
            }
            _ => {}
        }
        objects.retain(|object| selector.matches(&object.value));
        Ok((objects, current))
    }
}
