//! Scale target of a PodAutoscaler: no accepted text leaves its segment of an API path.

use common_api::validation::{is_api_version, is_kind, is_object_name};
use fuzz::{INPUTS, Piece, TIME, render_text};
use std::sync::LazyLock;

static FRAGMENTS: LazyLock<Vec<&str>> = LazyLock::new(|| FRAGMENT_LIST.split('|').collect());
/// Fragments, separated by `|`.
const FRAGMENT_LIST: &str = "\
    apps|v1|v1beta1|Deployment|example.com|hello|/|%2F|%2e|.|..|../|?watch=1|#|;|\\| |-|_|A|é|\u{0}";

#[test]
fn no_reference_leaves_its_path_segment() {
    bolero::check!().with_iterations(INPUTS).with_test_time(TIME).with_type::<Vec<Piece>>().for_each(|pieces| {
        let text = render_text(pieces, &FRAGMENTS);
        let is_segment = |part: &str| {
            let plain = part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
            plain && !part.is_empty() && part != "." && !part.contains("..")
        };
        if is_kind(&text) || is_object_name(&text) {
            assert!(is_segment(&text), "{text:?}");
        }
        if is_api_version(&text) {
            let parts: Vec<_> = text.split('/').collect();
            assert!(parts.len() <= 2 && parts.into_iter().all(is_segment), "{text:?}");
            assert_eq!(text, text.to_ascii_lowercase(), "there is one spelling");
        }
    });
}
