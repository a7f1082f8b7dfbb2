// View of one workload: load and pods over the last minutes, last wakes, conditions and events.

import * as data from "/data.js";
import { STATES, ceiling, clock, command, draw, duration, make, money, number, podTime, time, write } from "/draw.js";
import * as list from "/list.js";

const article = document.getElementById("detail");
const EVERY = 2000;
/** Pause between requests for pods and logs, which the server reads from the API server. */
const PODS_EVERY = 10000;
/** Time span of the curves. */
const MINUTES = 10;
const PHASES = {
  signal: "the autoscaler is notified",
  scale: "the number of replicas is changed",
  pod: "a pod gets its address",
  probe: "the program passes a probe",
  forward: "the response begins",
};

let key = null;
let currentTurn = 0;
let timer;
let podsTimer;
let isPolling = false;
let parts;

/** Shows this workload; null: none. */
export function show(next) {
  clearTimeout(timer);
  clearTimeout(podsTimer);
  key = next;
  currentTurn += 1;
  parts = undefined;
  article.replaceChildren();
  if (key === null) return;
  article.append(back(), make("p", { class: "quiet" }, "Loading…"));
  poll();
}

/** Called when the list has changed: the details of this workload may have changed too. */
export function changed() {
  const known = key && data.get(key);
  if (parts && known && known !== parts.known) {
    parts.known = known;
    poll();
  }
}

const back = () => make("a", { class: "back", href: list.address() }, "← All workloads");

async function poll() {
  if (isPolling) return;
  isPolling = true;
  clearTimeout(timer);
  const turn = currentTurn;
  try {
    const answer = await fetch(`/api/v1/workloads/${key}`, { signal: AbortSignal.timeout(data.WITHIN) });
    const workload = await answer.json();
    if (turn === currentTurn) answer.ok ? paint(workload) : fail(workload.error);
  } catch {
    if (turn === currentTurn && !parts) fail("The autoscaler does not respond.");
  }
  isPolling = false;
  if (turn !== currentTurn) return key !== null && poll();
  timer = setTimeout(poll, EVERY);
}

async function pollPods() {
  clearTimeout(podsTimer);
  const turn = currentTurn;
  const signal = AbortSignal.timeout(data.WITHIN);
  const answer = await fetch(`/api/v1/workloads/${key}/pods`, { signal }).then((response) => response.json()).catch(() => undefined);
  if (turn !== currentTurn || !parts) return;
  if (answer) put("pods", () => pods(answer), answer, Math.floor(data.now() / 5000));
  podsTimer = setTimeout(pollPods, PODS_EVERY);
}

function fail(error) {
  parts = undefined;
  article.replaceChildren(back(), make("p", { class: "notice", role: "alert" }, error));
}

function card(title, ...children) {
  return make("section", { class: "card" }, make("h2", {}, title), ...children);
}

/** Returns the frame of the view, which is created once and then filled. */
function frame() {
  const name = (text) => make("div", { "data-part": text });
  const names = ["title", "sentence", "open", "facts", "pods", "commands", "chart", "wakes", "saved", "conditions", "schedules", "events", "history"];
  const slots = Object.fromEntries(names.map((text) => [text, name(text)]));
  const wakes = card("Last wakes", slots.wakes);
  const schedules = card("Schedules", slots.schedules);
  article.replaceChildren(
    back(), slots.title, slots.sentence, slots.open, make("section", { class: "card", "aria-label": "Facts" }, slots.facts),
    card("The last ten minutes", slots.chart), card("Pods", slots.pods),
    make("div", { class: "pair" }, wakes, card("Saved by sleeping", slots.saved)),
    card("Conditions", slots.conditions), schedules,
    make("div", { class: "pair" }, card("Events", slots.events), card("Decisions", slots.history)),
    card("Commands", slots.commands),
  );
  return { slots, schedules, rendered: {}, known: data.get(key) };
}

/** Rebuilds a part if its input has changed. */
function put(slot, render, ...inputs) {
  const input = JSON.stringify(inputs);
  if (parts.rendered[slot] === input) return;
  parts.rendered[slot] = input;
  parts.slots[slot].replaceChildren(...[render()].flat());
}

function paint(workload) {
  if (!parts) {
    parts = frame();
    pollPods();
  }
  const { ready } = workload;
  const tick = Math.floor(data.now() / 5000); // Updates relative times every five seconds.
  put("title", () => title(workload), workload.state, workload.paused, ready, workload.name, workload.error);
  put("sentence", () => make("p", { class: "sentence", role: "status" }, list.why(workload)), list.why(workload));
  put("open", () => links(workload.links ?? []), workload.links);
  put("commands", () => commands(workload), workload.namespace, workload.name, workload.target);
  put("facts", () => facts(workload), workload.target, workload.pods, workload.min, workload.max, workload.owner,
    workload.requestsPerSecond, workload.held, workload.concurrency, workload.nextChange, workload.decision?.spec);
  put("chart", () => chart(workload), workload.timeline, workload.events);
  put("wakes", () => wakes(workload.wakes), workload.wakes, tick);
  put("saved", () => saved(workload), workload.saved);
  put("conditions", () => conditions(workload.conditions), workload.conditions, tick);
  parts.schedules.hidden = workload.schedules.length === 0;
  put("schedules", () => schedules(workload), workload.schedules, workload.nextChange);
  put("events", () => events(workload.events), workload.events, tick);
  put("history", () => history(workload.history), workload.history, tick);
}

function title({ namespace, name, state, paused, ready, error }) {
  const badge = make("span", { class: "badge", "data-is": ready?.status ?? "Unknown", title: ready?.message ?? "" },
    ready?.status === "True" ? "Ready" : ready?.reason ?? "Unknown");
  return make("div", { class: "title" },
    make("h1", {}, make("small", {}, `${namespace} / `), name),
    make("span", { class: "state", "data-state": state }, make("i"), make("span", {}, (STATES[state] ?? state) + (paused ? ", paused" : ""))),
    badge, error ? make("span", { class: "quiet" }, error) : undefined);
}

function facts(workload) {
  const { pods, decision } = workload;
  const spec = decision?.spec;
  const entries = [
    ["Target", workload.target],
    ["Pods ready", String(pods.ready), pods.desired === null ? "" : ` of ${pods.desired} desired`],
    ["Range", `${workload.min ?? 0} – ${workload.max ?? "∞"}`],
    ["Requests/s", number(workload.requestsPerSecond)],
    ["In flight", number(workload.concurrency)],
    ["Held/s", number(workload.held)],
    spec && ["Target per pod", number(spec.target), spec.metric === "rps" ? " requests/s" : " in flight"],
    spec && ["Window", `${spec.stableWindowSeconds} s`],
    workload.nextChange && ["Next change", new Date(workload.nextChange.at).toLocaleString("en-GB"), ` ${workload.nextChange.min} – ${workload.nextChange.max ?? "∞"}`],
    ["Owner", workload.owner || "no replica at the moment"],
  ].filter(Boolean);
  return make("dl", { class: "facts" }, ...entries.map(([term, value, more]) =>
    make("div", {}, make("dt", {}, term), make("dd", {}, value, more ? make("small", {}, more) : undefined))));
}

/** Returns links to the URLs of the workload. */
function links(all) {
  if (!all.length) return [];
  const link = (href) => make("a", { href, target: "_blank", rel: "noreferrer" }, href);
  return make("p", { class: "open" }, "Open ", ...all.flatMap((href, i) => (i ? [", ", link(href)] : [link(href)])));
}

function commands({ namespace, name, target }) {
  const [kind, workload] = target.split("/");
  const which = `${kind.toLowerCase()}/${workload}`;
  return [`kubectl zeroscale why ${namespace}/${name}`, `kubectl zeroscale wake ${namespace}/${name} --wait`, `kubectl zeroscale sleep ${namespace}/${name}`,
    `kubectl -n ${namespace} describe zs ${name}`, `kubectl -n ${namespace} logs ${which} --all-containers --tail=50`].map(command);
}

/** Returns the pods: state, restarts and last log lines of their containers. */
function pods({ pods, error }) {
  if (error) return make("p", { class: "quiet" }, error);
  if (!pods.length) return make("p", { class: "quiet" }, "There are no pods.");
  return make("ul", { class: "pods-list" }, ...pods.map((pod) => {
    const restarts = pod.containers.reduce((sum, container) => sum + container.restarts, 0);
    const head = make("p", {}, make("b", {}, pod.name), " ", make("span", { class: "badge", "data-is": pod.ready ? "True" : "" }, pod.ready ? "Ready" : pod.phase),
      make("span", { class: restarts ? "bad" : "quiet" }, ` ${restarts} restart${restarts === 1 ? "" : "s"} `), pod.since ? time(pod.since, data.now()) : undefined);
    const containers = pod.containers.flatMap((container) => [
      container.state ? make("p", { class: "message" }, `${container.name}: ${container.state}`) : undefined,
      container.log ? make("pre", { tabindex: "0", "aria-label": `Last lines of ${container.name}` }, container.log) : undefined,
      container.logError ? make("p", { class: "quiet" }, `${container.name}: the log cannot be read: ${container.logError}`) : undefined]);
    return make("li", {}, head, pod.reason ? make("p", { class: "message" }, pod.reason) : undefined, ...containers);
  }));
}

const BAD = new Set(["WakeFailed", "NotScaled", "PanicBegan", "TimedOut", "Invalid"]);

/** Draws load above and pods below over a common time axis, with events as marks and panic as a band. */
function chart({ timeline, events }) {
  if (timeline.length < 2) return make("p", { class: "quiet" }, "No load in the last ten minutes.");
  const [width, left, right] = [Math.max(320, Math.min(1120, article.clientWidth - 42)), 34, 8];
  const [top, mid, base] = [14, 128, 214];
  const times = timeline.map((point) => Date.parse(point.at));
  const end = times.at(-1);
  const start = end - MINUTES * 60000;
  const x = (at) => left + ((at - start) / (end - start || 1)) * (width - left - right);
  const load = ceiling(Math.max(...timeline.map((p) => Math.max(p.concurrency, p.held))));
  const most = ceiling(Math.max(...timeline.map((p) => Math.max(p.ready, p.desired))));
  const upper = (value) => mid - 14 - (value / load) * (mid - 14 - top);
  const lower = (value) => base - (value / most) * (base - mid - 10);
  const curve = (value, y) => timeline.map((p, i) => `${i ? "L" : "M"}${x(times[i]).toFixed(1)} ${y(value(p)).toFixed(1)}`).join("");
  const steps = (value, y) => timeline.map((p, i) => `${i ? `H${x(times[i]).toFixed(1)}V` : `M${x(times[i]).toFixed(1)} `}${y(value(p)).toFixed(1)}`).join("");
  const text = (at, y, words, anchor = "end") => draw("text", { x: at, y, "text-anchor": anchor }, words);
  const concurrency = curve((p) => p.concurrency, upper);
  const ready = steps((p) => p.ready, lower);
  const peak = Math.max(...timeline.map((p) => p.concurrency));
  const described = `At most ${number(peak)} requests in flight, ${number(Math.max(...timeline.map((p) => p.held)))} held in a second, ${Math.max(...timeline.map((p) => p.ready))} pods ready.`;
  const svg = draw("svg", { class: "chart", viewBox: `0 0 ${width} 240`, role: "img", "aria-label": described });
  for (const [y, words] of [[upper(load), number(load)], [upper(0), "0"], [lower(most), number(most)], [lower(0), "0"]]) {
    svg.append(draw("line", { class: "rule", x1: left, x2: width - right, y1: y, y2: y }), text(left - 7, y + 4, words));
  }
  timeline.forEach((point, i) => {
    if (!point.panic) return;
    const from = x(times[Math.max(0, i - 1)]);
    svg.append(draw("rect", { class: "panic", x: from, y: top, width: Math.max(1, x(times[i]) - from), height: base - top }));
  });
  svg.append(
    draw("path", { class: "load-area", d: `${concurrency}L${x(end)} ${upper(0)}L${x(times[0])} ${upper(0)}Z` }),
    draw("path", { class: "load", d: concurrency }),
    timeline.some((p) => p.held) ? draw("path", { class: "held", d: curve((p) => p.held, upper) }) : "",
    draw("path", { class: "ready", d: `${ready}V${lower(0)}H${x(times[0])}Z` }),
    draw("path", { class: "wanted", d: steps((p) => p.desired, lower) }));
  for (const event of events) {
    const at = Date.parse(event.at);
    if (at < start || at > end) continue;
    const mark = draw("g", {}, draw("title", {}, `${clock(at)} ${event.reason}: ${event.message}`),
      draw("line", { class: "event", x1: x(at), x2: x(at), y1: top - 4, y2: base }),
      draw("path", { class: BAD.has(event.reason) ? "mark bad" : "mark", d: `M${x(at) - 4} ${top - 9}h8l-4 7Z` }));
    svg.append(mark);
  }
  for (let minutes = MINUTES; minutes >= 0; minutes -= width < 480 ? 5 : 2) {
    svg.append(text(x(end - minutes * 60000), 234, minutes ? `${minutes} min` : "now", minutes === MINUTES ? "start" : minutes ? "middle" : "end"));
  }
  const cross = draw("line", { class: "cross", y1: top, y2: base, visibility: "hidden" });
  const readout = make("p", { class: "readout" });
  svg.append(cross);
  svg.addEventListener("pointermove", (event) => {
    const at = start + ((event.offsetX / svg.clientWidth) * width - left) / (width - left - right) * (end - start);
    const index = times.reduce((best, t, i) => (Math.abs(t - at) < Math.abs(times[best] - at) ? i : best), 0);
    const point = timeline[index];
    for (const side of ["x1", "x2"]) cross.setAttribute(side, x(times[index]));
    cross.setAttribute("visibility", "visible");
    write(readout, `${clock(times[index])}: ${number(point.concurrency)} in flight, ${number(point.requestsPerSecond)} requests/s, ${point.held} held, ${point.ready} of ${point.desired} pods${point.panic ? ", panic" : ""}`);
  });
  svg.addEventListener("pointerleave", () => {
    cross.setAttribute("visibility", "hidden");
    write(readout, "");
  });
  const item = (ink, words) => make("li", {}, make("i", { class: ink }), make("span", {}, words));
  const legend = make("ul", { class: "legend" }, item("load-ink", "in flight"), item("held-ink", "held"), item("pods-ink", "ready pods"),
    item("wanted", "desired pods"), timeline.some((p) => p.panic) ? item("panic-ink", "panic") : undefined);
  return [legend, svg, readout];
}

function wakes(all) {
  if (!all.length) return make("p", { class: "quiet" }, "No request has started this workload from zero since this replica took it over.");
  const longest = Math.max(...all.map((wake) => wake.seconds));
  const names = Object.keys(PHASES);
  const items = all.map((wake) => {
    const words = wake.phases.filter((phase) => phase.seconds > 0).map((phase) => `${phase.name} ${duration(phase.seconds)}`).join(", ");
    const bar = make("div", { class: "bar", role: "img", "aria-label": words, title: words });
    for (const phase of wake.phases) {
      const part = make("i", { class: `p${names.indexOf(phase.name) + 1}` });
      part.style.width = `${(phase.seconds / longest) * 100}%`;
      part.hidden = phase.seconds === 0;
      bar.append(part);
    }
    return make("li", {}, time(wake.at, data.now()), bar, make("b", {}, duration(wake.seconds)),
      wake.outcome === "failed" ? make("p", {}, `failed: ${wake.reason}`) : undefined);
  });
  const legend = make("ul", { class: "legend" }, ...names.map((name, i) =>
    make("li", { title: PHASES[name] }, make("i", { class: `square p${i + 1}` }), make("span", {}, `${name}: ${PHASES[name]}`))));
  return [make("ol", { class: "wakes" }, ...items), make("p", { class: "readout" }), legend];
}

function saved({ saved }) {
  if (!saved) return make("p", { class: "quiet" }, "No savings are counted yet.");
  const entries = [["Pod time saved", podTime(saved.podSeconds)], saved.money && ["Value", money(saved.money)],
    ["Saved at the moment", `${saved.pods} pod${saved.pods === 1 ? "" : "s"}`], ["Counted since", new Date(saved.since).toLocaleString("en-GB")]];
  return make("dl", { class: "facts" }, ...entries.filter(Boolean).map(([term, value]) =>
    make("div", {}, make("dt", {}, term), make("dd", {}, value))));
}

function table(heads, rows) {
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell)))))));
}

function conditions(all) {
  if (!all.length) return make("p", { class: "quiet" }, "There are no conditions yet.");
  // Active is False for every sleeping workload: that is no error.
  const is = ({ type, status }) => make("span", { class: "badge", "data-is": type === "Active" && status === "False" ? "" : status }, status);
  return table(["Condition", "Status", "Reason", "Since", "Message"], all.map((condition) =>
    [condition.type, is(condition), condition.reason, time(condition.lastTransitionTime, data.now()), condition.message ?? ""]));
}

function schedules({ schedules }) {
  return table(["Begins", "Time zone", "Duration", "Pods", "Prewarm"], schedules.map((schedule) =>
    [schedule.cron, schedule.timeZone, schedule.duration, `${schedule.min ?? "unchanged"} – ${schedule.max ?? "unchanged"}`, schedule.prewarm]));
}

function events(all) {
  if (!all.length) return make("p", { class: "quiet" }, "There are no events.");
  return table(["When", "What", ""], all.slice(0, 14).map((event) => [time(event.at, data.now()), event.reason, event.message]));
}

function history(all) {
  if (!all.length) return make("p", { class: "quiet" }, "There are no decisions.");
  const words = (entry) => {
    if (entry.because !== undefined) return ["acted", entry.replicas === null ? "–" : `${entry.replicas} → ${entry.wanted ?? "–"}`, entry.says];
    if (entry.unknown !== undefined) return ["decided", "–", entry.says];
    if (entry.metric !== undefined) return ["decided", String(entry.desired), entry.says];
    return ["decided", String(entry.desired), `${entry.says}: ${number(entry.panicking ? entry.panic : entry.stable)}`];
  };
  return table(["Since", "", "Pods", "Why"], all.slice(-14).reverse().map((entry) =>
    [time(new Date(entry.since * 1000).toISOString(), data.now()), ...words(entry)]));
}
