//! Tests that each fault fires its alert and no other.
//!
//! Prometheus's own `promtool` applies the rules to one hour of series: those of a healthy system, of which the fault
//! replaces some. There is one fault for every alert.

use crate::repository_path;
use crate::rules::{self, FILE};
use common_runtime::telemetry::values;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;

/// Number of samples: one per minute, for an hour.
const STEPS: usize = 60;
/// Time at which the firing alerts are checked.
const CHECKED_AT: &str = "40m";

/// Series: name with labels, and values in promtool's notation.
type Series = BTreeMap<String, String>;

/// Difference from a healthy system.
enum Change {
    /// A series with other values.
    Series(&'static str, &'static str),
    /// A process that stops responding to scrapes.
    Gone(&'static str),
    /// A process that has never responded to a scrape.
    Mute(&'static str),
    /// A process that restarts every five minutes.
    Restarts(&'static str),
}
use Change::{Gone, Mute, Restarts, Series as Is};

/// Activators `a1` and `a2`, autoscalers `s1` and `s2`, and a controller of HorizontalPodAutoscalers, `h1`.
const PROCESSES: [(&str, &str); 5] = [
    ("zeroscale-activator", "a1"),
    ("zeroscale-activator", "a2"),
    ("zeroscale-autoscaler", "s1"),
    ("zeroscale-autoscaler", "s2"),
    ("zeroscale-autoscaler-hpa", "h1"),
];

/// Namespace of the processes: their own, or Knative's if they replace its components.
const SYSTEM: &str = "zeroscale-system";
const KNATIVE: &str = "knative-serving";

/// Alerts in the order of the rules, each with the changes of its fault. A change is a series with its values, or a
/// process that is gone or restarts. The fault of `ZeroscaleAutoscalerUnreachable` is an activator with an invalid
/// token: it is refused, and stats without attestation do not count.
const FAULTS: &str = r#"
ZeroscaleActivatorMissing
    gone a1
    gone a2
ZeroscaleAutoscalerMissing
    gone s1
    gone s2
    kn_activator_stats_conn_reachable{instance="a1",peer="autoscaler"} 0+0x60
    kn_activator_stats_conn_reachable{instance="a2",peer="autoscaler"} 0+0x60
ZeroscaleProcessDown
    gone a2
ZeroscaleProcessRestarts
    restarts s1
ZeroscaleAutoscalerUnreachable
    kn_activator_stats_conn_reachable{instance="a1",peer="autoscaler"} 0+0x60
    zeroscale_stat_refusals_total{instance="s1"} 0+4x60
    zeroscale_decisions_total{instance="s1",outcome="not-attested"} 0+100x60
ZeroscaleLeaseUnowned
    zeroscale_lease_held{instance="s1",lease="l0"} 0+0x60
    zeroscale_lease_owned{instance="s1",lease="l0"} 0+0x60
    zeroscale_lease_owned{instance="s2",lease="l0"} 0+0x60
    zeroscale_stats_dropped_total{instance="s1",reason="Expired"} 0+20x60
ZeroscaleLeaseOwnedTwice
    zeroscale_lease_held{instance="s2",lease="l0"} 1+0x60
ZeroscaleWakesFail
    zeroscale_refused_total{instance="a1",reason="failing"} 0+3x60
    zeroscale_wakes_total{instance="s1",k8s_namespace_name="a",kn_revision_name="hello",outcome="failed"} 0+1x60
    kn_revision_pods_count{instance="s1",k8s_namespace_name="a",kn_revision_name="hello"} 0+0x60
ZeroscaleWakesRefused
    zeroscale_api_writes_total{class="wake",instance="s1",outcome="refused"} 0+6x60
    zeroscale_wakes_total{instance="s1",k8s_namespace_name="a",kn_revision_name="hello",outcome="refused"} 0+1x60
ZeroscaleColdStartsSlow
    zeroscale_cold_start_seconds_bucket{instance="a1",k8s_namespace_name="a",kn_revision_name="hello",le="0.5"} 0+0x60
    zeroscale_cold_start_seconds_bucket{instance="a1",k8s_namespace_name="a",kn_revision_name="hello",le="15.0"} 0+0x60
ZeroscaleHoldingFull
    zeroscale_refused_total{instance="a1",reason="memory-share"} 0+1x60
ZeroscalePageStreamsFull
    zeroscale_answered_total{instance="a1",kind="page-events-full"} 0+1x60
ZeroscaleClientConnectionsFull
    zeroscale_client_connections_ended_total{instance="a1",reason="limit"} 0+9x60
    zeroscale_refused_total{instance="a1",reason="max-connections"} 0+9x60
ZeroscalePodsLost
    zeroscale_refused_total{instance="a1",reason="pod"} 0+9x60
ZeroscaleTimeouts
    zeroscale_refused_total{instance="a2",reason="timeout"} 0+9x60
ZeroscaleFallbackFails
    zeroscale_refused_total{instance="a1",reason="fallback"} 0+1x60
ZeroscaleDecisionsLate
    zeroscale_tick_lateness_seconds_bucket{instance="s1",le="0.01"} 0+0x60
    zeroscale_tick_lateness_seconds_bucket{instance="s1",le="0.5"} 0+0x60
ZeroscaleActivatorUnheard
    zeroscale_decisions_total{instance="s1",outcome="not-attested"} 0+100x60
ZeroscalePodsUnheard
    zeroscale_decisions_total{instance="s1",outcome="no-data"} 0+100x60
ZeroscaleStatsRefused
    zeroscale_stat_tls_refusals_total{instance="s1"} 0+1x60
ZeroscaleStatsDropped
    zeroscale_stats_dropped_total{instance="s1",reason="Impostor"} 0+20x60
ZeroscaleConfigRefused
    zeroscale_config_refused{config_map="config-autoscaler",instance="s1"} 1+0x60
ZeroscaleApiWritesFail
    zeroscale_api_writes_total{class="wake",instance="s1",outcome="unanswered"} 0+2x60
    zeroscale_api_writes_total{class="object",instance="s1",outcome="failed"} 0+9x60
ZeroscaleApiWritesRefused
    zeroscale_api_writes_total{class="object",instance="s1",outcome="refused"} 0+9x60
ZeroscaleApiWritesWait
    zeroscale_api_writes_waiting{instance="s1"} 900+0x60
ZeroscaleDescriptorsShort
    process_open_fds{instance="a1",job="zeroscale-activator"} 1000+0x60
ZeroscaleWorkloadAtMaximum
    kn_revision_pods_desired{instance="s1",k8s_namespace_name="a",kn_revision_name="hello"} 9+0x60
ZeroscalePodsMissing
    kn_revision_pods_count{instance="s1",k8s_namespace_name="a",kn_revision_name="hello"} 1+0x60
ZeroscaleHpaForeignManager
    zeroscale_hpa_foreign_manager{hpa_name="b",instance="h1",namespace="a"} 1+0x60
ZeroscaleHpaFault
    zeroscale_hpa_panics_total{instance="h1"} 0+1x60
"#;

/// Parses [`FAULTS`].
fn faults() -> Vec<(&'static str, Vec<Change>)> {
    let mut faults: Vec<(&str, Vec<Change>)> = Vec::new();
    for line in FAULTS.lines().filter(|line| !line.is_empty()) {
        let Some(change) = line.strip_prefix("    ") else {
            faults.push((line, Vec::new()));
            continue;
        };
        faults.last_mut().expect("an alert").1.push(match change.split_once(' ').expect("two words") {
            ("gone", instance) => Gone(instance),
            ("restarts", instance) => Restarts(instance),
            (series, values) => Is(series, values),
        });
    }
    faults
}

/// Returns the series of a healthy system: ten requests per second, and occasional wakes.
fn healthy() -> Series {
    let mut series = Series::new();
    let mut is = |name: &str, labels: &[(&str, &str)], values: &str| {
        let mut labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        labels.sort();
        series.insert(format!("{name}{{{}}}", labels.join(",")), values.to_owned());
    };
    let (still, rare, often) = ("0+0x60", "0+1x60", "0+60x60");
    for (job, instance) in PROCESSES {
        let labels = [("job", job), ("instance", instance)];
        is("up", &labels, "1+0x60");
        is("zeroscale_build_info", &labels, "1+0x60");
        is("process_start_time_seconds", &labels, "1000+0x60");
        is("process_open_fds", &labels, "40+0x60");
        is("process_max_fds", &labels, "1024+0x60");
    }
    for activator in ["a1", "a2"] {
        let instance = ("instance", activator);
        is("kn_activator_stats_conn_reachable", &[instance, ("peer", "autoscaler")], "1+0x60");
        for (reason, _) in values::REFUSALS {
            is("zeroscale_refused_total", &[instance, ("reason", reason)], still);
        }
        is("zeroscale_refused_total", &[instance, ("reason", "client-gone")], rare);
        for (kind, _) in values::ANSWERS {
            is("zeroscale_answered_total", &[instance, ("kind", kind)], still);
        }
        is("zeroscale_answered_total", &[instance, ("kind", "page")], rare);
        for (reason, _) in values::CLIENT_ENDS {
            is("zeroscale_client_connections_ended_total", &[instance, ("reason", reason)], still);
        }
        is("http_server_request_duration_seconds_count", &[instance, ("http_response_status_code", "200")], "0+150x60");
    }
    let hello = [("k8s_namespace_name", "a"), ("kn_revision_name", "hello")];
    let of_hello = |instance| [hello[0], hello[1], ("instance", instance)];
    for (le, values) in [("0.5", rare), ("15.0", rare), ("60.0", rare), ("+Inf", rare)] {
        let [a, b, c] = of_hello("a1");
        is("zeroscale_cold_start_seconds_bucket", &[a, b, c, ("le", le)], values);
    }
    for name in ["kn_revision_pods_desired", "kn_revision_pods_requested", "kn_revision_pods_count"] {
        is(name, &of_hello("s1"), "2+0x60");
    }
    for (outcome, _) in values::WAKES {
        let [a, b, c] = of_hello("s1");
        is("zeroscale_wakes_total", &[a, b, c, ("outcome", outcome)], if *outcome == "ready" { rare } else { still });
    }
    for (autoscaler, lease) in [("s1", "l0"), ("s2", "l1")] {
        let instance = ("instance", autoscaler);
        for other in ["l0", "l1"] {
            let held = if lease == other { "1+0x60" } else { still };
            is("zeroscale_lease_held", &[instance, ("lease", other)], held);
            is("zeroscale_lease_owned", &[instance, ("lease", other)], "1+0x60");
        }
        for class in ["wake", "scale", "object"] {
            for (outcome, _) in values::WRITES {
                let values = if *outcome == "ok" { "0+5x60" } else { still };
                is("zeroscale_api_writes_total", &[instance, ("class", class), ("outcome", outcome)], values);
            }
        }
        is("zeroscale_api_writes_waiting", &[instance], still);
        for (outcome, _) in values::DECISIONS {
            let values = if *outcome == "scale" { "0+15x60" } else { still };
            is("zeroscale_decisions_total", &[instance, ("outcome", outcome)], values);
        }
        for le in ["0.01", "0.5", "2.0", "+Inf"] {
            is("zeroscale_tick_lateness_seconds_bucket", &[instance, ("le", le)], often);
        }
        is("zeroscale_stat_refusals_total", &[instance], still);
        is("zeroscale_stat_tls_refusals_total", &[instance], still);
        for (reason, _) in values::DROPPED {
            is("zeroscale_stats_dropped_total", &[instance, ("reason", reason)], still);
        }
        is("zeroscale_stats_dropped_total", &[instance, ("reason", "UnknownRevision")], rare);
        is("zeroscale_stats_recorded_total", &[instance], often);
        is("zeroscale_config_refused", &[instance, ("config_map", "config-autoscaler")], still);
    }
    is("zeroscale_hpa_foreign_manager", &[("instance", "h1"), ("namespace", "a"), ("hpa_name", "b")], still);
    is("zeroscale_hpa_panics_total", &[("instance", "h1")], still);
    series
}

impl Change {
    fn apply(&self, series: &mut Series) {
        match *self {
            Is(name, values) => {
                let before = series.insert(name.to_owned(), values.to_owned());
                assert!(before.is_some_and(|before| before != values), "{name} exists with other values");
            }
            Gone(instance) => {
                let is_alive = |name: &str| name.starts_with("up{") || name.starts_with("zeroscale_build_info{");
                series.retain(|name, _| !belongs_to(name, instance) || is_alive(name));
                for (name, values) in series.iter_mut().filter(|(name, _)| belongs_to(name, instance)) {
                    *values = if name.starts_with("up{") { "1+0x10 0+0x50" } else { "1+0x10 stale" }.to_owned();
                }
            }
            Mute(instance) => {
                series.retain(|name, _| !belongs_to(name, instance) || name.starts_with("up{"));
                for (_, values) in series.iter_mut().filter(|(name, _)| belongs_to(name, instance)) {
                    *values = "0+0x60".to_owned();
                }
            }
            Restarts(instance) => {
                let starts: Vec<String> = (0..=STEPS).map(|step| (1000 + step / 5 * 300).to_string()).collect();
                let started = |name: &str| name.starts_with("process_start_time") && belongs_to(name, instance);
                series.iter_mut().filter(|(name, _)| started(name)).for_each(|(_, is)| *is = starts.join(" "));
            }
        }
    }
}

fn belongs_to(series: &str, instance: &str) -> bool {
    series.contains(&format!("instance=\"{instance}\""))
}

/// Returns the series of a system that is healthy except for `changes`.
fn changed(changes: &[Change]) -> Series {
    let mut series = healthy();
    changes.iter().for_each(|change| change.apply(&mut series));
    series
}

/// Returns the changes of the fault behind an alert.
fn fault(alert: &str) -> Vec<Change> {
    faults().into_iter().find(|(name, _)| *name == alert).expect(alert).1
}

fn without(mut series: Series, instances: &[&str]) -> Series {
    series.retain(|name, _| !instances.iter().any(|instance| belongs_to(name, instance)));
    series
}

/// Returns the series with the labels that Prometheus adds for processes in `namespace`.
fn in_namespace(series: Series, namespace: &str) -> Series {
    let at = |series: String| {
        let process = PROCESSES.into_iter().find(|(_, instance)| belongs_to(&series, instance));
        let (name, own) = series.split_once('{').expect("labels");
        let (job, pod) = process.expect("a process");
        let labels = [("job", job), ("namespace", namespace), ("pod", pod)];
        let missing = labels.into_iter().filter(|(label, _)| !own.contains(&format!("{label}=\"")));
        let missing: String = missing.map(|(label, value)| format!("{label}=\"{value}\",")).collect();
        format!("{name}{{{missing}{own}")
    };
    series.into_iter().map(|(series, values)| (at(series), values)).collect()
}

/// Returns the series of Knative's own activator `k1` and autoscaler `k2`, scraped under the same job names. With
/// `answer` they respond to scrapes and report many faults, and another program `x1` reports many requests.
fn knative_series(answer: bool) -> Series {
    let mut series = Series::new();
    let mut is = |name: &str, (job, instance): (&str, &str), labels: &str, values: &str| {
        let of = format!("job=\"{job}\",instance=\"{instance}\",namespace=\"{KNATIVE}\",pod=\"{instance}\"");
        series.insert(format!("{name}{{{of}{labels}}}"), values.to_owned());
    };
    let (activator, autoscaler) = (("zeroscale-activator", "k1"), ("zeroscale-autoscaler", "k2"));
    for process in [activator, autoscaler] {
        is("up", process, "", if answer { "1+0x60" } else { "0+0x60" });
        if answer {
            is("process_start_time_seconds", process, "", "1000+300x60");
            is("process_open_fds", process, "", "1000+0x60");
            is("process_max_fds", process, "", "1024+0x60");
        }
    }
    if answer {
        is("kn_activator_stats_conn_reachable", activator, ",peer=\"autoscaler\"", "0+0x60");
        let hello = ",k8s_namespace_name=\"b\",kn_revision_name=\"hello\"";
        for (name, pods) in [("desired", "9+0x60"), ("requested", "5+0x60"), ("count", "1+0x60")] {
            is(&format!("kn_revision_pods_{name}"), autoscaler, hello, pods);
        }
        for process in [activator, ("another", "x1")] {
            is("http_server_request_duration_seconds_count", process, "", "0+150000x60");
        }
    }
    series
}

/// Returns a test for promtool: with these series, `alert` fires and no other.
fn test(name: &str, series: &Series, alert: Option<&str>) -> Value {
    let input: Vec<Value> = series.iter().map(|(series, values)| json!({"series": series, "values": values})).collect();
    let firing: Vec<Value> =
        alert.map(|alert| json!({"labels": format!("{{alertname=\"{alert}\"}}"), "value": 1})).into_iter().collect();
    json!({
        "name": name,
        "interval": "1m",
        "input_series": input,
        "promql_expr_test": [{
            "expr": "group by (alertname) (ALERTS{alertstate=\"firing\"})",
            "eval_time": CHECKED_AT,
            "exp_samples": firing,
        }],
    })
}

/// Goal: operators get the alert of the fault and no other. Method: promtool's rule tests, one for a healthy system and
/// one for each fault.
#[test]
fn each_fault_fires_its_alert_and_no_other() {
    let ours = |changes: &[Change]| in_namespace(changed(changes), SYSTEM);
    let mut tests = vec![test("healthy", &ours(&[]), None)];
    // An autoscaler of Knative, which has no such metrics, holds one of the leases.
    let another = [Is("zeroscale_lease_held{instance=\"s2\",lease=\"l1\"}", "0+0x60")];
    tests.push(test("beside an autoscaler of Knative", &ours(&another), None));
    for (alert, changes) in faults() {
        tests.push(test(alert, &ours(&changes), Some(alert)));
    }
    run_tests(&tests);
}

/// Goal: rules apply to each installation separately. An alert fires for processes that stopped or never responded, but
/// not for components that are absent on purpose.
#[test]
fn rules_apply_to_each_install_separately() {
    let ours = |changes: &[Change]| in_namespace(changed(changes), SYSTEM);
    let beside = |mut series: Series| {
        // The leases have the same names.
        series.extend(in_namespace(healthy(), "shop"));
        series
    };
    let missing = "ZeroscaleActivatorMissing";
    let planes = ["a1", "a2", "s1", "s2"];
    run_tests(&[
        test("beside another install", &beside(ours(&[])), None),
        test("another install's activators answer", &beside(ours(&fault(missing))), Some(missing)),
        test("activators have never answered", &ours(&[Mute("a1"), Mute("a2")]), Some(missing)),
        test("activators have never existed", &in_namespace(without(healthy(), &["a1", "a2"]), SYSTEM), Some(missing)),
        test("one activator has never answered", &ours(&[Mute("a2")]), Some("ZeroscaleProcessDown")),
        test("autoscaler-hpa alone", &in_namespace(without(healthy(), &planes), SYSTEM), None),
    ]);
}

/// Goal: metrics of Knative's own processes, or their absence, fire no alert of ours and hide none. If only some of
/// Knative's components are replaced, no alert fires for the others.
#[test]
fn knatives_processes_do_not_affect_alerts() {
    let mut tests = Vec::new();
    for answer in [false, true] {
        let mut add = |name: &str, ours: Series, theirs: Series, alert: Option<&str>| {
            let series = ours.into_iter().chain(theirs).collect();
            tests.push(test(&format!("{name}; Knative's answer: {answer}"), &series, alert));
        };
        add("beside", in_namespace(healthy(), SYSTEM), knative_series(answer), None);
        for alert in
            ["ActivatorMissing", "AutoscalerMissing", "ProcessDown", "ActivatorUnheard", "PodsLost", "Timeouts"]
        {
            let alert = format!("Zeroscale{alert}");
            add(&alert, in_namespace(changed(&fault(&alert)), SYSTEM), knative_series(answer), Some(&*alert));
        }
        // Knative's activator `k1` cannot report its requests to our autoscaler.
        let cut_off = answer.then_some("ZeroscaleAutoscalerUnreachable");
        add("in the same namespace", in_namespace(healthy(), KNATIVE), knative_series(answer), cut_off);

        let drop_in = |changes: &[Change], others: &[&str]| in_namespace(without(changed(changes), others), KNATIVE);
        let (gone, others) = (fault("ZeroscaleActivatorMissing"), ["s1", "s2", "h1"]);
        let cut_off_a1 = [Is(r#"kn_activator_stats_conn_reachable{instance="a1",peer="autoscaler"}"#, "0+0x60")];
        for (name, changes, alert) in [
            ("the activator alone", &[][..], None),
            ("the activator alone, gone", &gone[..], Some("ZeroscaleActivatorMissing")),
            ("the activator alone, cut off", &cut_off_a1[..], Some("ZeroscaleAutoscalerUnreachable")),
        ] {
            add(name, drop_in(changes, &others), without(knative_series(answer), &["k1"]), alert);
        }
        let (gone, others) = ([Gone("s1"), Gone("s2")], ["a1", "a2"]);
        for (name, changes, alert) in [
            ("the autoscaler alone", &[][..], cut_off),
            ("the autoscaler alone, gone", &gone[..], Some("ZeroscaleAutoscalerMissing")),
        ] {
            add(name, drop_in(changes, &others), without(knative_series(answer), &["k2"]), alert);
        }
    }
    run_tests(&tests);
}

/// Runs the tests with promtool.
fn run_tests(tests: &[Value]) {
    let rules = repository_path(FILE).canonicalize().expect(FILE);
    let file = json!({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests});
    promtool("test", &file);
}

/// Checks or tests the rules of a file with promtool, which must succeed.
pub(crate) fn promtool(command: &str, file: &Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, file.to_string()).expect("writable"); // JSON is valid YAML.
    let ended = Command::new("promtool").args([command, "rules"]).arg(&path).output().expect("promtool");
    let output = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(ended.status.success(), "{output}");
}

#[test]
fn each_alert_has_a_fault() {
    let alerts: Vec<String> = rules::read().expect("rules").into_iter().map(|rule| rule.alert).collect();
    assert_eq!(alerts, faults().into_iter().map(|(alert, _)| alert).collect::<Vec<_>>());
}
