//! Lists: selection and resource version.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::causes::Causes;
use super::core::Api;
use super::media::Form;
use super::query::Query;
use super::resource::Resource;
use super::selector::Selector;
use super::status::{ApiError, Result};
use super::store::Object;
use super::table::{partial, table};

/// A list of objects.
#[derive(Debug)]
pub(crate) struct Page {
    objects: Vec<Arc<Object>>,
    metadata: Value,
}

impl Page {
    /// Builds a list of stored objects at a version.
    pub(crate) fn new(objects: Vec<Arc<Object>>, version: u64) -> Self {
        Page { objects, metadata: json!({"resourceVersion": version.to_string()}) }
    }

    /// Builds a list of objects that are not in the store.
    pub(crate) fn of_now(objects: Vec<Arc<Object>>) -> Self {
        Page { objects, metadata: json!({}) }
    }

    /// Encodes the list as JSON.
    pub(crate) fn encode(&self, resource: &Resource, form: Form) -> Bytes {
        match form {
            Form::Plain => {
                let mut out = BytesMut::new();
                let (kind, version) = (&resource.list_kind, resource.api_version());
                out.put(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":").as_bytes());
                out.put(self.metadata.to_string().as_bytes());
                out.put(&b",\"items\":["[..]);
                for (index, object) in self.objects.iter().enumerate() {
                    if index > 0 {
                        out.put_u8(b',');
                    }
                    // Items of built-in lists have no kind of their own.
                    match resource.custom() {
                        Some(_) => put_typed(&mut out, resource, object),
                        None => out.put(&object.json()[..]),
                    }
                }
                out.put(&b"]}"[..]);
                out.freeze()
            }
            Form::Table(include) => {
                let objects = self.objects.iter().map(|object| &**object);
                table(resource, objects, self.metadata.clone(), include, true).to_string().into()
            }
            Form::Partial => {
                let items: Vec<Value> = self.objects.iter().map(|object| partial(object)).collect();
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": self.metadata, "items": items,
                });
                list.to_string().into()
            }
        }
    }
}

/// Writes an object with its kind, without rebuilding it.
pub(crate) fn put_typed(out: &mut BytesMut, resource: &Resource, object: &Object) {
    let (kind, version) = (&resource.kind, resource.api_version());
    out.put(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",").as_bytes());
    out.put(&object.json()[1..]);
}

/// Encodes one object in the requested form.
pub(crate) fn encode_one(resource: &Resource, object: &Object, form: Form) -> Bytes {
    match form {
        Form::Plain => {
            let mut out = BytesMut::new();
            put_typed(&mut out, resource, object);
            out.freeze()
        }
        Form::Table(include) => {
            let metadata = json!({"resourceVersion": object.version.to_string()});
            table(resource, std::iter::once(object), metadata, include, true).to_string().into()
        }
        Form::Partial => partial(object).to_string().into(),
    }
}

/// Returns the version in a query. An absent version equals 0.
pub(crate) fn version(query: &Query) -> Result<u64> {
    let text = query.text("resourceVersion");
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            ApiError::bad_request(format!("Invalid value: \"{text}\": resourceVersion must be a version"))
        }),
    }
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
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid_kind("meta.k8s.io", "ListOptions", "", causes)) }
}

impl Api {
    /// Returns a list of the current objects. A `limit` is ignored, as the API allows: each list is complete.
    pub(crate) fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &Selector,
        query: &Query,
    ) -> Result<Page> {
        check_options(query, false)?;
        query.number::<usize>("limit")?;
        if !query.text("continue").is_empty() {
            return Err(ApiError::bad_request("continue key is not valid"));
        }
        let (mut objects, current) = self.store.list(&resource.table, &resource.prefix(namespace));
        match version(query)? {
            asked if asked > current => return Err(ApiError::version_too_large(asked, current)),
            asked if asked < current && query.text("resourceVersionMatch") == "Exact" => {
                return Err(ApiError::expired(format!("The provided version is too old: {asked} is forgotten")));
            }
            _ => {}
        }
        objects.retain(|object| selector.matches(&object.value));
        Ok(Page::new(objects, current))
    }
}
