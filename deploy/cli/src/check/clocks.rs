//! Check of clocks: this machine, the nodes and the planes, compared with the API server.
//!
//! A lease holder renews its lease with the time of its own clock, and the lease carries no other time. A renewal in
//! the future, or long ago, means that the clock is wrong or the holder is gone. Schedules depend on the time of the
//! planes' clocks, leases only on how fast these run.
//!
//! The check ignores leases of other programs in the planes' namespace, such as Knative's controllers. It also ignores
//! leases of `autoscaler-hpa` that are renamed by `map-lease-prefix` in `config-leader-election`.

use super::{CheckContext, Finding, first_names};
use common::ownership::bucket_of_host;
use http::{Request, header};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::client::Body;

const ABOUT: &str = "clocks";
/// Namespace of the nodes' leases.
const NODES: &str = "kube-node-lease";
/// Prefix of the lease names of `autoscaler-hpa`, in both of its modes.
const HPA: &str = "hpaautoscaler.";
/// Tolerated clock difference in seconds. The `Date` header has whole seconds.
const DIFFERENCE_MAX: i64 = 5;
/// Tolerated age of a renewal in seconds. Nodes renew every ten seconds, and their leases last forty.
const SILENT_MAX: i64 = 60;

/// Compares all clocks.
pub async fn check(context: &CheckContext<'_>) -> Result<Vec<Finding>, Finding> {
    let server = server_time(context).await;
    let server = server.ok_or_else(|| Finding::unknown(ABOUT, "the response of the API server has no Date header"))?;
    let mut findings = vec![this_machine(Timestamp::now(), server)];
    for (what, namespace) in [("nodes", NODES), ("planes", context.system)] {
        match context.list::<Lease>(ABOUT, Some(namespace)).await {
            Ok(mut all) => {
                // A plane's lease is one of the autoscaler's buckets, or of `autoscaler-hpa`.
                let is_of_a_plane = |name: &str| bucket_of_host(name).is_some() || name.starts_with(HPA);
                all.retain(|lease| namespace == NODES || is_of_a_plane(&lease.name_any()));
                findings.extend(leases(what, &all, server));
            }
            Err(finding) => findings.push(finding),
        }
    }
    Ok(findings)
}

async fn server_time(context: &CheckContext<'_>) -> Option<Timestamp> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let answer = context.cluster.client.send(request).await.ok()?;
    let date = answer.headers().get(header::DATE)?.to_str().ok()?.to_owned();
    let read = k8s_openapi::jiff::fmt::rfc2822::parse(&date).ok()?;
    Some(read.timestamp())
}

fn this_machine(now: Timestamp, server: Timestamp) -> Finding {
    let off = now.as_second() - server.as_second();
    if off.abs() <= DIFFERENCE_MAX {
        return Finding::good(ABOUT, "the clock of this machine agrees with the API server's");
    }
    let (by, side) = (off.abs(), if off > 0 { "ahead of" } else { "behind" });
    let message = format!("the clock of this machine is {by} s {side} the API server's, so ages are wrong by as much");
    Finding::note(ABOUT, message)
}

/// Checks the last renewals. Returns `None` if no lease is held.
fn leases(what: &str, leases: &[Lease], server: Timestamp) -> Option<Finding> {
    let renewed = |lease: &Lease| {
        let spec = lease.spec.as_ref()?;
        let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        spec.renew_time.as_ref().filter(|_| held).map(|time| time.0.as_second() - server.as_second())
    };
    let known: Vec<(String, i64)> =
        leases.iter().filter_map(|lease| Some((lease.name_any(), renewed(lease)?))).collect();
    if known.is_empty() {
        return None;
    }
    let names = |wrong: fn(i64) -> bool| -> Vec<String> {
        known.iter().filter(|(_, off)| wrong(*off)).map(|(name, off)| format!("{name} ({off:+} s)")).collect()
    };
    let (ahead, silent) = (names(|off| off > DIFFERENCE_MAX), names(|off| off < -SILENT_MAX));
    Some(if !ahead.is_empty() {
        let message = format!("the clocks of {what} are ahead of the API server's: {}", first_names(&ahead));
        Finding::wrong(ABOUT, message, "synchronize their clocks (NTP)")
    } else if !silent.is_empty() {
        let silent = first_names(&silent);
        let message = format!("{what} have not renewed their leases, or their clocks are behind: {silent}");
        Finding::wrong(ABOUT, message, "check whether they run, then synchronize their clocks (NTP)")
    } else {
        Finding::good(ABOUT, format!("the clocks of {what} agree with the API server's ({})", known.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;
    use serde_json::json;

    #[test]
    fn renewals_in_the_future_or_long_ago_are_problems() {
        let server = Timestamp::from_second(1_700_000_000).expect("a time");
        let lease = |off: i64, holder: &str| -> Lease {
            let at = Timestamp::from_second(server.as_second() + off).expect("a time");
            serde_json::from_value(
                json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": holder, "renewTime": format!("{at:.6}")}}),
            )
            .expect("a Lease")
        };
        let rows = [
            (vec![lease(0, "a"), lease(-20, "a")], Some((CheckResult::Good, "nodes agree with the API server's (2)"))),
            (vec![lease(0, "a"), lease(30, "a")], Some((CheckResult::Wrong, "n (+30 s)"))),
            (vec![lease(-600, "a")], Some((CheckResult::Wrong, "n (-600 s)"))),
            (vec![lease(-600, "")], None), // Released.
            (vec![], None),
        ];
        for (all, expected) in rows {
            let found = leases("nodes", &all, server);
            assert_eq!(found.as_ref().map(|f| f.result), expected.map(|(result, _)| result), "{found:?}");
            let message = found.as_ref().map_or("", |f| f.message.as_str());
            assert!(message.contains(expected.map_or("", |(_, part)| part)), "{found:?}");
        }
    }

    #[test]
    fn a_wrong_clock_of_this_machine_is_a_note() {
        let at = |secs| Timestamp::from_second(secs).expect("a time");
        assert_eq!(this_machine(at(100), at(98)).result, CheckResult::Good);
        assert!(this_machine(at(100), at(300)).message.contains("200 s behind"));
        assert!(this_machine(at(400), at(300)).message.contains("100 s ahead of"));
    }
}
