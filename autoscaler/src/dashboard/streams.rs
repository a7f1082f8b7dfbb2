//! Streams of server-sent events: first a whole list, then what changes, at most once a second.
//!
//! ```text
//! event: workloads
//! data: {"full":true,"now":…,"replicas":[…],"workloads":[Summary…],"removed":[]}
//!
//! event: workloads
//! data: {"full":false,"now":…,"replicas":[…],"workloads":[those that have changed],"removed":["ns/name"…]}
//! ```
//!
//! Where nothing was said for [`HEARTBEAT`], an event `heartbeat` without data shows whoever follows that there is somebody:
//! a comment would do for a socket, but browsers' scripts do not see any, and could not tell a dead connection from a quiet one.
//!
//! # Bounds
//!
//! [`STREAMS_MAX`] streams; [`LISTS_MAX`] whole lists are made at a time, here and for who asks for one alone. What a
//! stream holds is a piece ([`super::writer`]); who does not read loses it.

use super::hub::{Frame, Hub};
use super::lists::{self, Listed, Scope};
use super::own::Own;
use super::record::time;
use super::replicas::{Replica, Replicas};
use super::writer::{Body, Gone, Writer};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Streams at a time.
pub(super) const STREAMS_MAX: usize = 64;
/// Whole lists that are made at a time.
const LISTS_MAX: usize = 4;
/// Longest wait for a list to be made.
const LIST_PATIENCE: Duration = Duration::from_secs(10);
/// Longest silence of a stream. The page gives a connection up after 40 s without a word.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A sign of life; browsers pass on no event that has no line of data.
const SIGN_OF_LIFE: &str = "event: heartbeat\ndata:\n\n";

/// Who may follow, and what.
#[derive(Clone)]
pub(super) struct Streams {
    pub(super) own: Arc<Own>,
    pub(super) replicas: Replicas,
    pub(super) hub: Arc<Hub>,
    places: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

impl Streams {
    pub(super) fn new(own: Arc<Own>, replicas: Replicas) -> Self {
        let hub = Arc::new(Hub::new(own.clone(), replicas.clone()));
        let (places, lists) = (Arc::new(Semaphore::new(STREAMS_MAX)), Arc::new(Semaphore::new(LISTS_MAX)));
        Self { own, replicas, hub, places, lists }
    }

    /// A new stream; none: there are too many.
    pub(super) fn open(&self, scope: Scope, connection: CancellationToken) -> Option<Body> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let (writer, body) = Writer::new(connection.clone());
        let streams = self.clone();
        tokio::spawn(async move {
            // It has gone, or was too slow; the browser opens another.
            let _ = streams.follow(scope, writer, &connection).await;
            drop(place);
        });
        Some(body)
    }

    /// A list; none: too many are being made.
    pub(super) async fn list(&self, scope: Scope, connection: CancellationToken) -> Option<Body> {
        let permit = self.turn().await?;
        let (mut writer, body) = Writer::new(connection);
        let streams = self.clone();
        tokio::spawn(async move {
            let _permit = permit;
            writer.write("{").await?;
            lists::write(&streams.own, &streams.replicas, &scope, &mut writer).await?;
            writer.write("}\n").await?;
            writer.flush().await
        });
        Some(body)
    }

    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        timeout(LIST_PATIENCE, self.lists.clone().acquire_owned()).await.ok()?.ok()
    }

    async fn follow(&self, scope: Scope, mut writer: Writer, connection: &CancellationToken) -> Result<(), Gone> {
        writer.write("retry: 1000\n\n").await?;
        writer.flush().await?;
        let mut frames = self.hub.follow();
        let mut said: Option<Vec<Replica>> = None;
        loop {
            let quiet_until = Instant::now() + HEARTBEAT;
            let next = tokio::select! {
                () = connection.cancelled() => return Err(Gone),
                () = writer.gone() => return Err(Gone),
                next = next(&mut frames, &scope, said.as_deref(), quiet_until, || self.own.now()) => next?,
            };
            match next {
                Next::Event { text, replicas } => {
                    writer.write(&text).await?;
                    said = Some(replicas.to_vec());
                }
                Next::Whole => said = Some(self.whole(&scope, &mut writer).await?),
                Next::SignOfLife => writer.write(SIGN_OF_LIFE).await?,
            }
            writer.flush().await?;
        }
    }

    async fn whole(&self, scope: &Scope, writer: &mut Writer) -> Result<Vec<Replica>, Gone> {
        let _turn = self.turn().await.ok_or(Gone)?;
        writer.write("event: workloads\ndata: {\"full\":true,").await?;
        let Listed { replicas, keys } = lists::write(&self.own, &self.replicas, scope, writer).await?;
        self.hub.told(keys);
        writer.write(",\"removed\":[]}\n\n").await?;
        writer.flush().await?;
        Ok(replicas)
    }
}

/// What a stream says next.
#[derive(Debug)]
enum Next {
    /// Everything: it is new, or was too slow.
    Whole,
    /// What has changed, with these replicas.
    Event { text: String, replicas: Arc<[Replica]> },
    /// That there is somebody.
    SignOfLife,
}

/// What is to be said next to who was told of the replicas `said`, if of anything, and hears nothing until `quiet_until`.
/// Frames without news for the scope do not count: a stream of a quiet namespace is to be heard, too.
async fn next(
    frames: &mut Receiver<Arc<Frame>>,
    scope: &Scope,
    said: Option<&[Replica]>,
    quiet_until: Instant,
    now: impl Fn() -> u32,
) -> Result<Next, Gone> {
    loop {
        let frame = match timeout_at(quiet_until, frames.recv()).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(RecvError::Lagged(_))) => return Ok(Next::Whole),
            Ok(Err(RecvError::Closed)) => return Err(Gone),
            Err(_) => return Ok(Next::SignOfLife),
        };
        let Some(said) = said.filter(|_| !frame.is_first) else { return Ok(Next::Whole) };
        if let Some(text) = event(&frame, scope, said, now()) {
            return Ok(Next::Event { text, replicas: frame.replicas.clone() });
        }
    }
}

/// A frame as an event, if it has something new for this scope.
fn event(frame: &Frame, scope: &Scope, said: &[Replica], now: u32) -> Option<String> {
    let rows: Vec<&str> = frame.rows.iter().filter(|(key, _)| scope.has(key)).map(|(_, row)| &**row).collect();
    let removed: Vec<&str> = frame.removed.iter().filter(|key| scope.has(key)).map(|key| key.as_str()).collect();
    if rows.is_empty() && removed.is_empty() && *said == *frame.replicas {
        return None;
    }
    let replicas = serde_json::to_string(&*frame.replicas).ok()?;
    let removed = serde_json::to_string(&removed).ok()?;
    Some(format!(
        "event: workloads\ndata: {{\"full\":false,\"now\":\"{}\",\"replicas\":{replicas},\"workloads\":[{}],\"removed\":{removed}}}\n\n",
        time(now.into()),
        rows.join(","),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::RevisionKey;
    use serde_json::{Value, json};

    fn replica(error: Option<&str>) -> Replica {
        Replica { name: "as-0".into(), answered: error.is_none(), error: error.map(str::to_owned) }
    }

    fn frame(rows: &[&str], removed: &[&str], error: Option<&str>) -> Frame {
        let key = |name: &&str| RevisionKey::new("ns", name);
        Frame {
            is_first: false,
            rows: rows.iter().map(|name| (key(name), format!("{{\"name\":\"{name}\"}}").into())).collect(),
            removed: removed.iter().map(key).collect(),
            replicas: Arc::new([replica(error)]),
        }
    }

    /// Goal: an event is one line of JSON, tells what concerns its scope, and there is none where nothing does.
    #[test]
    fn an_event_tells_what_is_new_in_its_scope() {
        let said = [replica(None)];
        let read = |frame: &Frame, namespace: Option<&str>| {
            let scope = Scope { namespace: namespace.map(str::to_owned) };
            let text = event(frame, &scope, &said, 0)?;
            let data = text.strip_prefix("event: workloads\ndata: ")?.strip_suffix("\n\n")?;
            assert!(!data.contains('\n'));
            Some(serde_json::from_str::<Value>(data).expect("JSON"))
        };
        let both = read(&frame(&["a", "b"], &["c"], None), None).expect("news");
        assert_eq!(both["workloads"], json!([{"name": "a"}, {"name": "b"}]));
        assert_eq!((&both["removed"], &both["full"]), (&json!(["ns/c"]), &json!(false)));
        assert_eq!(read(&frame(&[], &[], None), None), None);
        assert_eq!(read(&frame(&["a"], &["c"], None), Some("other")), None);
        let lost = read(&frame(&[], &[], Some("no answer within 2 s")), Some("other")).expect("news");
        assert_eq!(lost["replicas"][0], json!({"name": "as-0", "answered": false, "error": "no answer within 2 s"}));
    }

    /// Goal: a stream is never silent for longer than promised, also where frames come all the time and have nothing for it;
    /// and what it says then is an event that scripts see.
    #[tokio::test(start_paused = true)]
    async fn a_stream_without_news_says_that_there_is_somebody() {
        let (sender, mut frames) = tokio::sync::broadcast::channel(16);
        let sending = tokio::spawn(async move {
            loop {
                let _ = sender.send(Arc::new(frame(&["a"], &[], None)));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let (began, said) = (Instant::now(), [replica(None)]);
        let scope = Scope { namespace: Some("other".into()) };
        let heard = next(&mut frames, &scope, Some(&said), began + HEARTBEAT, || 0).await;
        assert!(matches!(heard, Ok(Next::SignOfLife)), "{heard:?}");
        assert_eq!(began.elapsed().as_secs(), HEARTBEAT.as_secs());
        assert!(SIGN_OF_LIFE.starts_with("event: heartbeat\ndata:"), "without data it is no event");
        sending.abort();
    }
}
