// What is known of all workloads: one stream of server-sent events fills it, and whoever listens is told once a frame.

/** Numbers of a sparkline, and seconds of each. */
export const SPARK = 60;
const SPARK_SECONDS = 10;
/** Longest silence of a connection that lives, in milliseconds: the server says something every 15 s. */
const SILENCE = 40000;
/** Longest wait for an answer, in milliseconds: one that never comes would keep all others from being asked for. */
export const WITHIN = 10000;

const workloads = new Map();
const listeners = new Set();
let replicas = [];
let link = "connecting";
let isTelling = false;
let isNew = false;
let ahead = 0;
let stream;
let silence;
let retry;

/** All of them, by `namespace/name`. */
export const all = () => workloads;
export const get = (key) => workloads.get(key);
export const status = () => ({ link, replicas });
/** The time by the server's clock, in milliseconds. */
export const now = () => Date.now() + ahead;
export const listen = (listener) => listeners.add(listener);

/** What sleeping has saved, in pod-seconds until now. */
export function saved(workload) {
  const { saved, took } = workload;
  return saved ? saved.podSeconds + saved.pods * Math.max(0, (now() - took) / 1000) : 0;
}

export const isProblem = (workload) =>
  workload.ready?.status === "False" || (workload.lastWake?.outcome === "failed" && workload.state === "Waking");

/** Tells all listeners with the next frame, and whether there is more than time that has passed. */
function tell(news) {
  isNew ||= news;
  if (isTelling) return;
  isTelling = true;
  requestAnimationFrame(() => {
    const news = isNew;
    isTelling = isNew = false;
    for (const listener of listeners) listener(news);
  });
}

function spark(values) {
  const numbers = new Float32Array(SPARK);
  if (values) numbers.set(values.slice(-SPARK), SPARK - Math.min(SPARK, values.length));
  return numbers;
}

function take(fresh, at) {
  const key = `${fresh.namespace}/${fresh.name}`;
  const { recent } = fresh;
  delete fresh.recent;
  fresh.key = key;
  fresh.took = at;
  fresh.text = `${key} ${fresh.target} ${fresh.why} ${fresh.ready?.reason ?? ""} ${fresh.state}`.toLowerCase();
  const before = workloads.get(key);
  fresh.requests = recent ? spark(recent.requestsPerSecond) : before?.requests;
  fresh.holds = recent ? spark(recent.held) : before?.holds;
  if (fresh.requestsPerSecond > 0 || fresh.held > 0) {
    fresh.requests ??= spark();
    fresh.holds ??= spark();
  }
  if (fresh.requests) {
    fresh.requests[SPARK - 1] = fresh.requestsPerSecond;
    fresh.holds[SPARK - 1] = Math.max(fresh.holds[SPARK - 1], fresh.held);
  }
  workloads.set(key, fresh);
}

/** Time goes on for every sparkline; one that shows nothing any more is given up. */
function shift() {
  let some = false;
  for (const workload of workloads.values()) {
    if (!workload.requests) continue;
    some = true;
    for (const [numbers, last] of [[workload.requests, workload.requestsPerSecond], [workload.holds, workload.held]]) {
      numbers.copyWithin(0, 1);
      numbers[SPARK - 1] = last;
    }
    if (!workload.requests.some(Boolean) && !workload.holds.some(Boolean)) workload.requests = workload.holds = undefined;
  }
  if (some) tell(false);
}

function apply(text) {
  const message = JSON.parse(text);
  const at = Date.parse(message.now);
  ahead = at - Date.now();
  if (message.full) {
    const kept = new Set(message.workloads.map((fresh) => `${fresh.namespace}/${fresh.name}`));
    for (const key of workloads.keys()) if (!kept.has(key)) workloads.delete(key);
  }
  for (const fresh of message.workloads) take(fresh, at);
  for (const key of message.removed) workloads.delete(key);
  replicas = message.replicas;
  say("live");
}

/** Follows for ever, while somebody looks: a page that is hidden keeps no connection, of which browsers have few. */
export function follow() {
  document.addEventListener("visibilitychange", connect);
  connect();
}

/** Opens the stream anew; none while the page is hidden. */
function connect() {
  disconnect();
  if (document.hidden) return say("connecting");
  stream = new EventSource("/api/v1/stream");
  stream.addEventListener("workloads", (event) => {
    heard();
    apply(event.data);
  });
  stream.addEventListener("heartbeat", heard);
  stream.onerror = fail;
  heard();
}

function disconnect() {
  clearTimeout(silence);
  clearTimeout(retry);
  stream?.close();
  stream = undefined;
}

/** A connection that is dead says nothing of it: one that is silent for too long is given up for another. */
function heard() {
  clearTimeout(silence);
  silence = setTimeout(() => {
    say("lost");
    connect();
  }, SILENCE);
}

/** The browser dials again by itself, except after an answer that is none. */
function fail() {
  say("lost");
  if (stream?.readyState !== EventSource.CLOSED) return;
  disconnect();
  retry = setTimeout(again, 3000);
}

function say(is) {
  link = is;
  tell(true);
}

/** Whoever is no more known, since the token is another one, signs in anew. */
async function again() {
  const signal = AbortSignal.timeout(WITHIN);
  const answer = await fetch("/api/v1/stream", { method: "HEAD", signal }).catch(() => undefined);
  if (answer?.status === 401) location.reload();
  // A page that was hidden and shown meanwhile has a stream again.
  else if (!stream) connect();
}

setInterval(shift, SPARK_SECONDS * 1000);
// What follows from the time alone: how long one has slept, what that has saved.
setInterval(() => tell(false), 1000);
