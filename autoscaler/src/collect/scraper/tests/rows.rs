//! Tests of the number and choice of scraped pods.

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
const WINDOW: Duration = Duration::from_secs(60);

/// Returns the samples of a scrape, and the number of requested old and young pods.
async fn scrape(old: u8, young: u8, old_answers: Answer) -> (Samples, [usize; 2]) {
    let mut port = 0;
    let (mut pods, mut requests) = (Vec::new(), Vec::new());
    for pod in 1..=old + young {
        let address = IpAddr::from([127, 2, 0, pod]);
        let listener = TcpListener::bind((address, port)).await.expect("bind");
        port = listener.local_addr().expect("address").port();
        let (answer, started) = if pod <= old { (old_answers, NOW - WINDOW) } else { (Answer::Concurrency(2.0), NOW) };
        requests.push(SentHeaders::default());
        tokio::spawn(serve(listener, answer, requests[usize::from(pod) - 1].clone()));
        pods.push((address, Some(started)));
    }
    let mut http = Http::new(Arc::new(Names::default()));
    http.port = port;
    let candidates = sample::choose(pods, NOW, WINDOW, &mut rand::rng());
    let samples = samples::from_pods(&http, candidates, None).await;
    let (first, second) = requests.split_at(usize::from(old));
    (samples, [first, second].map(|pods| pods.iter().map(|requests| requests.lock().len()).sum()))
}

/// Goal: the required number of pods is requested, old ones first; a failing pod is replaced by another.
#[tokio::test]
async fn a_sample_covers_the_required_number_of_pods() {
    use Answer::{Concurrency, Status};
    // (old, young, response of the old ones) -> (old requested, young requested, needed, total)
    for (old, young, answer, expected, needed, total) in [
        (5, 20, Concurrency(2.0), [5, 5], 10, 50.0),
        (25, 5, Concurrency(2.0), [11, 0], 11, 60.0),
        (11, 19, Status(403), [11, 11], 11, 60.0),
    ] {
        let (samples, counts) = scrape(old, young, answer).await;
        let combined = sample::combine(&samples.stats, usize::from(old + young)).expect("samples");
        let found = (counts, samples.stats.len(), samples.needed, combined.average_concurrent_requests);
        assert_eq!(found, (expected, needed, needed, total), "{old} old, {young} young");
    }
}
