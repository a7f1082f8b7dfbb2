//! The `pod-template-hash` label: a short name of a pod template.
//!
//! The hash is FNV-1a over the template's JSON (with fields in a fixed order) and the collision count. As in
//! Kubernetes, its letters form no words. The values differ from those of Kubernetes, which is harmless: an existing
//! ReplicaSet is recognized by its template, not by its hash.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Label on a Deployment's ReplicaSets and pods.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Letters except vowels, and digits that do not look like vowels.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns the hash of a template.
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
