//! The `pod-template-hash` label: a short name for a pod template.
//!
//! FNV-1a over the template's JSON (fields in a fixed order) and the count of collisions so far, spelled in letters
//! that form no words, as Kubernetes does. The values differ from Kubernetes' own, and need not agree with them: an
//! existing ReplicaSet is recognised by its template, never by its hash.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Label on a Deployment's ReplicaSets and pods.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// No vowels, and nothing that looks like one.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a template.
pub(crate) fn template_hash(template: &PodTemplateSpec, collisions: i32) -> String {
    let json = serde_json::to_string(template).unwrap_or_default();
    let bytes = json.bytes().chain(collisions.to_be_bytes().into_iter().filter(|_| collisions > 0));
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_template_and_collisions_alone() {
        let template = PodTemplateSpec::default();
        let mut other = template.clone();
        other.metadata.get_or_insert_default().labels = Some([("a".to_owned(), "b".to_owned())].into());
        assert_eq!(template_hash(&template, 0), template_hash(&template, 0));
        assert_ne!(template_hash(&template, 0), template_hash(&other, 0));
        assert_ne!(template_hash(&template, 0), template_hash(&template, 1));
        assert!(template_hash(&template, 0).bytes().all(|b| ALPHABET.contains(&b)));
    }
}
