//! Tokens with a mock API server that reviews them, in paused time.

use super::*;
use crate::tests::failure;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;

/// Response of the API server for a token.
#[derive(Clone, Debug)]
enum Answer {
    /// An activator's token, bound to this Pod.
    Activator(&'static str),
    /// An invalid token: expired, or its Pod was deleted.
    Expired,
    /// An error with this status code.
    Fails(u16),
    /// No response.
    Silent,
}

/// API server with a configured result for each token; other tokens are expired. It records the requests.
#[derive(Clone, Default)]
struct Reviews {
    answers: Arc<Mutex<HashMap<&'static str, Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Reviews {
    /// Sets the result for a token from now on.
    fn set(&self, token: &'static str, answer: Answer) {
        self.answers.lock().insert(token, answer);
    }

    /// Returns the number of reviews of the token.
    fn review_count(&self, token: &str) -> usize {
        self.requests.lock().iter().filter(|reviewed| *reviewed == token).count()
    }

    /// Creates a gate that uses this API server.
    fn gate(&self) -> Gate {
        let reviews = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| reviews.clone().answer(request));
        Gate::new(demand(), Client::new(service, "default"))
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        assert_eq!(request.uri().path(), "/apis/authentication.k8s.io/v1/tokenreviews");
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        let review: TokenReview = serde_json::from_slice(&body).expect("a review");
        assert_eq!(review.spec.audiences.as_deref(), Some(&[demand().audience][..]));
        let token = review.spec.token;
        self.requests.lock().push(token.clone());
        let known = self.answers.lock().get(token.as_str()).cloned();
        let (code, mut body) = match known.unwrap_or(Answer::Expired) {
            Answer::Activator(pod) => {
                let user = user("system:serviceaccount:sys:activator", Some(pod));
                (201, json!({"status": {"authenticated": true, "audiences": [demand().audience], "user": user}}))
            }
            Answer::Expired => (201, json!({"status": {"error": "token has expired"}})),
            Answer::Fails(code) => failure(code).expect("a response"),
            Answer::Silent => std::future::pending::<(u16, Value)>().await,
        };
        if code == 201 {
            body["spec"] = json!({"token": token});
        }
        let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        Ok(response.expect("a response"))
    }
}

fn demand() -> Demand {
    Demand::of_planes("a", "sys", "autoscaler")
}

fn user(name: &str, pod: Option<&str>) -> UserInfo {
    let extra = pod.map(|pod| [(POD.to_owned(), vec![pod.to_owned()])].into());
    UserInfo { username: Some(name.into()), extra, ..UserInfo::default() }
}

/// Returns the result of a handshake with this token.
async fn admit(gate: &Gate, token: &str) -> Result<Peer, TokenError> {
    admit_from(gate, token, [127, 0, 0, 1].into()).await
}

async fn admit_from(gate: &Gate, token: &str, from: IpAddr) -> Result<Peer, TokenError> {
    let value = HeaderValue::try_from(format!("Bearer {token}")).expect("a header");
    let headers = [(header::AUTHORIZATION, value)].into_iter().collect();
    gate.admit(bearer(&headers), false, from).await
}

#[test]
fn only_accounts_of_the_planes_are_admitted() {
    let stranger = |name: &str| Err(TokenError::Stranger(name.into()));
    let rows = [
        ("system:serviceaccount:sys:activator", Some("a-0"), Ok(Peer::Activator("a-0".into()))),
        ("system:serviceaccount:sys:activator", None, Err(TokenError::Unbound)),
        ("system:serviceaccount:sys:autoscaler", None, Ok(Peer::Autoscaler)),
        ("system:serviceaccount:other:activator", Some("a-0"), stranger("system:serviceaccount:other:activator")),
        ("system:serviceaccount:sys:default", Some("a-0"), stranger("system:serviceaccount:sys:default")),
        ("admin", None, stranger("admin")),
    ];
    for (name, pod, expected) in rows {
        assert_eq!(demand().peer(&user(name, pod)), expected, "{name} {pod:?}");
    }
}

/// Goal: an expired token opens no connection once its successful review is too old, and a refused token is reviewed
/// again once its failed review is too old.
#[tokio::test(start_paused = true)]
async fn an_expired_token_is_refused_when_its_review_is_too_old() {
    let (reviews, second) = (Reviews::default(), Duration::from_secs(1));
    let gate = reviews.gate();
    reviews.set("token", Answer::Activator("a-0"));
    assert_eq!(admit(&gate, "token").await, Ok(Peer::Activator("a-0".into())));
    reviews.set("token", Answer::Expired);
    tokio::time::advance(GOOD_FOR - second).await;
    assert_eq!(admit(&gate, "token").await, Ok(Peer::Activator("a-0".into())), "the review is still good");
    assert_eq!(reviews.review_count("token"), 1);
    tokio::time::advance(second).await;
    let refused = admit(&gate, "token").await.expect_err("expired");
    assert_eq!((refused.status(), refused), (StatusCode::UNAUTHORIZED, TokenError::BadToken("a".into())));

    reviews.set("token", Answer::Activator("a-0"));
    tokio::time::advance(BAD_FOR - second).await;
    admit(&gate, "token").await.expect_err("still refused");
    assert_eq!(reviews.review_count("token"), 2);
    tokio::time::advance(second).await;
    admit(&gate, "token").await.expect("reviewed again");
    assert_eq!(reviews.review_count("token"), 3);
}

/// Goal: without a review the response is 503 within two seconds and names the reason. No result is cached, so the next
/// handshake causes another review. Known tokens are still admitted.
#[tokio::test(start_paused = true)]
async fn a_failed_or_slow_review_is_repeated_at_the_next_handshake() {
    let reviews = Reviews::default();
    let gate = reviews.gate();
    reviews.set("known", Answer::Activator("a-0"));
    admit(&gate, "known").await.expect("good");
    let rows = [
        (Answer::Fails(500), "no"),
        (Answer::Fails(403), "lacks the permission to create tokenreviews"),
        (Answer::Silent, "does not respond"),
    ];
    for (n, (answer, why)) in rows.into_iter().enumerate() {
        reviews.set("known", answer.clone());
        reviews.set("token", answer);
        let start = Instant::now();
        let refused = admit(&gate, "token").await.expect_err("no review");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
        assert!(start.elapsed() <= token_review::TIMEOUT, "{:?}", start.elapsed());
        assert_eq!(reviews.review_count("token"), n + 1);
        admit(&gate, "known").await.expect("cached");
    }
    reviews.set("token", Answer::Activator("a-1"));
    assert_eq!(admit(&gate, "token").await, Ok(Peer::Activator("a-1".into())), "at the next handshake");
}

/// Goal: a peer that makes up tokens costs the API server a bounded number of reviews and gets 429. Good tokens are
/// admitted meanwhile: known or unknown ones from another address, and known ones from the same address.
#[tokio::test(start_paused = true)]
async fn made_up_tokens_cost_a_bounded_number_of_reviews() {
    let (reviews, stranger) = (Reviews::default(), IpAddr::from([10, 0, 0, 66]));
    let gate = reviews.gate();
    reviews.set("early", Answer::Activator("a-0"));
    admit_from(&gate, "early", stranger).await.expect("good");
    let begun = Instant::now();
    let mut refusals = HashMap::new();
    for n in 0..6000 {
        let refused = admit_from(&gate, &format!("made-up-{n}"), stranger).await.expect_err("made up");
        *refusals.entry(refused.status().as_u16()).or_insert(0) += 1;
        if n % 100 == 0 {
            let peer = format!("10.0.1.{}", n / 100).parse().expect("an address");
            let token = ["t0", "t1", "t2"][n / 100 % 3];
            reviews.set(token, Answer::Activator("a-1"));
            admit_from(&gate, token, peer).await.expect("another address");
            admit_from(&gate, "early", stranger).await.expect("known to be good, for a minute");
        }
        tokio::time::advance(Duration::from_millis(5)).await;
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
    let reviewed = reviews.requests.lock().iter().filter(|token| token.starts_with("made-up")).count();
    assert!((10..=17).contains(&reviewed), "a burst of ten and one in five seconds: {reviewed}");
    assert_eq!(refusals, HashMap::from([(401, reviewed), (429, 6000 - reviewed)]));
    assert!(gate.reviewed.lock().iter().all(|known| known.len() <= REVIEWED_MAX));
}

/// Goal: peers that are refused alternately for several reasons, with successes in between, do not fill the log.
#[tokio::test(start_paused = true)]
async fn each_refusal_reason_is_logged_once_a_minute() {
    let gate = Reviews::default().gate();
    let reasons = [TokenError::NoToken, TokenError::Stranger("a".into()), TokenError::Stranger("b".into())];
    let mut reported = 0;
    for _ in 0..120 {
        reported += reasons.iter().filter(|reason| gate.is_log_due(reason, Instant::now())).count();
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(reported, 4, "two reasons, twice each");
}
