//! The page that a visitor sees while a workload wakes.

use super::{check_page, picture};
use e2e::browser::{Browser, Tab};
use e2e::up::Up;
use e2e::{Gate, Workload};
use serde_json::json;

const LIGHT: &str = "deploy/docs/waking-light.png";
const DARK: &str = "deploy/docs/waking-dark-phone.png";
const PICTURE_BYTES_MAX: usize = 40 * 1024;

/// Returns a workload that starts when the gate is open, so the page exists while the test checks it.
fn sleeper(gate: &Gate, name: &str) -> Workload {
    gate.before(Workload::new(name).env("HELLO_TEXT", "hello, awake").set("wake.page", json!({})))
}

/// Checks that everything fits the width of the screen.
async fn check_width(tab: &Tab) -> anyhow::Result<()> {
    let wide = "Math.max(...[...document.querySelectorAll('*')].map(e => Math.ceil(e.getBoundingClientRect().right)))";
    let (wide, have) = (tab.evaluate(wide).await?, tab.evaluate("window.innerWidth").await?);
    let scrolls = tab.evaluate("document.documentElement.scrollWidth > window.innerWidth").await?;
    let moving = tab.evaluate("getComputedStyle(document.querySelector('.track')).overflow").await?;
    // The track clips its moving content.
    assert!(scrolls == json!(false) && moving == json!("hidden"), "{wide} of {have}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_see_pages_while_workloads_wake() -> anyhow::Result<()> {
    let (up, browser) = tokio::try_join!(Up::start(), Browser::start())?;
    let gates = [Gate::new()?, Gate::new()?]; // Their pods must be able to start until the end.
    the_waiting_page_is_replaced_by_the_workload(&up, &browser, &gates[0]).await?;
    pages_without_scripts_with_custom_html_and_for_failing_pods(&up, &browser, &gates[1]).await?;
    up.end().await
}

/// Goal: a visitor sees at once which workload wakes, since when and how long it usually takes, and then the workload,
/// without any action. Tested in light and dark mode, on a desktop and on a phone.
async fn the_waiting_page_is_replaced_by_the_workload(up: &Up, browser: &Browser, gate: &Gate) -> anyhow::Result<()> {
    let space = &up.space;
    space.deploy(&sleeper(gate, "shop")).await?;
    let first = browser.tab().await?;
    first.screen(800, 420, false, "light").await?;
    first.go(&up.url("shop", "/cart?item=1")).await?;
    assert_eq!(first.documents(), [503]);
    let text = first.text().await?;
    assert!(text.starts_with("shop is waking up") && text.contains("It has been waking for "), "{text}");
    assert!(!text.contains("usually"), "{text}");
    assert_eq!(first.evaluate("document.title").await?, json!("shop is waking"));
    let light = first.evaluate("getComputedStyle(document.body).backgroundColor").await?;
    first.until("+document.querySelector('[data-zeroscale=elapsed]').textContent >= 1").await?;
    gate.open()?;
    first.until("document.body.innerText.trim() === 'hello, awake'").await?;
    assert_eq!(first.documents(), [503, 200], "one page, then the workload");
    assert_eq!(first.evaluate("location.pathname + location.search").await?, json!("/cart?item=1"));
    check_page(&first, &up.url("shop", "/"));
    first.call("Page.close", json!({})).await?;

    space.until_asleep("shop").await?;
    gate.close()?;
    let (desk, phone) = (browser.tab().await?, browser.tab().await?);
    desk.screen(800, 420, false, "light").await?;
    phone.screen(360, 640, true, "dark").await?;
    desk.go(&up.url("shop", "/")).await?;
    phone.go(&up.url("shop", "/")).await?;
    for tab in [&desk, &phone] {
        assert!(tab.text().await?.contains("It usually takes about "), "{}", tab.text().await?);
        check_width(tab).await?;
    }
    let dark = phone.evaluate("getComputedStyle(document.body).backgroundColor").await?;
    assert_ne!(dark, light, "dark is dark");
    desk.until("+document.querySelector('[data-zeroscale=elapsed]').textContent >= 2").await?;
    let pictures = [(LIGHT, desk.screenshot().await?), (DARK, phone.screenshot().await?)];
    gate.open()?;
    for tab in [&desk, &phone] {
        tab.until("document.body.innerText.trim() === 'hello, awake'").await?;
        check_page(tab, &up.url("shop", "/"));
    }
    for (name, png) in pictures {
        picture(name, &png, PICTURE_BYTES_MAX)?;
    }
    Ok(())
}

/// Goal: a browser without scripts reloads by itself, and says so. Custom HTML is shown as written, with its
/// placeholders filled in, and is replaced, too. A page reports pods that do not start.
async fn pages_without_scripts_with_custom_html_and_for_failing_pods(
    up: &Up,
    browser: &Browser,
    gate: &Gate,
) -> anyhow::Result<()> {
    let space = &up.space;
    let html = "<!doctype html><html lang=en><title>{{workload}}</title><p id=own title=\"{{workload}}\">{{workload}} \
                comes, {{elapsed}} s so far, {{other}}</p>";
    let own = sleeper(gate, "own").set("wake.page", json!({"html": html}));
    let failing = Workload::new("failing").env("HELLO_EXIT_AFTER_MS", 1).set("wake.page", json!({}));
    for workload in [sleeper(gate, "plain"), own, failing] {
        space.deploy(&workload).await?;
    }

    let plain = browser.tab().await?;
    plain.call("Emulation.setScriptExecutionDisabled", json!({"value": true})).await?;
    plain.go(&up.url("plain", "/")).await?;
    assert!(plain.text().await?.contains("Your browser reloads this page every "), "{}", plain.text().await?);
    let own = browser.tab().await?;
    own.go(&up.url("own", "/")).await?;
    let text = own.text().await?;
    assert!(text.starts_with("own comes, ") && text.ends_with(" s so far, {{other}}"), "{text}");
    assert_eq!(own.evaluate("document.getElementById('own').title").await?, json!("own"));
    let failing = browser.tab().await?;
    failing.go(&up.url("failing", "/")).await?;
    gate.open()?;
    for (tab, name) in [(&plain, "plain"), (&own, "own")] {
        tab.until("document.body.innerText.trim() === 'hello, awake'").await?;
        check_page(tab, &up.url(name, "/"));
    }
    assert!(plain.requested_urls().iter().all(|url| !url.contains(".zeroscale")), "it opens no stream");
    failing.until("document.body.innerText.includes('It does not start')").await?;
    assert!(failing.documents().iter().all(|status| *status == 503), "{:?}", failing.documents());
    Ok(())
}
