//! Tests of fingerprints, and of the last minutes.

use super::*;

/// Returns the summary of a sleeping workload.
pub(in super::super) fn asleep(name: &str) -> Summary {
    Summary {
        namespace: "ns".into(),
        name: name.into(),
        target: format!("Deployment/{name}"),
        state: SleepState::Asleep,
        since: None,
        paused: false,
        pods: serde_json::json!({"ready": 0, "actual": 0, "desired": 0}),
        min: Some(0),
        max: None,
        requests_per_second: 0.0,
        concurrency: 0.0,
        held: 0,
        why: "asleep for 12 min: nobody calls".into(),
        ready: None,
        last_wake: None,
        owner: "as-0".into(),
        saved: Some(Saved { pod_seconds: 720.0, pods: 1, since: "".into(), money: None }),
        next_change: None,
        recent: None,
    }
}

/// Goal: time alone changes no fingerprint, everything else does. Each row: a change of a sleeping workload, and
/// whether it counts.
#[test]
fn time_alone_is_no_news() {
    type Change = fn(&mut Summary);
    let rows: [(&str, Change, bool); 8] = [
        ("why", |s| s.why = "asleep for 13 min: nobody calls".into(), false),
        ("leaving", |s| s.why = "deleted: its replicas".into(), true),
        ("saved", |s| _ = s.saved.as_mut().map(|saved| saved.pod_seconds += 1.0), false),
        ("recent", |s| s.recent = Some(Recent { requests_per_second: vec![1.0], held: vec![] }), false),
        ("held", |s| s.held = 1, true),
        ("state", |s| s.state = SleepState::Waking, true),
        ("owner", |s| s.owner = "as-1".into(), true),
        ("saves", |s| _ = s.saved.as_mut().map(|saved| saved.pods = 2), true),
    ];
    for (what, change, is_news) in rows {
        let mut changed = asleep("a");
        change(&mut changed);
        assert_eq!(changed.fingerprint() != asleep("a").fingerprint(), is_news, "{what}");
    }
}

#[test]
fn the_last_minutes_are_folded_and_padded() {
    let sample = |(requests, held)| Sample { rates: Rates { requests, held, concurrency: 0.0 }, ..Sample::default() };
    let samples = [(0.0, 1), (3.0, 4), (1.0, 0), (2.0, 0)].map(sample);
    let recent = Recent::from_samples(samples.iter()).expect("load");
    assert_eq!((recent.held.len(), recent.requests_per_second.len()), (60, 60));
    assert_eq!((&recent.held[57..], &recent.requests_per_second[57..]), (&[0, 4, 0][..], &[0.0, 1.5, 1.5][..]));
    assert_eq!(Recent::from_samples([Sample { ready: 3, ..Sample::default() }].iter()), None);
}
