// State of all workloads: requests the changes from the server every other second, and notifies listeners once
// per frame.

/** Numbers in a sparkline, and seconds per number. */
export const SPARK = 60;
const SPARK_SECONDS = 10;
/** Pause between a response and the next request, in milliseconds. */
const EVERY = 1500;
/** Timeout of a request, in milliseconds. A request that never ends would block all later ones. */
export const WITHIN = 10000;
/** Timeout of a list, which has some MiB for thousands of workloads: the server's own limit for sending it. */
const LIST_WITHIN = 60000;

const workloads = new Map();
const listeners = new Set();
let replicas = [];
let link = "connecting";
let isNotifying = false;
let isChanged = false;
let clockOffset = 0;
let position = "";
let isPolling = false;
let timer;

/** All workloads, by `namespace/name`. */
export const all = () => workloads;
export const get = (key) => workloads.get(key);
export const status = () => ({ link, replicas });
/** Returns the time by the server's clock, in milliseconds. */
export const now = () => Date.now() + clockOffset;
export const listen = (listener) => listeners.add(listener);

/** Returns the pod-seconds saved by sleep until now. */
export function saved(workload) {
  const { saved, receivedAt } = workload;
  return saved ? saved.podSeconds + saved.pods * Math.max(0, (now() - receivedAt) / 1000) : 0;
}

export const isProblem = (workload) =>
  workload.ready?.status === "False" || (workload.lastWake?.outcome === "failed" && workload.state === "Waking");

/** Notifies all listeners in the next frame, and tells them whether anything but the time has changed. */
function notify(changed) {
  isChanged ||= changed;
  if (isNotifying) return;
  isNotifying = true;
  requestAnimationFrame(() => {
    const changed = isChanged;
    isNotifying = isChanged = false;
    for (const listener of listeners) listener(changed);
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
  fresh.receivedAt = at;
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

/** Advances every sparkline in time, and drops those that are empty. */
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
  if (some) notify(false);
}

function apply(message) {
  const at = Date.parse(message.now);
  clockOffset = at - Date.now();
  position = message.position;
  if (message.full) {
    const present = new Set(message.workloads.map((fresh) => `${fresh.namespace}/${fresh.name}`));
    for (const key of workloads.keys()) if (!present.has(key)) workloads.delete(key);
  }
  for (const fresh of message.workloads) take(fresh, at);
  for (const key of message.removed) workloads.delete(key);
  replicas = message.replicas;
  setLink("live");
}

/** Requests changes for ever, but not while the page is hidden. */
export function follow() {
  document.addEventListener("visibilitychange", poll);
  poll();
}

async function poll() {
  clearTimeout(timer);
  if (isPolling || document.hidden) return;
  isPolling = true;
  try {
    const response = await fetch(`/api/v1/workloads?after=${position}`, { signal: AbortSignal.timeout(LIST_WITHIN) });
    // The token has changed: reloading shows the sign-in form.
    if (response.status === 401) return location.reload();
    if (!response.ok) throw new Error(response.statusText);
    apply(await response.json());
  } catch {
    setLink("lost");
  }
  isPolling = false;
  timer = setTimeout(poll, EVERY);
}

function setLink(is) {
  link = is;
  notify(true);
}

setInterval(shift, SPARK_SECONDS * 1000);
// Values that change with time alone: duration of sleep, and its savings.
setInterval(() => notify(false), 1000);
