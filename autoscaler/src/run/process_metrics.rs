//! Metrics of the process that are computed on each scrape.

use common_controller::WriteLimiter;
use common_controller::shares::Shares;
use common_runtime::telemetry::{FamilyText, Metrics, catalog};
use prometheus_client::encoding::NoLabelSet;

/// Exports for each lease whether this process holds it, and whether any process does.
pub(super) fn leases(metrics: &Metrics, shares: Shares) {
    metrics.collect(move || {
        let family = |instrument, leases| {
            FamilyText::new(instrument, leases, |(lease, is): (String, bool), encoder| {
                encoder.encode_family(&[("lease", lease)])?.encode_gauge(&i64::from(is))
            })
        };
        vec![family(catalog::LEASE_HELD, shares.held_here()), family(catalog::LEASE_OWNED, shares.held_anywhere())]
    });
}

/// Exports the outcomes of writes, and the number of waiting writes.
pub(super) fn writes(metrics: &Metrics, limiter: WriteLimiter) {
    metrics.collect(move || {
        let counts = limiter.write_tally().counts();
        let ended = FamilyText::new(catalog::API_WRITES, counts, |([class, outcome], count), encoder| {
            let labels = [("class", class), ("outcome", outcome)];
            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&count, None)
        });
        let waiting = FamilyText::new(catalog::API_WAITING, [limiter.waiting()], |waiting, encoder| {
            encoder.encode_gauge(&waiting)
        });
        vec![ended, waiting]
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::write_rate::{Rate, WriteClass};

    #[test]
    fn process_metrics_are_in_the_catalog() {
        let metrics = Metrics::default();
        leases(&metrics, Shares::members(vec!["a".into(), "b".into()], 1));
        let limiter = WriteLimiter::new(Rate::AUTOSCALER);
        limiter.write_tally().ended(WriteClass::Wake, &Ok(()));
        writes(&metrics, limiter);
        let text = metrics.encode().expect("text");
        assert_eq!(catalog::differences(&text), <[String; 0]>::default());
        for line in [
            "zeroscale_lease_held{lease=\"a\"} 0",
            "zeroscale_lease_held{lease=\"b\"} 1",
            "zeroscale_lease_owned{lease=\"a\"} 0",
            "zeroscale_api_writes_total{class=\"wake\",outcome=\"ok\"} 1",
            "zeroscale_api_writes_total{class=\"object\",outcome=\"refused\"} 0",
            "zeroscale_api_writes_waiting 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
