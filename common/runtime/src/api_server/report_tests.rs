//! The layer around mock services.

use super::*;
use serde_json::json;
use std::io;
use tokio::io::AsyncReadExt;
use tower::ServiceExt;
use tower::util::BoxService;

type Answer = Result<Response<Box<DynBody>>, BoxError>;
type Inner = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Returns a layer around a service that responds with `answer` for a path, and the layer's known faults.
fn layer(answer: impl Fn(&str) -> Answer + Send + 'static) -> (FaultReporter<Inner>, Arc<Faults>) {
    let faults = Arc::new(Faults::for_server("s:1".into()));
    let inner = tower::service_fn(move |request: Request<Body>| std::future::ready(answer(request.uri().path())));
    (FaultReporter { inner: BoxService::new(inner), faults: faults.clone() }, faults)
}

fn status(code: u16, message: &str) -> Response<Box<DynBody>> {
    let body = json!({"kind": "Status", "status": "Failure", "code": code, "message": message}).to_string();
    Response::builder().status(code).body(whole(body.into())).expect("a response")
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a request")
}

const DENIED: &str = "pods is forbidden: User \"a\" cannot list resource \"pods\"";

/// Goal: a missing permission is one fault across namespaces, and ends in the namespace where it last occurred. Other
/// errors are not faults. The response is passed on unchanged.
#[tokio::test]
async fn a_missing_permission_ends_in_the_namespace_where_it_last_occurred() {
    let (mut service, faults) = layer(|path| {
        Ok(match path {
            "/api/v1/namespaces/a/pods" | "/api/v1/namespaces/b/pods" => status(403, DENIED),
            "/api/v1/namespaces/q/pods" => status(403, "exceeded quota: q"),
            _ => status(200, ""),
        })
    });
    let known = |faults: &Faults| faults.resources.lock().keys().cloned().collect::<Vec<_>>();
    for path in ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods", "/api/v1/namespaces/q/pods"] {
        let answer = service.ready().await.expect("ready").call(get(path)).await.expect("answered");
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        assert!(serde_json::from_slice::<Status>(&body).is_ok_and(|status| status.code == 403), "{path}");
    }
    assert_eq!(known(&faults), [Fault::Denied("list pods".into())]);
    let info =
        |path: &str| RequestInfo::from_request(&http::Method::GET, &path.parse().expect("a path")).expect("a resource");
    faults.works(&info("/api/v1/namespaces/a/pods"));
    assert_eq!(known(&faults).len(), 1, "it last occurred in b");
    faults.works(&info("/api/v1/namespaces/b/pods"));
    assert!(known(&faults).is_empty());
}

#[tokio::test]
async fn only_a_404_to_a_list_is_a_fault_of_its_resource() {
    let (mut service, faults) = layer(|_| Ok(status(404, "the server could not find the requested resource")));
    for (path, count) in [("/apis/a.b/v1/namespaces/n/things/one", 0), ("/apis/a.b/v1/things", 1)] {
        service.ready().await.expect("ready").call(get(path)).await.expect("answered");
        assert_eq!(faults.resources.lock().len(), count, "{path}");
    }
    for n in 0..2 * FAULTS_MAX {
        service.ready().await.expect("ready").call(get(&format!("/apis/a.b/v1/r{n}"))).await.expect("answered");
    }
    assert_eq!(faults.resources.lock().len(), FAULTS_MAX);
}

/// Goal: a request without a response ends with an error, so its caller tries another connection.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_fails_after_65_seconds() {
    let inner = tower::service_fn(|_: Request<Body>| std::future::pending::<Answer>());
    let faults = Arc::new(Faults::for_server("s:1".into()));
    let start = Instant::now();
    let mut service = FaultReporter { inner, faults };
    let error = service.ready().await.expect("ready").call(get("/version")).await.map(|_| ()).expect_err("no response");
    assert!(error.to_string().contains("did not respond within 65 s"), "{error}");
    assert_eq!(start.elapsed(), HEAD_TIMEOUT);
}

#[tokio::test]
async fn a_connection_error_is_passed_on() {
    let (mut service, _) = layer(|_| Err(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused))));
    let error = service.ready().await.expect("ready").call(get("/version")).await.map(|_| ()).expect_err("refused");
    assert!(error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused));
}

/// Goal: the user agent names the component in the form from which the API server derives the field manager.
#[tokio::test]
async fn the_user_agent_names_the_component() {
    let (listener, address) = crate::tests::listen().await;
    let uri = format!("http://{address}").parse().expect("a URI");
    let client = client(Config::new(uri), "autoscaler").expect("usable");
    let asking = tokio::spawn(async move { client.apiserver_version().await });
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a request"));
    }
    let head = String::from_utf8(head).expect("text");
    let agent = head.lines().find_map(|line| line.strip_prefix("user-agent: ")).expect("a user agent");
    let version = agent.strip_prefix("zeroscale-autoscaler/").expect("a name before the slash");
    assert!(version.starts_with(env!("CARGO_PKG_VERSION")), "{agent}");
    asking.abort();
}
