//! A real browser: headless Chromium, controlled by its DevTools protocol, which is JSON over one WebSocket.
//!
//! Tests need a dozen of its calls, so they use the documented calls directly
//! (<https://chromedevtools.github.io/devtools-protocol/>) without a crate in between. A [`Tab`] has its own context,
//! without the cookies, caches and emulated devices of other tabs.
//!
//! `CHROMIUM` names the program; otherwise `chromium` or `google-chrome` is searched for.

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Longest wait for a response of the browser, or for a state of a page.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which a page is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Flags that disable network requests of the browser itself and the need for a window, a sandbox or a sound card.
const FLAGS: &str = "\
    --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking \
    --disable-component-update --disable-extensions --disable-sync --hide-scrollbars --metrics-recording-only \
    --mute-audio --no-first-run --remote-debugging-port=0";

/// Running browser; all its processes end when it is dropped.
pub struct Browser {
    child: Child,
    link: Arc<Link>,
    _profile: TempDir,
}

/// Tab of a browser.
pub struct Tab {
    link: Arc<Link>,
    session: String,
}

/// Connection to the browser.
struct Link {
    calls: tokio::sync::Mutex<SplitSink<WebSocketStream<MaybeTlsStream<TcpStream>>, Message>>,
    next: AtomicU64,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    /// Events by session, in order.
    events: HashMap<String, Vec<Value>>,
}

impl Browser {
    /// Starts a browser.
    pub async fn start() -> anyhow::Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut command = Command::new(program()?);
        command.args(FLAGS.split(' ')).arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().context("Chromium cannot be started")?;
        let mut lines = BufReader::new(child.stderr.take().context("its error output")?).lines();
        let address = timeout(PATIENCE, async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix("DevTools listening on ") {
                    return Ok(address.to_owned());
                }
            }
            bail!("Chromium ended before it listened")
        });
        let address = address.await.context("Chromium does not listen")??;
        // Keep reading: the browser would be killed by writing to a closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let (socket, _) = tokio_tungstenite::connect_async(&address).await.context("DevTools")?;
        let (calls, mut from) = socket.split();
        let link = Arc::new(Link { calls: calls.into(), next: AtomicU64::new(1), received: Mutex::default() });
        let weak = Arc::downgrade(&link);
        tokio::spawn(async move {
            while let Some(Ok(message)) = from.next().await {
                let Some(link) = weak.upgrade() else { return };
                if let Ok(message) = serde_json::from_slice(&message.into_data()) {
                    link.receive(message);
                }
            }
        });
        Ok(Self { child, link, _profile: profile })
    }

    /// Opens an empty tab that records requests, console messages and errors.
    pub async fn tab(&self) -> anyhow::Result<Tab> {
        let text = |value: &Value, name: &str| value[name].as_str().map(str::to_owned).context("a text");
        let context = text(&self.link.call(None, "Target.createBrowserContext", json!({})).await?, "browserContextId")?;
        let new = json!({"url": "about:blank", "browserContextId": context});
        let target = text(&self.link.call(None, "Target.createTarget", new).await?, "targetId")?;
        let attach = json!({"targetId": target, "flatten": true});
        let session = text(&self.link.call(None, "Target.attachToTarget", attach).await?, "sessionId")?;
        let tab = Tab { link: self.link.clone(), session };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({})).await?;
        }
        Ok(tab)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL); // It may have ended by itself.
        }
    }
}

impl Tab {
    /// Calls a method of the protocol.
    pub async fn call(&self, method: &str, parameters: Value) -> anyhow::Result<Value> {
        self.link.call(Some(&self.session), method, parameters).await
    }

    /// Navigates to an address, and waits until its document is loaded.
    pub async fn go(&self, url: &str) -> anyhow::Result<()> {
        let result = self.call("Page.navigate", json!({"url": url})).await?;
        ensure!(result["errorText"].is_null(), "{url}: {}", result["errorText"]);
        self.until("document.readyState !== 'loading'").await
    }

    /// Evaluates an expression in the page.
    pub async fn evaluate(&self, expression: &str) -> anyhow::Result<Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut found = self.call("Runtime.evaluate", parameters).await?;
        ensure!(found["exceptionDetails"].is_null(), "{expression}: {}", found["exceptionDetails"]);
        Ok(found["result"]["value"].take())
    }

    /// Waits until an expression is true in the current document.
    pub async fn until(&self, expression: &str) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            // Between two documents an evaluation fails.
            let found = self.evaluate(expression).await;
            if found.as_ref().is_ok_and(|value| *value == json!(true)) {
                return Ok(());
            }
            if Instant::now() >= end {
                let text = self.evaluate("document.documentElement.outerHTML").await;
                bail!("{expression} stays {found:?} in {text:?}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the visible text.
    pub async fn text(&self) -> anyhow::Result<String> {
        let text = self.evaluate("document.body.innerText").await?;
        Ok(text.as_str().context("a text")?.trim().to_owned())
    }

    /// Emulates a screen of this size, of a phone or not, in light or dark mode.
    pub async fn screen(&self, width: u32, height: u32, is_phone: bool, scheme: &str) -> anyhow::Result<()> {
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", screen).await?;
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await?;
        Ok(())
    }

    /// Returns a screenshot as PNG.
    pub async fn screenshot(&self) -> anyhow::Result<Vec<u8>> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false})).await?;
        Ok(BASE64_STANDARD.decode(shot["data"].as_str().context("a picture")?)?)
    }

    /// Returns the parameters of all events of this method so far.
    pub fn events(&self, method: &str) -> Vec<Value> {
        let received = self.link.lock_received();
        let events = received.events.get(&self.session).into_iter().flatten();
        events.filter(|event| event["method"] == method).map(|event| event["params"].clone()).collect()
    }

    /// Returns the statuses of the tab's documents so far, in order.
    pub fn documents(&self) -> Vec<u64> {
        let answers = self.events("Network.responseReceived");
        let documents = answers.iter().filter(|answer| answer["type"] == "Document");
        documents.filter_map(|answer| answer["response"]["status"].as_u64()).collect()
    }

    /// Returns the requested addresses, without data URLs.
    pub fn requested_urls(&self) -> Vec<String> {
        let requests = self.events("Network.requestWillBeSent");
        let urls = requests.iter().filter_map(|request| request["request"]["url"].as_str());
        urls.filter(|url| !url.starts_with("data:")).map(str::to_owned).collect()
    }

    /// Returns errors shown on the console: exceptions, failed loads, messages. Documents with an error status do not
    /// count.
    pub fn errors(&self) -> Vec<String> {
        let thrown = self.events("Runtime.exceptionThrown").into_iter();
        let printed = self.events("Runtime.consoleAPICalled").into_iter().filter(|call| call["type"] == "error");
        let is_document = |entry: &Value| self.requested_urls().first().is_some_and(|url| entry["url"] == url.as_str());
        let logged = self.events("Log.entryAdded").into_iter().map(|mut event| event["entry"].take());
        let logged = logged.filter(|entry| entry["level"] == "error");
        let logged = logged.filter(|entry| entry["source"] != "network" || !is_document(entry));
        thrown.chain(printed).chain(logged).map(|event| event.to_string()).collect()
    }
}

impl Link {
    fn lock_received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, message: Value) {
        let mut received = self.lock_received();
        match message["id"].as_u64() {
            Some(id) => {
                if let Some(waiting) = received.waiting.remove(&id) {
                    let _ = waiting.send(message); // The caller may have given up.
                }
            }
            None => {
                let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
                received.events.entry(session).or_default().push(message);
            }
        }
    }

    async fn call(&self, session: Option<&str>, method: &str, parameters: Value) -> anyhow::Result<Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.lock_received().waiting.insert(id, answer);
        let mut call = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            call["sessionId"] = session.into();
        }
        self.calls.lock().await.send(Message::text(call.to_string())).await.context("the browser has ended")?;
        let answer = timeout(PATIENCE, answered).await.with_context(|| format!("{method} is not answered"))??;
        ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        Ok(answer["result"].clone())
    }
}

fn program() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let named = ["chromium", "chromium-browser", "google-chrome"];
    let mut found = named.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    found.find(|file| file.is_file()).context("Chromium is missing (Debian: chromium), or named by CHROMIUM")
}
