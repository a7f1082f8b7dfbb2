//! Tests of each rule in tables, and of invariants over histories of creations, deletions, edits and restores.

use super::*;
use common::RevisionKey;
use common::config::PortRange;
use common::ports::Listening;
use common::ports::ledger::{Entry, Ledger, NumberState, PortId};
use common::time::Timestamp;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

#[allow(clippy::disallowed_methods, reason = "an origin for made-up instants")]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}

const GUARDED: PortRange = PortRange { first: 18_000, last: 18_009 };

/// Workload and port of most lines.
const HTTP_OF_A: &str = " default/a a 80 http";

/// Time of a plan.
const NOW: Timestamp = Timestamp::from_secs(1_795_000_000);

fn port(name: &str, port: u16) -> PortId {
    PortId { name: name.to_owned(), port }
}

fn wanted(name: &str, number: u16) -> Wanted {
    Wanted { port: port(name, number), in_slices: None, in_status: None }
}

fn workload(name: &str, ports: Vec<Wanted>) -> Workload {
    Workload { key: RevisionKey::new("default", name), uid: name.into(), ports, access: Access::Open }
}

/// Parses a line of the ledger; the uid is the name.
fn line(text: &str) -> Entry {
    Entry::parse(text).unwrap_or_else(|| panic!("{text:?}"))
}

fn ledger(lines: &[(u16, &str)]) -> Ledger {
    lines.iter().map(|(number, text)| (*number, line(text))).collect()
}

/// Returns a ledger whose lines without a port are those of port `http` of workload `a`.
fn ledger_of_a(lines: &[(u16, &str)]) -> Ledger {
    let text = |text: &str| if text.contains(' ') { text.to_owned() } else { format!("{text}{HTTP_OF_A}") };
    lines.iter().map(|(number, state)| (*number, line(&text(state)))).collect()
}

/// Returns changes as text, without the port if it is `http` of workload `a`.
fn changes_of_a(plan: &Plan) -> Vec<String> {
    changes(plan).into_iter().map(|change| change.replace(HTTP_OF_A, "")).collect()
}

/// View of an owner, by default without special cases.
#[derive(Clone, Default)]
struct OwnerView {
    ledger: Ledger,
    workloads: Vec<Workload>,
    unreadable: BTreeSet<u16>,
    listed: BTreeSet<u16>,
    in_use: BTreeSet<u16>,
    start: u16,
    has_no_guarded: bool,
}

impl OwnerView {
    fn plan(&self, range: (u16, u16)) -> Plan {
        self.plan_at(range, NOW)
    }

    fn plan_at(&self, range: (u16, u16), now: Timestamp) -> Plan {
        let view = View {
            range: PortRange { first: range.0, last: range.1 },
            guarded: (!self.has_no_guarded).then_some(GUARDED),
            start: self.start,
            ledger: &self.ledger,
            unreadable: &self.unreadable,
            listed: &self.listed,
            in_use: &self.in_use,
            workloads: &self.workloads.iter().collect::<Vec<_>>(),
            is_mine: &|_| true,
        };
        plan(&view, now)
    }
}

/// Returns changes as text, with `now` for [`NOW`].
fn changes(plan: &Plan) -> Vec<String> {
    let text = |change: &Change| format!("{} {}", change.number, change.entry).replace(":1795000000", ":now");
    plan.changes.values().flatten().map(text).collect()
}

fn apply(ledger: &mut Ledger, plan: &Plan) {
    ledger.extend(plan.changes.values().flatten().map(|change| (change.number, change.entry.clone())));
}

/// Goal: whatever one namespace requests, even with new names and numbers of its ports each time, one in ten numbers is
/// left for others.
#[test]
fn no_namespace_takes_all_numbers() {
    let of = |namespace: &str, name: &str, ports: Vec<Wanted>| {
        let key = RevisionKey::new(namespace, name);
        Workload { uid: key.as_str().into(), key, ports, access: Access::Open }
    };
    let mut view = OwnerView { start: 1000, ..OwnerView::default() };
    let mut newcomers = Vec::new();
    for round in 0..20_u16 {
        let greedy = (0..40_u16).map(|n| {
            let ports = (0..10).map(|port| wanted(&format!("r{round}p{port}"), 100 * (round + 1) + port));
            of("greedy", &format!("a{n}"), ports.collect())
        });
        let name = format!("new{round:02}");
        newcomers.push(of(&name, "b", vec![wanted("http", 80)]));
        view.workloads = greedy.chain(newcomers.iter().cloned()).collect();
        for _ in 0..2 {
            let plan = view.plan((1000, 1099));
            apply(&mut view.ledger, &plan);
        }
        let has = |namespace: &str| view.ledger.values().filter(|entry| entry.key.namespace() == namespace).count();
        assert_eq!((has("greedy"), has(&name)), if round < 10 { (90, 1) } else { (90, 0) }, "round {round}");
        let outcome = &view.plan((1000, 1099)).ports[&RevisionKey::new("greedy", "a39")][9];
        let problem = outcome.problem.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(problem.starts_with("the namespace has 90 port numbers"), "round {round}: {problem}");
    }
}

/// Goal: a port's number follows from its lines. Method: one row per case, with the planned changes.
#[test]
fn a_port_keeps_its_number_or_gets_one() {
    let (http, web) = (|| wanted("http", 80), || wanted("web", 81));
    let listed = |number: u16| Wanted { in_slices: Some(number), ..http() };
    let in_status = |number: u16| Wanted { in_status: Some(number), ..http() };
    type Row<'a> = (&'a str, Wanted, &'a [(u16, &'a str)], Option<u16>, &'a [&'a str]);
    let rows: [Row<'_>; 16] = [
        ("a new port", http(), &[], None, &["100 held"]),
        ("it has one", http(), &[(105, "held")], Some(105), &[]),
        ("renamed", wanted("web", 80), &[(105, "held")], Some(105), &["105 held default/a a 80 web"]),
        ("renumbered", wanted("http", 81), &[(105, "held")], Some(105), &["105 held default/a a 81 http"]),
        (
            "renamed and renumbered, and its slices name it",
            Wanted { in_slices: Some(105), ..web() },
            &[(105, "held")],
            Some(105),
            &["105 held default/a a 81 web"],
        ),
        ("another port", web(), &[(105, "held")], None, &["100 held default/a a 81 web", "105 released:now"]),
        ("out of range", http(), &[(50, "held")], Some(50), &["100 held"]),
        ("twice", http(), &[(101, "held"), (102, "held")], Some(101), &["102 released:now"]),
        ("twice, one in slices", listed(102), &[(101, "held"), (102, "held")], Some(102), &["101 released:now"]),
        ("restored", in_status(107), &[], None, &["107 held"]),
        ("restored, held by another", in_status(107), &[(107, "held default/z z 80")], None, &["100 held"]),
        ("its line was lost", listed(107), &[], None, &["107 held"]),
        ("released, and wanted again", http(), &[(101, "released:1")], None, &["101 held"]),
        ("two released", in_status(103), &[(101, "released:9"), (103, "released:1")], None, &["103 held"]),
        ("restored, released by another", in_status(107), &[(107, "released:1 default/z z 80")], None, &["100 held"]),
        ("outside the range, and released", http(), &[(50, "released:1")], None, &["100 held"]),
    ];
    for (case, wanted, lines, number, expected) in rows {
        let mut workloads = vec![workload("a", vec![wanted])];
        if lines.iter().any(|(_, text)| text.contains("held default/z")) {
            workloads.push(workload("z", vec![self::wanted("", 80)]));
        }
        let view = OwnerView { ledger: ledger_of_a(lines), workloads, ..OwnerView::default() };
        let plan = view.plan((100, 110));
        assert_eq!(changes_of_a(&plan), expected, "{case}");
        assert_eq!(plan.ports[&RevisionKey::new("default", "a")][0].number, number, "{case}");
    }
}

/// Goal: ports that get other names because another Service comes first keep the numbers that slices point to.
#[test]
fn ports_of_another_first_service_keep_their_numbers() {
    let leads = |name: &str, number: u16, to: u16| Wanted { in_slices: Some(to), ..wanted(name, number) };
    let workloads = vec![workload("a", vec![leads("edge", 80, 106), leads("also-8080", 8080, 105)])];
    let ledger = ledger(&[(105, "held default/a a 80 main"), (106, "held default/a a 9090 edge")]);
    let plan = OwnerView { ledger, workloads, ..OwnerView::default() }.plan((100, 110));
    assert_eq!(changes(&plan), ["106 held default/a a 80 edge", "105 held default/a a 8080 also-8080"]);
}

/// Goal: a port that cannot get a number reports the reason, and keeps no other from one.
#[test]
fn a_port_that_cannot_get_a_number_reports_the_reason() {
    let a = |wanted: Wanted| workload("a", vec![wanted]);
    let view = |lines: &[(u16, &str)], workloads: Vec<Workload>| {
        let ledger = ledger(lines);
        OwnerView { ledger, workloads, ..OwnerView::default() }
    };
    let problem = |view: &OwnerView, range| {
        let plan = view.plan(range);
        (plan.ports[&RevisionKey::new("default", "a")][0].clone(), changes(&plan))
    };

    let full = view(&[(100, "held default/b b 80")], vec![a(wanted("", 80)), workload("b", vec![wanted("", 80)])]);
    let (outcome, planned) = problem(&full, (100, 100));
    assert_eq!((outcome.number, planned), (None, vec![]));
    assert!(outcome.problem.is_some_and(|problem| problem.to_string().contains("100-100")));

    let moved = view(&[(50, "held default/a a 80"), (100, "held default/b b 80")], full.workloads.clone());
    let (outcome, planned) = problem(&moved, (100, 100));
    assert_eq!((outcome.number, planned), (Some(50), vec![]), "it keeps what it has");
    assert!(matches!(outcome.problem, Some(Problem::Exhausted(_))));

    let mut taken = view(&[(100, "held default/a a 80")], vec![a(wanted("", 80))]);
    taken.in_use = [100, 101].into();
    let (outcome, planned) = problem(&taken, (100, 110));
    assert_eq!(
        (outcome, planned),
        (PortOutcome { number: Some(100), former: vec![], problem: None }, vec!["102 held default/a a 80".to_owned()])
    );
    for number in 103..103 + TRIES_MAX as u16 {
        taken.ledger.insert(number, line(&format!("released:{} default/a a 80", NOW.as_secs())));
    }
    let (outcome, planned) = problem(&taken, (100, 110));
    assert_eq!((outcome.problem, planned), (Some(Problem::InUse { number: 100, tried: TRIES_MAX }), vec![]));
    assert_eq!(outcome.former, [103, 104, 105]);
    let rested = NOW.as_secs() - COOLDOWN.as_secs() as i64;
    taken.ledger.insert(103, line(&format!("released:{rested} default/a a 80")));
    let (_, planned) = problem(&taken, (100, 110));
    assert_eq!(planned, ["103 held default/a a 80"], "a cooldown has ended");

    let in_status = Wanted { in_status: Some(107), ..wanted("", 80) };
    let forged = view(
        &[(107, "held default/z z 80"), (101, "held default/a a 80")],
        vec![a(in_status), workload("z", vec![wanted("", 80)])],
    );
    let (outcome, planned) = problem(&forged, (100, 110));
    let owner = RevisionKey::new("default", "z");
    assert_eq!(
        (outcome.number, outcome.problem, planned),
        (Some(101), Some(Problem::NotOurs { number: 107, owner }), vec![])
    );

    let twice = view(&[(101, "held default/a a 80"), (102, "held default/a a 80")], vec![a(wanted("", 80))]);
    let (outcome, _) = problem(&twice, (100, 110));
    assert_eq!(outcome.problem, Some(Problem::Duplicate { number: 101, released: vec![102] }));
    assert_eq!(outcome.former, [102]);
}

/// Goal: numbers that are unreadable, named by a slice or in use elsewhere are not given. The search wraps around.
#[test]
fn only_unused_numbers_are_given() {
    let view = OwnerView {
        ledger: ledger(&[(108, "held default/z z 80")]),
        workloads: ["a", "b", "c", "z"].map(|name| workload(name, vec![wanted("", 80)])).into(),
        unreadable: [109].into(),
        listed: [100].into(),
        in_use: [101].into(),
        start: 107,
        ..OwnerView::default()
    };
    let planned = changes(&view.plan((100, 110)));
    let expected = ["107 held default/a a 80", "110 held default/b b 80", "102 held default/c c 80"];
    assert_eq!(planned, expected);
    let elsewhere = OwnerView { start: 5000, ..view };
    assert_eq!(changes(&elsewhere.plan((100, 110)))[0], "102 held default/a a 80");
}

/// Goal: ten thousand new workloads are one plan of twenty maps, and get the numbers that it writes.
#[test]
fn ten_thousand_new_workloads_are_twenty_writes() {
    let workloads = (0..10_000).map(|index| workload(&format!("w{index}"), vec![wanted("http", 80)])).collect();
    let mut view = OwnerView { workloads, start: 20_000, ..OwnerView::default() };
    let plan = view.plan((10_000, 29_999));
    assert_eq!(plan.changes.len(), 20);
    apply(&mut view.ledger, &plan);
    let settled = view.plan((10_000, 29_999));
    assert!(settled.changes.is_empty());
    let numbers: BTreeSet<u16> = settled.ports.values().filter_map(|ports| ports[0].number).collect();
    assert_eq!(numbers.len(), 10_000);
}

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

fn listening(instance: &str, uid: &str, is_held: bool) -> Listening {
    Listening { instance: instance.to_owned(), uid: uid.to_owned(), is_held }
}

fn ours(instance: &str, uid: &str, is_held: bool) -> NumberResponse {
    NumberResponse::Ours(listening(instance, uid, is_held))
}

fn activators(list: &[(IpAddr, Serving)]) -> Vec<Activator> {
    list.iter().map(|(address, serving)| Activator { address: *address, serving: *serving }).collect()
}

/// Goal: each response determines the knowledge about an address and number, for a limited time.
#[test]
fn a_response_counts_for_its_process_and_for_a_limited_time() {
    let (now, mut proofs) = (epoch(), Proofs::default());
    let at = |seconds: u64| now + Duration::from_secs(seconds);
    let held = |instance| ours(instance, "a", true);
    // (sent at, response) -> verdict for a, at the time
    let rows = [
        ((0, held("1")), Verdict::Proven),
        ((3, ours("1", "a", false)), Verdict::Listens),
        ((1, held("1")), Verdict::Listens), // Overtaken by a later probe.
        ((4, ours("1", "b", true)), Verdict::Denied),
        ((5, held("1")), Verdict::Proven),
        ((6, NumberResponse::Refused), Verdict::Denied),
        ((7, held("2")), Verdict::Proven),
        ((6, held("1")), Verdict::Proven), // From a process that has ended.
        ((8, NumberResponse::Foreign), Verdict::Denied),
    ];
    for ((sent, answer), verdict) in rows {
        proofs.record(A, 100, answer.clone(), at(sent));
        assert_eq!(proofs.verdict(A, 100, "a", at(sent.max(8))), verdict, "{answer:?} at {sent}");
    }
    proofs.record(A, 100, held("2"), at(9));
    proofs.record(A, 101, held("2"), at(9));
    assert_eq!(proofs.verdict(A, 100, "a", at(9) + PROOF_HOLDS - Duration::from_nanos(1)), Verdict::Proven);
    assert_eq!(proofs.verdict(A, 100, "a", at(9) + PROOF_HOLDS), Verdict::Listens);
    assert_eq!(proofs.verdict(B, 100, "a", at(9)), Verdict::Unknown);
    proofs.record(A, 101, held("3"), at(10));
    assert_eq!(proofs.verdict(A, 100, "a", at(10)), Verdict::Unknown, "a new process must respond again");
    assert_eq!(proofs.verdict(A, 101, "a", at(10)), Verdict::Proven);
    assert_eq!(proofs.unidentified(at(19)), []);
    assert_eq!(proofs.unidentified(at(20)), [(A, 101)], "it may be another process by now");
    proofs.follow(&activators(&[(A, Serving::Terminating)]), |number| number == 101, at(11));
    assert_eq!(proofs.verdict(A, 101, "a", at(11)), Verdict::Proven);
    proofs.follow(&activators(&[(A, Serving::Unready)]), |_| true, at(12));
    assert_eq!(proofs.verdict(A, 101, "a", at(12)), Verdict::Unknown, "it may come back as another process");
    proofs.record(A, 101, held("3"), at(11));
    assert_eq!(proofs.verdict(A, 101, "a", at(13)), Verdict::Unknown, "probed before, and the response is late");
    proofs.record(A, 101, held("3"), at(13));
    assert_eq!(proofs.verdict(A, 101, "a", at(13)), Verdict::Proven);
}

/// Goal: a number counts as in use once another process has responded at a ready activator for [`FOREIGN_HOLDS`], no
/// sooner.
#[test]
fn a_number_is_in_use_only_after_a_while() {
    let (now, mut proofs) = (epoch(), Proofs::default());
    let (ready, other) = (BTreeSet::from([A]), BTreeSet::from([B]));
    for (at, answer, expected) in [
        (0, NumberResponse::Foreign, false),
        (9, NumberResponse::Foreign, false),
        (10, NumberResponse::Foreign, true),
        (11, NumberResponse::Refused, false),
        (12, NumberResponse::Foreign, false),
        (22, NumberResponse::Foreign, true),
    ] {
        proofs.record(A, 100, answer, now + Duration::from_secs(at));
        assert_eq!(proofs.in_use(&ready), if expected { [100].into() } else { BTreeSet::new() }, "at {at}");
        assert!(proofs.in_use(&other).is_empty());
    }
}

/// Goal: the table of [`slices`] holds, row by row.
#[test]
fn an_address_is_listed_with_a_number_on_which_it_listens() {
    use Serving::{Ready, Stopped, Terminating, Unready};
    let (now, held) = (epoch(), || ours("1", "a", true));
    let closing = || ours("1", "a", false);
    type Row<'a> = (&'a str, Serving, &'a [(u16, NumberResponse)], &'a [u16], Option<(u16, bool)>, &'a [u16]);
    let rows: [Row<'_>; 16] = [
        ("not probed", Ready, &[], &[], None, &[100]),
        ("proven", Ready, &[(100, held())], &[], Some((100, true)), &[]),
        ("proven, in transit from a former number", Ready, &[(100, held())], &[90], Some((100, true)), &[]),
        ("not proven yet, so it stays where it was", Ready, &[(90, held())], &[90], Some((90, true)), &[100]),
        ("former and closing", Ready, &[(90, closing())], &[90], Some((90, true)), &[100]),
        ("former and closed already", Ready, &[(90, NumberResponse::Refused)], &[90], None, &[100]),
        ("listed, and the owner has just started", Ready, &[], &[100], Some((100, true)), &[100]),
        ("listed, and refused", Ready, &[(100, NumberResponse::Refused)], &[100], None, &[100]),
        ("listed, and of another workload", Ready, &[(100, ours("1", "b", true))], &[100], None, &[100]),
        ("listed, and another process", Ready, &[(100, NumberResponse::Foreign)], &[100], None, &[100]),
        ("listed, and closing by now", Ready, &[(100, closing())], &[100], Some((100, true)), &[]),
        ("closing, and not listed", Ready, &[(100, closing())], &[], None, &[100]),
        ("terminating", Terminating, &[(100, held())], &[100], Some((100, false)), &[]),
        ("terminating, and not listed", Terminating, &[(100, held())], &[], None, &[]),
        ("not ready", Unready, &[(100, held())], &[100], None, &[]),
        ("has ended serving", Stopped, &[(100, held())], &[100], None, &[]),
    ];
    for (case, serving, answers, listed, expected, to_probe) in rows {
        let mut proofs = Proofs::default();
        answers.iter().for_each(|(number, answer)| proofs.record(A, *number, answer.clone(), now));
        let listed: Vec<_> = listed.iter().map(|number| Listed { address: A, number: *number, ready: true }).collect();
        let port = slices::Port { uid: "a", number: Some(100), former: &[90], listed: &listed };
        let found = endpoints(&port, &activators(&[(A, serving)]), &proofs, now);
        let expected: Vec<_> =
            expected.map(|(number, ready)| Listed { address: A, number, ready }).into_iter().collect();
        assert_eq!(found.listed, expected, "{case}");
        assert_eq!(found.to_probe, to_probe.iter().map(|number| (A, *number)).collect::<Vec<_>>(), "{case}");
        let leaving: Vec<_> = listed.iter().map(|at| Listed { ready: false, ..*at }).collect();
        let port = slices::Port { listed: &leaving, ..port };
        let found = endpoints(&port, &activators(&[(A, serving)]), &proofs, now).listed;
        let is_proven = matches!(answers, [(100, NumberResponse::Ours(one))] if *one == listening("1", "a", true));
        let stays = expected.iter().all(|at| is_proven || !at.ready);
        assert_eq!(found, if stays { expected } else { vec![] }, "{case}: listed as terminating");
        let gone = endpoints(&port, &[], &proofs, now);
        assert_eq!(gone.listed, [], "{case}: an activator that is gone");
    }
}

/// Goal: a terminating activator is removed beside a ready one, and stays if none is ready. So its end is one write.
#[test]
fn a_terminating_activator_is_removed_beside_a_ready_one() {
    let (now, mut proofs) = (epoch(), Proofs::default());
    [A, B].into_iter().for_each(|address| proofs.record(address, 100, ours("1", "a", true), now));
    let at = |address, ready| Listed { address, number: 100, ready };
    let both = [at(A, true), at(B, true)];
    let port = slices::Port { uid: "a", number: Some(100), former: &[], listed: &both };
    let found = |a, b| endpoints(&port, &activators(&[(A, a), (B, b)]), &proofs, now).listed;
    assert_eq!(found(Serving::Terminating, Serving::Ready), [at(B, true)]);
    assert_eq!(found(Serving::Terminating, Serving::Terminating), [at(A, false), at(B, false)]);
    assert_eq!(found(Serving::Terminating, Serving::Stopped), [at(A, false)]);
}

/// Goal: if no activator is ready, current ones stay, each with one number. None is added, and any evidence against one
/// counts. A ready and proven activator replaces them.
#[test]
fn unready_activators_stay_if_no_other_is_available() {
    use Serving::{Ready, Stopped, Terminating, Unready};
    let now = epoch();
    let at = |address, number, ready| Listed { address, number, ready };
    let there = [at(A, 100, true), at(A, 90, true), at(B, 90, true)];
    let was = [at(A, 100, true), at(B, 90, true)];
    let find = |listed: &[Listed], serving: &[(IpAddr, Serving)], answers: &[(IpAddr, u16, NumberResponse)]| {
        let mut proofs = Proofs::default();
        answers.iter().for_each(|(address, number, answer)| proofs.record(*address, *number, answer.clone(), now));
        let port = slices::Port { uid: "a", number: Some(100), former: &[90], listed };
        endpoints(&port, &activators(serving), &proofs, now)
    };
    let both = |a, b| [(A, a), (B, b)];
    let found = find(&there, &both(Unready, Unready), &[]);
    assert_eq!((found.listed.as_slice(), found.unready.as_slice()), (&[][..], &was[..]));
    assert_eq!(found.with_unready(), was);
    assert_eq!(find(&[], &both(Unready, Unready), &[]).with_unready(), [], "none is added");
    let leaving = there.map(|at| Listed { ready: false, ..at });
    assert_eq!(find(&leaving, &both(Unready, Stopped), &[]).with_unready(), [], "they were listed as terminating");
    assert_eq!(find(&there, &both(Unready, Stopped), &[]).with_unready(), [was[0]], "one has gone");
    let refused = [(A, 100, NumberResponse::Refused), (B, 90, ours("1", "b", true))];
    assert_eq!(find(&there, &both(Unready, Unready), &refused).with_unready(), [at(A, 90, true)], "it was refused");
    let proven = [(B, 100, ours("1", "a", true))];
    assert_eq!(find(&there, &both(Unready, Ready), &proven).with_unready(), [at(B, 100, true)], "one is ready again");
    assert_eq!(find(&there, &both(Unready, Ready), &[]).with_unready(), [was[1]], "it did not become unready");
    assert_eq!(find(&there[..1], &both(Unready, Ready), &[]).with_unready(), [was[0]], "until another is proven");
    assert_eq!(find(&there, &both(Unready, Terminating), &[]).with_unready(), [at(B, 90, false)], "one still serves");
}

/// Goal: clients that are routed to no activator or to a leaving one have priority. A further activator beside a ready
/// one can wait. Each family is served by its own addresses.
#[test]
fn a_first_activator_is_urgent_and_a_second_is_not() {
    let at = |address: &str, ready| Listed { address: address.parse().expect("an address"), number: 100, ready };
    let (a, b, c, six) = (at("10.0.0.1", true), at("10.0.0.2", true), at("10.0.0.3", true), at("fd00::1", true));
    let six_more = at("fd00::2", true);
    let gone = at("10.0.0.9", true);
    let rows: [(&[Listed], &[Listed], bool); 18] = [
        (&[], &[a], true),
        (&[a], &[], true),
        (&[gone], &[b], true),
        (&[gone, b], &[b], true),
        (&[gone, b], &[b, c], true),
        // The activator is ready, and another one replaces it.
        (&[a], &[b], false),
        (&[a, b], &[b, c], false),
        (&[a, b, c], &[b, c], false),
        (&[a, b, six], &[a, b], true),
        (&[a, b], &[Listed { number: 101, ..a }, b], true),
        (&[at("10.0.0.1", false)], &[at("10.0.0.1", false), b], true),
        (&[a], &[Listed { number: 101, ..a }, b], true),
        (&[a], &[a, b], false),
        (&[a], &[a, b, c], false),
        (&[a, b, six], &[a, b, six, six_more], false),
        (&[a, b], &[a, b, six], true),
        (&[a, b], &[a, b, c], false),
        (&[a], &[a], false),
    ];
    for (before, after, expected) in rows {
        let serves = |at: &Listed| at.address != gone.address;
        assert_eq!(slices::is_urgent(before, after, serves), expected, "{before:?} {after:?}");
    }
}

#[test]
fn a_removal_waits_for_a_successor_while_all_endpoints_respond() {
    let at = |address: &str, ready| Listed { address: address.parse().expect("an address"), number: 100, ready };
    let (goes, dead, stays) = (at("10.0.0.1", true), at("10.0.0.2", true), at("10.0.0.3", true));
    let (six, six_dead) = (at("fd00::1", true), at("fd00::2", true));
    let rows: [(&[Listed], &[Listed], bool); 13] = [
        (&[goes, stays], &[stays], true),
        (&[goes], &[Listed { ready: false, ..goes }], true),
        (&[dead, stays], &[stays], false),
        (&[dead, goes], &[Listed { ready: false, ..goes }], false),
        (&[goes, stays, six], &[stays, six], true),
        (&[dead], &[], false),
        (&[dead, stays, six], &[stays, six], false),
        (&[dead, six], &[six], false),
        (&[goes, six_dead], &[], false),
        // No activator is removed.
        (&[], &[stays], false),
        (&[stays], &[stays, goes], false),
        (&[stays], &[Listed { number: 101, ..stays }], false),
        (&[Listed { ready: false, ..goes }], &[stays], false),
    ];
    for (before, after, expected) in rows {
        let answers = |at: &Listed| at.address != dead.address && at.address != six_dead.address;
        assert_eq!(slices::may_wait_for_successor(before, after, answers), expected, "{before:?} {after:?}");
    }
}

/// Goal: clients of an endpoint reach its activator, in whatever state it is, until evidence speaks against it. Only
/// then may the endpoint's removal be delayed.
#[test]
fn an_activator_is_reached_until_there_is_evidence_against_it() {
    let now = epoch();
    for (serving, answer, expected) in [
        (Serving::Ready, Some(ours("1", "a", true)), true),
        (Serving::Ready, Some(ours("1", "a", false)), true),
        (Serving::Ready, None, true),
        (Serving::Ready, Some(ours("1", "b", true)), false),
        (Serving::Ready, Some(NumberResponse::Refused), false),
        (Serving::Ready, Some(NumberResponse::Foreign), false),
        (Serving::Terminating, Some(ours("1", "a", true)), true),
        (Serving::Terminating, Some(NumberResponse::Refused), false),
        (Serving::Unready, Some(ours("1", "a", true)), true),
    ] {
        let mut proofs = Proofs::default();
        answer.iter().for_each(|answer| proofs.record(A, 100, answer.clone(), now));
        let at = Listed { address: A, number: 100, ready: true };
        assert_eq!(
            slices::reached(&at, "a", &activators(&[(A, serving)]), &proofs, now),
            expected.then_some(serving),
            "{serving:?} {answer:?}"
        );
        assert_eq!(slices::reached(&at, "a", &[], &proofs, now), None, "it is gone");
    }
}

/// Goal: there is one slice per family, unless addresses have different numbers.
#[test]
fn slices_are_grouped_by_family_and_numbers() {
    let c = IpAddr::from([10, 0, 0, 3]);
    let at = |address, number| Listed { address, number, ready: address != c };
    let (http, admin) = ([at(A, 100), at(B, 100), at(c, 100)], [at(A, 101), at(B, 101)]);
    let slices = slices::group([("http", &http[..]), ("admin", &admin[..])]);
    let both: BTreeMap<String, u16> = [("http".to_owned(), 100), ("admin".to_owned(), 101)].into();
    let expected = [
        slices::Slice { ports: both.clone(), addresses: vec![(A, true)] },
        slices::Slice { ports: [("http".to_owned(), 100)].into(), addresses: vec![(c, false)] },
        slices::Slice { ports: both, addresses: vec![(B, true)] },
    ];
    assert_eq!(slices, expected);
}

/// Goal: a number has a cooldown before another workload gets it: while the range has unused ones, for ten minutes, and
/// as long as a slice names it. The number that was released first comes first. If the clock is set back, the cooldown
/// is no longer.
#[test]
fn a_number_has_a_cooldown_before_another_workload_gets_it() {
    let after = |seconds: u64| NOW + Duration::from_secs(seconds);
    let needing = |name: &str| workload(name, vec![wanted("", 80)]);
    let mut view = OwnerView {
        ledger: ledger(&[(100, "held default/a a 80"), (101, "held default/b b 80")]),
        workloads: vec![needing("b")],
        listed: [100].into(),
        start: 100,
        ..OwnerView::default()
    };
    let step = |view: &mut OwnerView, now| {
        let plan = view.plan_at((100, 102), now);
        apply(&mut view.ledger, &plan);
        (changes(&plan), plan.again)
    };
    assert_eq!(step(&mut view, NOW), (vec![], None), "a slice names it");
    view.listed.clear();
    assert_eq!(step(&mut view, NOW), (vec!["100 released:now default/a a 80".to_owned()], None));
    view.workloads.push(needing("c"));
    assert_eq!(step(&mut view, after(601)).0, ["102 held default/c c 80"], "an unused one is first");
    view.workloads = vec![needing("c"), needing("d")];
    view.listed = [100].into();
    let released = |at: u64, number: u16, name: &str| {
        format!("{number} released:{} default/{name} {name} 80", after(at).as_secs())
    };
    let (planned, again) = step(&mut view, after(602));
    assert_eq!(planned, [released(602, 100, "a"), released(602, 101, "b")], "a slice names it again");
    assert_eq!(again, Some(Duration::from_secs(1)), "the number in slices is checked again");
    assert_eq!(step(&mut view, after(640)), (vec![], Some(Duration::from_secs(22))));
    view.listed.clear();
    assert_eq!(step(&mut view, after(1201)), (vec![], Some(Duration::from_secs(1))));
    assert_eq!(step(&mut view, after(1202)).0, ["100 held default/d d 80"]);
    assert_eq!(step(&mut view, after(1202)).0, [""; 0]);
    assert_eq!(step(&mut view, after(550)).0, [""; 0], "clocks may differ by a minute");
    assert_eq!(step(&mut view, after(500)).0, [released(500, 101, "b")], "the clock was set");
}

/// Event for the workloads of two owners that do not know of each other.
#[derive(Clone, Debug)]
enum Event {
    Created(usize),
    Deleted(usize),
    Renamed(usize),
    Range(bool),
    StatusNames(usize, u16),
    InUse(u16),
    Listed(u16),
    Lost(u16),
    TimePasses(u64),
    /// An owner plans with its last view, or with a new one if `reads` is set.
    Plans {
        owner: usize,
        reads: bool,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..6usize).prop_map(Event::Created),
        2 => (0..6usize).prop_map(Event::Deleted),
        1 => (0..6usize).prop_map(Event::Renamed),
        1 => any::<bool>().prop_map(Event::Range),
        1 => (0..6usize, 96..112u16).prop_map(|(index, number)| Event::StatusNames(index, number)),
        1 => (100..110u16).prop_map(Event::InUse),
        1 => (100..110u16).prop_map(Event::Listed),
        1 => (96..112u16).prop_map(Event::Lost),
        3 => (1..400u64).prop_map(Event::TimePasses),
        9 => (0..2usize, any::<bool>()).prop_map(|(owner, reads)| Event::Plans { owner, reads }),
    ]
}

proptest! {
    /// Goal: under all events, and with two owners that plan from stale views, a number moves from one workload to
    /// another only after its cooldown. A workload that requests a number has one while there are any. Method: one
    /// ledger that rejects plans made from an old version of it.
    #[test]
    fn a_number_changes_its_workload_only_after_its_cooldown(history in prop::collection::vec(any_event(), 1..120)) {
        let mut now = NOW;
        let (mut ledger, mut version) = (Ledger::new(), 0u64);
        let mut live: BTreeMap<usize, (u32, Workload)> = BTreeMap::new();
        let mut owners = [(); 2].map(|()| (OwnerView::default(), 0u64));
        let mut range = (100, 107);
        let mut creations = 0;
        for event in history {
            match event {
                Event::Created(index) => {
                    creations += 1;
                    let uid = format!("{index}-{creations}").into();
                    let key = RevisionKey::new("default", format!("w{index}"));
                    let workload = Workload { key, uid, ports: vec![wanted("http", 80)], access: Access::Open };
                    live.entry(index).or_insert((creations, workload));
                }
                Event::Deleted(index) => _ = live.remove(&index),
                Event::Renamed(index) => if let Some((_, workload)) = live.get_mut(&index) {
                    let name = if workload.ports[0].port.name == "http" { "web" } else { "http" };
                    workload.ports[0].port.name = name.to_owned();
                },
                Event::Range(is_moved) => range = if is_moved { (104, 111) } else { (100, 107) },
                Event::StatusNames(index, number) => if let Some((_, workload)) = live.get_mut(&index) {
                    workload.ports[0].in_status = Some(number);
                },
                Event::InUse(number) => owners.iter_mut().for_each(|(view, _)| _ = view.in_use.insert(number)),
                Event::Listed(number) => owners.iter_mut().for_each(|(view, _)| _ = view.listed.insert(number)),
                Event::Lost(number) => {
                    // A line is edited by hand and can no longer be parsed.
                    let is_free = !ledger.contains_key(&number);
                    if is_free {
                        owners.iter_mut().for_each(|(view, _)| _ = view.unreadable.insert(number));
                    }
                }
                Event::TimePasses(seconds) => now = now + Duration::from_secs(seconds),
                Event::Plans { owner, reads } => {
                    let (view, read_version) = &mut owners[owner];
                    if reads {
                        view.ledger.clone_from(&ledger);
                        *read_version = version;
                        view.workloads = live.values().map(|(_, workload)| workload.clone()).collect();
                        view.in_use.clear();
                        view.listed.clear();
                    }
                    let planned = view.plan_at(range, now);
                    let mut numbers = BTreeSet::new();
                    for change in planned.changes.values().flatten() {
                        prop_assert!(numbers.insert(change.number), "one change for each line: {:?}", planned.changes);
                    }
                    if planned.changes.is_empty() || *read_version != version {
                        continue; // Rejected by compare-and-set.
                    }
                    for Change { number, entry: new } in planned.changes.values().flatten() {
                        let old = ledger.get(number);
                        if let NumberState::Released(at) = new.state {
                            prop_assert_eq!(at, now);
                            prop_assert_eq!(old.map(|old| &old.uid), Some(&new.uid), "released by another workload");
                            continue;
                        }
                        match old {
                            Some(old) if old.uid == new.uid => {}
                            Some(Entry { state: NumberState::Released(at), .. }) => {
                                prop_assert!(*at + COOLDOWN <= now && !view.listed.contains(number), "{old:?}, {new}");
                                let unused = (range.0..=range.1).find(|number| {
                                    !(ledger.contains_key(number) || view.unreadable.contains(number)
                                        || view.listed.contains(number) || view.in_use.contains(number)
                                        || numbers.contains(number))
                                });
                                prop_assert_eq!(unused, None, "the range is not used up");
                            }
                            old => prop_assert!(old.is_none(), "{old:?} becomes {new}"),
                        }
                        if old.is_none_or(|old| old.uid != new.uid) {
                            prop_assert!((range.0..=range.1).contains(number));
                            prop_assert!(!view.unreadable.contains(number));
                        }
                    }
                    apply(&mut ledger, &planned);
                    version += 1;
                }
            }
        }
        // At rest every workload has a number of the range, or the range is exhausted. Then no further change is
        // planned.
        let (view, _) = &mut owners[0];
        view.in_use.clear();
        view.listed.clear();
        view.workloads = live.values().map(|(_, workload)| workload.clone()).collect();
        for _ in 0..20 {
            view.ledger.clone_from(&ledger);
            now = now + COOLDOWN;
            let planned = view.plan_at(range, now);
            apply(&mut ledger, &planned);
        }
        view.ledger.clone_from(&ledger);
        let planned = view.plan_at(range, now);
        prop_assert_eq!(changes(&planned), Vec::<String>::new(), "it comes to rest");
        let good = planned.ports.values().filter_map(|ports| ports[0].number);
        let good: BTreeSet<u16> = good.filter(|number| (range.0..=range.1).contains(number)).collect();
        let is_held = |number: &u16| ledger.get(number).is_some_and(|entry| entry.state == NumberState::Held);
        let left = (range.0..=range.1).filter(|number| !is_held(number) && !view.unreadable.contains(number));
        prop_assert!(good.len() == view.workloads.len() || left.count() == 0, "{ledger:?}");
        let named: BTreeSet<&str> = view.workloads.iter().map(|workload| &*workload.uid).collect();
        let is_right = |entry: &Entry| entry.state != NumberState::Held || named.contains(&*entry.uid);
        prop_assert!(ledger.values().all(is_right), "numbers of no workload are released");
    }
}

/// Goal: a workload whose pods NetworkPolicies select has only guarded numbers. Its other numbers are closed at once,
/// even if slices name them, and so are guarded numbers of a former range. A workload whose policies cannot be followed
/// has no number. A workload that is no longer guarded keeps its number.
#[test]
fn a_guarded_workload_has_only_guarded_numbers() {
    use Access::{Guarded, Open, Unknown};
    let barred = || Access::Barred("why".into());
    let exhausted: Vec<String> = (18_000..18_010).map(|number| format!("held other/z{number} z 80")).collect();
    let all: Vec<(u16, &str)> = (18_000..).zip(exhausted.iter().map(String::as_str)).collect();
    let (all_and_held, guarded) = ([&all[..], &[(100, "held")]].concat(), (18_003, "held"));
    type Row<'a> = (&'a str, Access, &'a [(u16, &'a str)], &'a [u16], Option<u16>, &'a [&'a str]);
    let rows: [Row<'_>; 15] = [
        ("a new port", Guarded, &[], &[], None, &["18000 held"]),
        ("it becomes guarded", Guarded, &[(100, "held")], &[], None, &["100 closed:now", "18000 held"]),
        ("it becomes guarded, in slices", Guarded, &[(100, "held")], &[100], None, &["100 closed:now", "18000 held"]),
        ("just released", Guarded, &[(100, "released:1794999999"), guarded], &[], Some(18_003), &["100 closed:now"]),
        (
            "a port that is no longer wanted",
            Guarded,
            &[(101, "held default/a a 81 web"), guarded],
            &[101],
            Some(18_003),
            &["101 closed:now default/a a 81 web"],
        ),
        ("it is guarded", Guarded, &[guarded], &[], Some(18_003), &[]),
        ("no longer guarded", Open, &[guarded], &[], Some(18_003), &[]),
        ("closed, and no guarded number", Open, &[(100, "closed:1794999999")], &[], None, &["100 held"]),
        ("barred", barred(), &[(100, "held"), guarded], &[18_003], None, &["100 closed:now", "18003 closed:now"]),
        ("of a former range", Guarded, &[(17_000, "held")], &[17_000], None, &["17000 closed:now", "18000 held"]),
        ("the same, if it is no longer guarded", Open, &[(17_000, "held")], &[17_000], Some(17_000), &["100 held"]),
        ("the same, if its access is not known yet", Unknown, &[(17_000, "held")], &[], Some(17_000), &[]),
        ("all are used", Guarded, &all, &[], None, &[]),
        ("all are used, and it becomes guarded", Guarded, &all_and_held, &[], None, &["100 closed:now"]),
        ("another's number", Guarded, &[(100, "held default/b b 80 http"), guarded], &[100], Some(18_003), &[]),
    ];
    for (name, access, lines, listed, number, expected) in rows {
        let others = lines.iter().filter(|(_, line)| line.contains(" other/")).map(|(number, _)| *number);
        let is_barred = matches!(access, Access::Barred(_));
        let view = OwnerView {
            ledger: ledger_of_a(lines),
            workloads: vec![Workload { access, ..workload("a", vec![wanted("http", 80)]) }],
            listed: listed.iter().copied().chain(others).collect(),
            ..OwnerView::default()
        };
        let plan = view.plan((100, 110));
        assert_eq!(changes_of_a(&plan), expected, "{name}");
        let outcome = &plan.ports[&RevisionKey::new("default", "a")][0];
        assert_eq!((outcome.number, outcome.former.as_slice()), (number, &[][..]), "{name}");
        let problem = outcome.problem.as_ref().map(ToString::to_string);
        let says = if is_barred {
            Some("why")
        } else {
            name.starts_with("all").then_some("no port number is free in 18000-18009")
        };
        assert_eq!(problem.is_some(), says.is_some(), "{name}: {problem:?}");
        assert!(problem.unwrap_or_default().contains(says.unwrap_or_default()), "{name}");
    }
    let workloads = vec![Workload { access: Guarded, ..workload("a", vec![wanted("http", 80)]) }];
    let none = OwnerView { workloads, has_no_guarded: true, ..OwnerView::default() }.plan((100, 110));
    assert_eq!(none.ports[&RevisionKey::new("default", "a")][0].problem, Some(Problem::NoneGuarded));
    assert!(none.changes.is_empty());
}
