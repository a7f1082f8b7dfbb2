//! Knative's own tests of its probing and of its watcher, row by row. Rows with several listings correspond to tests of
//! the parent module.
//!
//! Healthy sets and published sets are Knative's. The number of probes covers only the event itself, since the pacing
//! is Zeroscale's. Known differences: a pod is published as soon as it passes, not with the slowest of its round; an
//! update that repeats the last is not sent; a fallback to the cluster IP ends when a pod responds; deleted Endpoints
//! empty the set.

use super::*;

/// Response of a pod to every probe.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    /// 200 and `queue`.
    Queue,
    /// 503 or no response: may come from a mesh.
    Mesh,
    /// Another status, which no mesh returns.
    Status,
    /// No response in time.
    Silent,
}

use Answers::{Mesh, Queue, Silent, Status};

/// Creates a machine from Knative's two settings: mesh mode and probe optimisation.
fn watch(mode: &str, optimised: bool) -> Watch {
    let (proof, fallback) = match (mode, optimised) {
        ("disabled", true) => (Proof::ReadyOrProbe, Fallback::Never),
        ("disabled", false) => (Proof::Ready, Fallback::Never),
        ("enabled", _) => (Proof::Probe, Fallback::Always),
        (_, true) => (Proof::Probe, Fallback::WhenUnaddressable),
        (_, false) => (Proof::ProbeAndReady, Fallback::WhenUnaddressable),
    };
    Watch::new(proof, fallback)
}

/// Lists pods and answers all resulting probes at once. Returns the pods probed and the last published set.
fn round(watch: &mut Watch, ready: &[u8], not_ready: &[u8], answers: &[(u8, Answers)]) -> (Vec<u8>, Option<Published>) {
    let (mut sent, mut published) = watch.list(ready, not_ready);
    let mut next = 0;
    while next < sent.len() {
        let n = sent[next];
        next += 1;
        let outcome = match answers.iter().find(|(of, _)| *of == n).map_or(Queue, |(_, answers)| *answers) {
            Queue => ProbeOutcome::Passed(None),
            Mesh => FAIL,
            Status => WRONG_RESPONSE,
            Silent => continue,
        };
        let (more, news) = watch.probed(n, outcome);
        sent.extend(more);
        published = news.or(published);
    }
    sent.retain(|n| *n != 255);
    sent.sort_unstable();
    (sent, published)
}

fn pods(ns: &[u8]) -> Option<Published> {
    Some(Published::Pods(ns.to_vec()))
}

/// Row: name; mode and optimisation; pods healthy before; ready and unready pods now; responses other than `queue`;
/// then the expected healthy pods and the pods probed.
type Row<'a> = (&'a str, (&'a str, bool), &'a [u8], (&'a [u8], &'a [u8]), &'a [(u8, Answers)], &'a [u8], &'a [u8]);

#[test]
fn pods_are_probed_and_used_as_upstream() {
    let rows: &[Row<'_>] = &[
        ("all healthy already", ("auto", true), &[1, 2], (&[1], &[2]), &[], &[1, 2], &[]),
        ("one fails, one is slow", ("auto", true), &[], (&[], &[1, 2, 3]), &[(1, Status)], &[2, 3], &[1, 2, 3]),
        ("no mesh: readiness suffices", ("disabled", true), &[], (&[1], &[2]), &[], &[1, 2], &[2]),
        ("auto: all are probed", ("auto", true), &[], (&[1], &[2]), &[], &[1, 2], &[1, 2]),
        // Knative probes the unready pod too, and ignores the result.
        ("auto, not optimised: readiness is wanted too", ("auto", false), &[], (&[1], &[2]), &[], &[1], &[1]),
        ("a pod that is gone is dropped", ("disabled", true), &[1, 2, 3], (&[1], &[2]), &[], &[1, 2], &[]),
        // Knative needlessly probes unready pods if readiness alone counts.
        ("a pod that became ready", ("disabled", false), &[1], (&[1, 2], &[3]), &[], &[1, 2], &[]),
        ("a pod that is gone, without probes", ("disabled", false), &[1, 2], (&[1], &[3]), &[], &[1], &[]),
        ("an unready newcomer", ("disabled", false), &[1], (&[1], &[3]), &[], &[1], &[]),
        ("nothing has changed", ("disabled", true), &[1, 3], (&[1, 3], &[]), &[], &[1, 3], &[]),
        ("an unready newcomer that may be a mesh", ("auto", true), &[1], (&[1], &[3]), &[(3, Mesh)], &[1], &[3]),
    ];
    for (name, (mode, optimised), healthy, (ready, not_ready), answers, expected, probed) in rows {
        let mut watch = watch(mode, *optimised);
        if !healthy.is_empty() {
            // Healthy as ready pods, or proven before they are ready.
            round(&mut watch, healthy, &[], &[]);
            assert_eq!(watch.healthy(), *healthy, "{name}: before");
            if !not_ready.is_empty() && healthy.contains(&not_ready[0]) {
                // Knative's row starts with a pod that was proven while unready.
                watch = self::watch(mode, *optimised);
                let unready: Vec<u8> = healthy.iter().copied().filter(|n| !ready.contains(n)).collect();
                round(&mut watch, ready, &unready, &[]);
            }
        }
        let (sent, _) = round(&mut watch, ready, not_ready, answers);
        assert_eq!((watch.healthy(), sent), (expected.to_vec(), probed.to_vec()), "{name}");
    }
}

#[test]
fn destinations_are_published_as_upstream() {
    let fallback = |ready| Some(Published::ClusterIp { ready });
    let with_ip = |mode| {
        let mut watch = watch(mode, true);
        watch.handle(Event::ClusterIp(Some(cluster_ip())));
        watch
    };
    // (situation, watcher, ready, not ready, answers) -> published
    type Situation<'a> = (&'a str, Watch, &'a [u8], &'a [u8], &'a [(u8, Answers)], Option<Published>);
    let rows: Vec<Situation<'_>> = vec![
        ("ready pod passes", with_ip("auto"), &[1], &[], &[], pods(&[1])),
        ("unready pod passes", with_ip("auto"), &[], &[1], &[], pods(&[1])),
        ("the same, exec readiness probe", watch("auto", false), &[], &[1], &[], None),
        ("the same, ready in Kubernetes too", watch("auto", false), &[1], &[], &[], pods(&[1])),
        ("pod errs", with_ip("auto"), &[1], &[], &[(1, Status)], None),
        ("one good, one bad", with_ip("auto"), &[1, 2], &[], &[(2, Status)], pods(&[1])),
        ("one 404, one 503", with_ip("auto"), &[1, 2], &[], &[(1, Status), (2, Mesh)], None),
        ("503, cluster IP 200", with_ip("auto"), &[1], &[2], &[(1, Mesh), (2, Mesh)], fallback(1)),
        ("503 both", with_ip("auto"), &[1], &[], &[(1, Mesh), (255, Mesh)], None),
        ("always 404, cluster IP 200", with_ip("auto"), &[1], &[], &[(1, Status)], None),
        ("no Service", watch("auto", true), &[1], &[], &[(1, Mesh)], None),
        ("enabled: only the cluster IP", with_ip("enabled"), &[1], &[], &[], fallback(1)),
        ("disabled: trusted if ready", with_ip("disabled"), &[1], &[], &[(1, Mesh)], pods(&[1])),
        ("disabled: never the cluster IP", with_ip("disabled"), &[], &[1], &[(1, Mesh)], None),
        // Passthrough load balancing is Fallback::Never.
        ("passthrough, 503", Watch::standalone(), &[1], &[], &[(1, Mesh)], None),
        ("a pod that never answers", with_ip("auto"), &[1], &[], &[(1, Silent)], None),
        ("no pods", watch("auto", true), &[], &[], &[], pods(&[])),
    ];
    for (name, mut watch, ready, not_ready, answers, expected) in rows {
        assert_eq!(round(&mut watch, ready, not_ready, answers).1, expected, "{name}");
    }
}
