//! Priorities, workers, timers and back-offs, under paused time.

use super::*;
use std::iter::from_fn;
use tokio_test::{assert_pending, assert_ready, task};

type Names = WorkQueue<&'static str>;

#[tokio::test]
async fn a_worker_is_notified_of_a_decision_about_its_key_only() {
    let queue = Names::new();
    queue.add("a", Priority::Normal);
    let held = queue.next().await;
    let mut decision_pending = task::spawn(queue.decision_pending(&"a"));
    assert_pending!(decision_pending.poll());
    queue.add("a", Priority::Normal);
    queue.add("b", Priority::Urgent);
    assert_pending!(decision_pending.poll(), "an event, and another key");
    queue.add("a", Priority::Urgent);
    assert!(decision_pending.is_woken());
    assert_ready!(decision_pending.poll());
    assert_ready!(task::spawn(queue.decision_pending(&"a")).poll(), "a later call returns at once");
    drop(held);
    assert_pending!(task::spawn(queue.decision_pending(&"a")).poll(), "no worker holds the key");
}

async fn take(queue: &Names) -> &'static str {
    *queue.next().await.key()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_queued_once_and_decisions_go_first() {
    let queue = Names::new();
    queue.add("sweep", Priority::Slow);
    queue.add("birth", Priority::New);
    queue.add("event", Priority::Normal);
    queue.add("event", Priority::Normal);
    queue.add("sweep-too", Priority::Slow);
    queue.add("poke", Priority::Urgent);
    queue.add("sweep-too", Priority::Urgent); // Moves up.
    assert_eq!(queue.depth(), 5);
    for expected in ["poke", "sweep-too", "event", "birth", "sweep"] {
        assert_eq!(take(&queue).await, expected);
    }
    assert_pending!(task::spawn(queue.next()).poll());
    let state = queue.shared.state.lock();
    assert!(state.entries.is_empty() && state.waiting.is_empty(), "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_does_not_starve_a_sweep() {
    let queue = WorkQueue::new();
    (0..4).for_each(|key: u32| queue.add(1_000 + key, Priority::Slow));
    let mut swept = Vec::new();
    for round in 0..4 * LOWEST_PRIORITY_INTERVAL {
        queue.add(round, Priority::Normal);
        let item = queue.next().await;
        swept.extend((item.priority() == Priority::Slow).then(|| *item.key()));
    }
    assert_eq!(swept, [1_000, 1_001, 1_002, 1_003]);
}

#[tokio::test(start_paused = true)]
async fn a_key_has_one_worker_and_is_served_again_if_added_meanwhile() {
    let queue = Names::new();
    queue.add("a", Priority::Normal);
    let held = queue.next().await;
    queue.add("a", Priority::Slow);
    queue.add("a", Priority::Urgent);
    let mut second = task::spawn(queue.next());
    assert_pending!(second.poll(), "one worker for each key");
    drop(held);
    assert!(second.is_woken(), "returning a key wakes the waiting worker");
    assert_eq!(*assert_ready!(second.poll()).key(), "a");
    drop(second);
    assert!(queue.shared.state.lock().entries.is_empty(), "a finished key leaves nothing behind");
}

/// Goal: urgent workers are notified of each urgent key and of nothing else; timers wake the other workers.
#[tokio::test(start_paused = true)]
async fn urgent_workers_serve_urgent_keys_only() {
    let queue = Names::new();
    let mut urgent = task::spawn(queue.next_in(Some(Priority::Urgent)));
    let mut any = task::spawn(queue.next());
    assert_pending!(urgent.poll());
    assert_pending!(any.poll());
    queue.add("event", Priority::Normal);
    assert!(any.is_woken() && !urgent.is_woken());
    let event = assert_ready!(any.poll());
    queue.add("poke", Priority::Urgent);
    assert!(urgent.is_woken());
    let poke = assert_ready!(urgent.poll());
    assert_eq!((*poke.key(), poke.priority()), ("poke", Priority::Urgent));
    assert_eq!((*event.key(), event.priority()), ("event", Priority::Normal));

    let mut urgent = task::spawn(queue.next_in(Some(Priority::Urgent)));
    assert_pending!(urgent.poll());
    queue.add("poke", Priority::Urgent); // Served again when its current worker is done.
    queue.add_after("later", Duration::from_secs(1));
    assert!(!urgent.is_woken());
    drop(poke);
    assert!(urgent.is_woken());
    assert_eq!(*assert_ready!(urgent.poll()).key(), "poke");
    assert_eq!(take(&queue).await, "later");
}

#[tokio::test(start_paused = true)]
async fn timers_keep_the_earliest_time_and_wake_a_sleeping_worker() {
    let queue = Names::new();
    queue.add_after("a", Duration::from_secs(10));
    let mut worker = task::spawn(queue.next());
    assert_pending!(worker.poll());
    queue.add_after("a", Duration::from_secs(3));
    assert!(worker.is_woken());
    assert_pending!(worker.poll());
    queue.add_after("a", Duration::from_secs(5));
    tokio::time::advance(Duration::from_millis(2_999)).await;
    assert_pending!(worker.poll());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(*assert_ready!(worker.poll()).key(), "a");
    assert_pending!(task::spawn(queue.next()).poll(), "the later times are forgotten");
    assert!(queue.shared.state.lock().timers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn timers_have_the_highest_requested_priority() {
    let queue = Names::new();
    let timers = [("slow", Priority::Slow, 1), ("both", Priority::Slow, 2), ("both", Priority::Normal, 3)];
    for (key, priority, seconds) in timers {
        queue.add_after_with_priority(key, priority, Duration::from_secs(seconds));
    }
    queue.add_after("usual", Duration::from_secs(2));
    tokio::time::advance(Duration::from_secs(2)).await;
    let served: Vec<_> = from_fn(|| queue.try_next()).map(|item| (*item.key(), item.priority())).collect();
    assert_eq!(served, [("both", Priority::Normal), ("usual", Priority::Normal), ("slow", Priority::Slow)]);
}

/// Goal: this holds whichever worker waited for the previous timer. Method: two workers that wait before there is any
/// timer.
#[tokio::test(start_paused = true)]
async fn an_idle_worker_serves_a_timer_while_another_worker_is_busy() {
    let queue = Names::new();
    let (served, mut all) = tokio::sync::mpsc::unbounded_channel();
    let start = Instant::now();
    for _ in 0..2 {
        let (queue, served) = (queue.clone(), served.clone());
        tokio::spawn(async move {
            let item = queue.next().await;
            let _ = served.send((*item.key(), start.elapsed().as_secs()));
            tokio::time::sleep(Duration::from_secs(10)).await;
        });
    }
    tokio::task::yield_now().await;
    queue.add_after("first", Duration::from_secs(15));
    queue.add_after("second", Duration::from_secs(16));
    assert_eq!([all.recv().await, all.recv().await], [Some(("first", 15)), Some(("second", 16))]);
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_a_success_resets_the_delay() {
    let queue = Names::new();
    queue.add("a", Priority::Normal);
    for wait in [0, 5, 10, 20] {
        let start = Instant::now();
        queue.next().await.retry();
        assert_eq!(start.elapsed().as_millis(), wait);
    }
    let start = Instant::now();
    drop(queue.next().await);
    assert_eq!(start.elapsed(), Duration::from_millis(40));
    queue.add("a", Priority::Normal);
    let start = Instant::now();
    queue.next().await.retry();
    drop(queue.next().await);
    assert_eq!(start.elapsed(), Duration::from_millis(5), "a success resets the delay");
    assert!(queue.shared.state.lock().entries.is_empty());

    let queue = Names::with_backoff_max(Duration::from_millis(12));
    queue.add("a", Priority::Normal);
    for wait in [0, 5, 10, 12, 12] {
        let start = Instant::now();
        queue.next().await.retry();
        assert_eq!(start.elapsed().as_millis(), wait);
    }
    assert!(backoff(40) > BACKOFF_MAX, "many failures do not overflow the delay");
    queue.add("a", Priority::Normal);
    assert_eq!(*assert_ready!(task::spawn(queue.next()).poll()).key(), "a", "an event does not wait for the back-off");
}

#[tokio::test(start_paused = true)]
async fn every_waiting_worker_gets_one_of_the_keys() {
    let queue = Names::new();
    let mut workers = [(); 3].map(|()| task::spawn(queue.next()));
    workers.iter_mut().for_each(|worker| assert_pending!(worker.poll()));
    ["a", "b", "c"].into_iter().for_each(|key| queue.add(key, Priority::Normal));
    assert!(workers.iter().all(|worker| worker.is_woken()));
    let items: Vec<_> = workers.iter_mut().map(|worker| assert_ready!(worker.poll())).collect();
    let mut keys: Vec<_> = items.iter().map(|item| *item.key()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_reported_at_growing_intervals_until_a_success() {
    let queue = Names::with_backoff_max(Duration::from_secs(1));
    let begun = Instant::now();
    let mut reports = Vec::new();
    queue.add("a", Priority::Normal);
    while begun.elapsed() < Duration::from_secs(100) {
        let item = queue.next().await;
        if item.should_report() {
            reports.push(begun.elapsed().as_secs());
        }
        item.retry();
    }
    assert_eq!(reports, [3, 13, 33, 73]);
    drop(queue.next().await);
    queue.add("a", Priority::Normal);
    let first = queue.next().await;
    assert!(!first.should_report());
    first.retry();
    for _ in 0..12 {
        queue.next().await.retry(); // Does not ask whether to report.
    }
    assert!(queue.next().await.should_report(), "the report is still due");
}
