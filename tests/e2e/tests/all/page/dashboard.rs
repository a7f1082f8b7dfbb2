//! The dashboard in a browser.

use super::{check_page, picture};
use common_api::ZeroScaler;
use e2e::browser::{Browser, Tab};
use e2e::up::Up;
use e2e::{Gate, Workload};
use serde_json::json;

const LIST: &str = "deploy/docs/dashboard-light.png";
const DETAIL: &str = "deploy/docs/dashboard-detail-dark.png";
const PHONE: &str = "deploy/docs/dashboard-phone.png";
const PICTURE_BYTES_MAX: usize = 160 * 1024;

/// Waits until the row of a workload contains these words.
async fn until_row_has(tab: &Tab, up: &Up, name: &str, words: &[&str]) -> anyhow::Result<()> {
    let row = format!("document.querySelector('[data-key=\"{}/{name}\"]')?.textContent", up.space.namespace);
    let all = words.iter().map(|word| format!("{row}?.includes({})", json!(word))).collect::<Vec<_>>().join(" && ");
    tab.until(&all).await
}

/// Checks that nothing was loaded from elsewhere, the console is empty, and nothing is wider than the screen.
async fn check_dashboard(tab: &Tab, up: &Up) -> anyhow::Result<()> {
    check_page(tab, &up.dashboard);
    assert_eq!(tab.evaluate("document.documentElement.scrollWidth > window.innerWidth").await?, json!(false));
    Ok(())
}

/// Goal: the page shows scaling to and from zero, scaling and a workload that does not start, live and without
/// reloading. The detail view shows the curve, and the wakes with phases and reasons. Tested in light and dark mode, on
/// a desktop and on a phone.
#[tokio::test(flavor = "multi_thread")]
async fn wakes_scaling_and_failures_are_shown() -> anyhow::Result<()> {
    let (up, browser) = tokio::try_join!(Up::start(), Browser::start())?;
    let (space, gate) = (&up.space, Gate::new()?);
    let shop = Workload::new("shop").set("scale.load", json!({"concurrency": 2})).set("scale.max", 4);
    // Without a probe a pod counts as ready as soon as its process runs.
    let ready = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "failureThreshold": 3});
    let shop = gate.before(Workload { readiness: Some(ready), ..shop });
    let checkout = Workload::new("checkout").env("HELLO_EXIT_AFTER_MS", 1);
    for workload in [shop, checkout, Workload::new("archive"), Workload::new("mail"), Workload::new("reports")] {
        space.deploy(&workload).await?;
    }
    let (desk, phone) = (browser.tab().await?, browser.tab().await?);
    desk.screen(1280, 800, false, "light").await?;
    phone.screen(390, 780, true, "light").await?;
    desk.go(&up.dashboard).await?;
    phone.go(&up.dashboard).await?;
    desk.until("document.getElementById('link').textContent.includes('Live')").await?;
    for name in ["shop", "archive", "mail", "reports"] {
        until_row_has(&desk, &up, name, &["Asleep", "no requests", "Ready"]).await?;
    }

    let steady = up.load("shop").start(8, "/?latency_ms=300");
    until_row_has(&desk, &up, "shop", &["Waking", "requested, none is ready yet"]).await?;
    gate.open()?;
    let failing = up.load("checkout").start_open(1.0, 10, "/");
    until_row_has(&desk, &up, "shop", &["Awake", "requests in flight, target 2 per pod"]).await?;
    let pods = format!("document.querySelector('[data-key=\"{}/shop\"] .pods span')?.textContent", space.namespace);
    desk.until(&format!("Number({pods}) >= 3")).await?;
    until_row_has(&phone, &up, "checkout", &["Waking", "ends soon after each start"]).await?;
    until_row_has(&desk, &up, "checkout", &["Waking", "ends soon after each start"]).await?;
    desk.until("document.querySelector('[data-show=problem]').textContent.startsWith('1')").await?;
    space.patch::<ZeroScaler>("reports", json!({"spec": {"paused": true}})).await?;
    until_row_has(&desk, &up, "reports", &["Asleep, paused", "paused: scaling and routing do not change"]).await?;
    let curve =
        format!("document.querySelector('[data-key=\"{}/shop\"] .spark .area')?.getAttribute('d')", space.namespace);
    desk.until(&format!("{curve} != null")).await?;
    let pictures = [(LIST, desk.screenshot().await?), (PHONE, phone.screenshot().await?)];
    check_dashboard(&desk, &up).await?;
    check_dashboard(&phone, &up).await?;

    // By keyboard only: the search, the row, its view.
    desk.call("Emulation.setEmulatedMedia", json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]}))
        .await?;
    for (key, code) in [("/", "Slash"), ("s", "KeyS"), ("h", "KeyH"), ("o", "KeyO"), ("p", "KeyP")] {
        press(&desk, key, code).await?;
    }
    desk.until("document.querySelectorAll('.row:not([hidden])').length === 1").await?;
    desk.until("location.hash === '#/?q=shop'").await?;
    press(&desk, "ArrowDown", "ArrowDown").await?;
    press(&desk, "Enter", "Enter").await?;
    desk.until("document.querySelector('#detail .chart .ready') !== null").await?;
    desk.until("document.querySelectorAll('#detail .wakes .bar').length === 1").await?;
    desk.until("document.querySelectorAll('#detail .pods-list li').length >= 3").await?;
    desk.until("document.querySelector('#detail .open a').href.startsWith('http://shop.')").await?;
    let text = desk.text().await?;
    let words =
        "Awake|Deployment/shop|Last wakes|Scaled|Woke|PortsAllocated|in flight|0 restarts|kubectl zeroscale why";
    for word in words.split('|') {
        assert!(text.contains(word), "{word} in {text}");
    }
    let phases = desk.evaluate("document.querySelector('#detail .wakes .bar').getAttribute('aria-label')").await?;
    let phases = phases.as_str().unwrap_or_default();
    assert!(["scale", "pod", "probe", "forward"].iter().all(|phase| phases.contains(phase)), "{phases}");
    let pictures: Vec<_> = pictures.into_iter().chain([(DETAIL, desk.screenshot().await?)]).collect();

    steady.end().await?;
    assert!(failing.stop().await.failures() > 0);
    desk.until("document.querySelector('#detail .title .state').dataset.state === 'Asleep'").await?;
    press(&desk, "Escape", "Escape").await?;
    desk.until("document.activeElement.id === 'grid' && location.hash === '#/?q=shop'").await?;
    until_row_has(&desk, &up, "shop", &["Asleep", "no requests"]).await?;
    desk.go(&format!("{}/#/?show=problem&sort=-name", up.dashboard)).await?;
    desk.until("document.querySelector('[data-show=problem]').getAttribute('aria-pressed') === 'true'").await?;
    desk.until("document.querySelector('[aria-sort=descending] [data-sort=name]') !== null").await?;
    for (key, code) in [("Escape", "Escape"), ("/", "Slash"), ("m", "KeyM"), ("a", "KeyA"), ("Enter", "Enter")] {
        press(&desk, key, code).await?;
    }
    desk.until("location.hash.endsWith('/mail') && document.activeElement.id === 'detail'").await?;
    press(&desk, "Escape", "Escape").await?;
    desk.until("document.activeElement.id === 'grid'").await?;
    check_dashboard(&desk, &up).await?;
    for (name, png) in pictures {
        picture(name, &png, PICTURE_BYTES_MAX)?;
    }
    up.end().await
}

async fn press(tab: &Tab, key: &str, code: &str) -> anyhow::Result<()> {
    let text = if key.chars().count() == 1 { key } else { "" };
    let down =
        json!({"type": if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "key": key, "code": code, "text": text});
    tab.call("Input.dispatchKeyEvent", down).await?;
    tab.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "code": code})).await?;
    Ok(())
}
