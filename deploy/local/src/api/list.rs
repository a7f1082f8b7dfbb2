//! Lists: selection, pages and resource version.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::causes::Causes;
use super::core::Api;
use super::media::Form;
use super::query::Query;
use super::resource::Resource;
use super::selector::Selector;
use super::status::{ApiError, Result};
use super::store::{Listed, Object, Span};
use super::table::{Include, partial, table};

/// Page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    objects: Vec<Arc<Object>>,
    metadata: Value,
}

impl Page {
    /// Builds a page that is not part of a larger list.
    pub(crate) fn of(objects: Vec<Arc<Object>>, version: u64) -> Self {
        Page { objects, metadata: json!({"resourceVersion": version.to_string()}) }
    }

    /// Builds a page of objects that are not in the store.
    pub(crate) fn of_now(objects: Vec<Arc<Object>>) -> Self {
        Page { objects, metadata: json!({}) }
    }

    /// Encodes the page as JSON.
    pub(crate) fn encode(&self, resource: &Resource, form: Form, include: Include) -> Bytes {
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
                        None if resource.is_converted() => {
                            out.put(resource.present(&object.value).to_string().as_bytes());
                        }
                        None => out.put(&object.json()[..]),
                    }
                }
                out.put(&b"]}"[..]);
                out.freeze()
            }
            Form::Table => {
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
    if resource.is_converted() {
        out.put(resource.full(&object.value).to_string().as_bytes());
        return;
    }
    let (kind, version) = (&resource.kind, resource.api_version());
    out.put(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",").as_bytes());
    out.put(&object.json()[1..]);
}

/// Encodes one object in the requested form.
pub(crate) fn encode_one(resource: &Resource, object: &Object, form: Form, include: Include) -> Bytes {
    match form {
        Form::Plain => {
            let mut out = BytesMut::new();
            put_typed(&mut out, resource, object);
            out.freeze()
        }
        Form::Table => {
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
    let mut causes = Causes::default();
    let matching = query.text("resourceVersionMatch");
    let initial = query.flag("sendInitialEvents");
    let version = query.text("resourceVersion");
    if initial && !watch {
        causes.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    } else if initial && matching != "NotOlderThan" {
        causes.forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    } else if watch && !initial && !matching.is_empty() {
        causes.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden for watch");
    } else if !watch && !matching.is_empty() {
        if !["Exact", "NotOlderThan"].contains(&matching) {
            causes.not_supported("resourceVersionMatch", &matching.into(), &["Exact", "NotOlderThan", ""]);
        } else if version.is_empty() {
            causes.forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        } else if matching == "Exact" && version == "0" {
            causes.forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid_kind("meta.k8s.io", "ListOptions", "", causes))
}

impl Api {
    /// Returns a list or a page of it. Later pages use the version of the first one.
    pub(crate) fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &Selector,
        query: &Query,
    ) -> Result<Page> {
        check_options(query, false)?;
        let limit: usize = query.number("limit")?.unwrap_or(0);
        let asked = version(query)?;
        let prefix = resource.prefix(namespace);
        let token = query.text("continue");
        let gone = |version: u64| {
            ApiError::expired(format!("The provided continue parameter or version is too old: {version} is forgotten"))
        };
        let (at, after) = if !token.is_empty() {
            let (at, after) = read_token(token)?;
            (Some(at), Some(after))
        } else {
            self.check_reached(asked)?;
            ((query.text("resourceVersionMatch") == "Exact").then_some(asked), None)
        };
        // The selection is only known after reading, so a selector allows no limit here.
        let most = if limit > 0 && selector.is_empty() { limit } else { usize::MAX };
        let span = Span { prefix: &prefix, after: after.as_deref(), most };
        let Listed { mut objects, mut remaining, version: at } =
            self.store.page(&resource.table, &span, at).map_err(|_| gone(at.unwrap_or_default()))?;
        objects.retain(|object| selector.matches(&object.value));
        if limit > 0 && objects.len() > limit {
            remaining = objects.len() - limit;
            objects.truncate(limit);
        }
        let mut metadata = json!({"resourceVersion": at.to_string()});
        if remaining > 0 {
            let key =
                |object: &Arc<Object>| resource.key(object.text("/metadata/namespace"), object.text("/metadata/name"));
            let last = objects.last().map(key).unwrap_or_default();
            metadata["continue"] = URL_SAFE_NO_PAD.encode(format!("{at} {last}")).into();
            if selector.is_empty() {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        Ok(Page { objects, metadata })
    }

    fn check_reached(&self, asked: u64) -> Result<()> {
        let current = self.store.version();
        if asked > current { Err(ApiError::version_too_large(asked, current)) } else { Ok(()) }
    }
}

fn read_token(token: &str) -> Result<(u64, String)> {
    let refuse = || ApiError::bad_request("continue key is not valid");
    let text = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(refuse)?;
    let (at, after) = text.split_once(' ').ok_or_else(refuse)?;
    Ok((at.parse().map_err(|_| refuse())?, after.to_string()))
}
