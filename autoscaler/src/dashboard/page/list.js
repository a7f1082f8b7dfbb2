// The list of all workloads. Only visible rows exist, and are reused while the list is scrolled, so ten thousand
// workloads scroll as smoothly as ten.

import * as data from "/data.js";
import { STATES, age, command, make, number, spark, sparkle, write } from "/draw.js";

const byId = (id) => document.getElementById(id);
const [rows, space, grid, empty, count, search, select] = ["rows", "all", "grid", "empty", "count", "search", "sort"].map(byId);
const tiles = [...document.querySelectorAll(".tiles button")];
const heads = [...document.querySelectorAll(".head [role=columnheader]")];

/** Number of extra rows beyond each edge. */
const MARGIN = 6;
/** Time after the last scroll before the order may change again, in milliseconds. */
const QUIET = 250;

let matching = [];
let show = "all";
let order = { by: "state", reversed: false };
let selected = -1;
let selectedKey = null;
let height = 56;
let isPaintScheduled = false;
let lastScroll = -QUIET;
let refreshTimer;
const pool = [];

const rank = Object.fromEntries(Object.keys(STATES).map((state, index) => [state, index]));
const readiness = { False: 0, Unknown: 1, True: 2 };
const LEAST_FIRST = { state: (w) => (data.isProblem(w) ? -1 : rank[w.state] ?? 9), name: () => 0, ready: (w) => readiness[w.ready?.status] ?? 1 };
const MOST_FIRST = { pods: (w) => w.pods.ready, requests: (w) => w.requestsPerSecond, held: (w) => w.held };

/** Sorts by a number that is computed once per workload. */
function sort(workloads) {
  const { by, reversed } = order;
  const value = LEAST_FIRST[by] ?? ((w) => -MOST_FIRST[by](w));
  for (const workload of workloads) workload.rank = value(workload);
  const sign = reversed ? -1 : 1;
  return workloads.sort((a, b) => sign * (a.rank - b.rank || (a.key < b.key ? -1 : 1)));
}

const passes = (workload, words) =>
  (show === "all" || (show === "problem" ? data.isProblem(workload) : show === "Asleep"
    ? workload.state === "Asleep" || workload.state === "FallingAsleep" : workload.state === show)) &&
  words.every((word) => workload.text.includes(word));

/** Filters and sorts again, but not before the user has finished scrolling. */
export function refreshWhenIdle() {
  clearTimeout(refreshTimer);
  const rest = lastScroll + QUIET - performance.now();
  if (rest <= 0) refresh();
  else {
    refreshTimer = setTimeout(refreshWhenIdle, rest);
    paint();
  }
}

/** Filters and sorts again. */
export function refresh() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const every = [...data.all().values()];
  matching = sort(words.length || show !== "all" ? every.filter((workload) => passes(workload, words)) : every);
  height = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 56;
  space.style.height = `${matching.length * height}px`;
  grid.setAttribute("aria-rowcount", matching.length + 1);
  selected = selectedKey === null ? -1 : matching.findIndex((workload) => workload.key === selectedKey);
  const total = data.all().size;
  write(count, matching.length === total ? "" : `${number(matching.length)} of ${number(total)}`);
  empty.hidden = matching.length > 0;
  if (!matching.length) showMessage(total ? "fits" : data.status().link === "live" ? "first" : "waiting");
  paint();
}

/** Shows a message in place of rows. It is replaced only if it has changed, so that its text can be selected. */
function showMessage(what) {
  if (empty.dataset.says === what) return;
  empty.dataset.says = what;
  const line = (text) => make("p", {}, text);
  empty.replaceChildren(...({
    fits: [line("No workload matches."), line("Press Escape to show all workloads.")],
    waiting: [line("Waiting for the autoscaler to respond.")],
    first: [make("h2", {}, "There are no workloads yet"), line("To scale a Deployment with a Service to zero while it gets no requests, run:"),
      command("kubectl label deployment NAME zeroscale.dev/enabled=true"), line("Then send it a request. It appears here at once, with each scale from zero and its reason.")],
  })[what]);
}

/** Returns the present view as a URL, which opens the same view. */
export function address() {
  const query = new URLSearchParams();
  if (show !== "all") query.set("show", show);
  if (order.by !== "state" || order.reversed) query.set("sort", (order.reversed ? "-" : "") + order.by);
  if (search.value.trim()) query.set("q", search.value.trim());
  return query.size ? `#/?${query}` : "#/";
}

/** Applies the view of a URL; missing parts get their defaults. */
export function read(hash) {
  if (hash === address()) return;
  const query = new URLSearchParams(hash.split("?")[1] ?? "");
  const requested = query.get("sort") ?? "state";
  const by = requested.replace(/^-/, "");
  search.value = query.get("q") ?? "";
  show = tiles.some((tile) => tile.dataset.show === query.get("show")) ? query.get("show") : "all";
  order = by in LEAST_FIRST || by in MOST_FIRST ? { by, reversed: requested.startsWith("-") } : { by: "state", reversed: false };
  updateControls();
}

/** Shows the present view from its top, and writes it into the address bar without an entry in the history. */
function applyView() {
  updateControls();
  rows.scrollTop = 0;
  history.replaceState(null, "", address());
  refresh();
}

/** Updates tiles and column heads to match the view. */
function updateControls() {
  select.value = order.by;
  for (const head of heads) {
    const own = head.firstElementChild.dataset.sort;
    if (own !== order.by) head.removeAttribute("aria-sort");
    else head.setAttribute("aria-sort", (MOST_FIRST[own] !== undefined) !== order.reversed ? "descending" : "ascending");
  }
  for (const tile of tiles) tile.setAttribute("aria-pressed", tile.dataset.show === show);
}

function newRow() {
  const state = make("span", { class: "state" }, make("i"), make("span"));
  const link = make("a", { tabindex: "-1" });
  const [namespace, ready, wanted] = [make("span"), make("span"), make("small")];
  const [requests, held] = [spark(), spark()];
  const [requestsText, heldText] = [make("span"), make("span")];
  const [why, badge] = [make("div", { class: "why" }), make("span", { class: "badge" })];
  const cell = (attributes, ...children) => make("div", { role: "gridcell", ...attributes }, ...children);
  const element = make("div", { class: "row", role: "row" },
    cell({}, state), cell({ class: "who" }, link, namespace), cell({ class: "pods" }, ready, wanted),
    cell({ class: "rate" }, requests.svg, requestsText), cell({ class: "rate held" }, held.svg, heldText), cell({}, why), cell({}, badge));
  space.append(element);
  return { element, state, link, namespace, ready, wanted, requests, held, requestsText, heldText, why, badge, top: -1 };
}

/** Returns the explaining sentence; for a sleeping workload, with the present time. */
export function why(workload) {
  if (!workload.why.startsWith("asleep for ") || !workload.since) return workload.why;
  return `asleep for ${age(Math.max(0, data.now() - Date.parse(workload.since)) / 1000)}: no requests`;
}

function paintRow(row, index) {
  const workload = matching[index];
  const top = index * height;
  if (row.top !== top) {
    row.top = top;
    row.element.style.transform = `translateY(${top}px)`;
  }
  row.element.classList.toggle("at", index === selected);
  row.element.setAttribute("aria-rowindex", index + 2);
  row.element.setAttribute("aria-selected", index === selected);
  const sentence = why(workload);
  if (row.workload === workload && row.sentence === sentence && row.tick === workload.requests?.[0]) return;
  [row.workload, row.sentence, row.tick] = [workload, sentence, workload.requests?.[0]];
  row.element.id = `row-${workload.key}`;
  row.element.dataset.key = workload.key;
  row.state.dataset.state = workload.state;
  write(row.state.lastChild, workload.paused ? `${STATES[workload.state]}, paused` : STATES[workload.state] ?? workload.state);
  write(row.link, workload.name);
  row.link.href = `#/${workload.key}`;
  write(row.namespace, workload.namespace);
  write(row.ready, String(workload.pods.ready));
  const { desired } = workload.pods;
  write(row.wanted, desired === null || desired === workload.pods.ready ? "" : ` → ${desired}`);
  for (const [text, curve, value, numbers] of [
    [row.requestsText, row.requests, workload.requestsPerSecond, workload.requests],
    [row.heldText, row.held, workload.held, workload.holds]]) {
    write(text, value ? number(value) : "–");
    text.classList.toggle("none", !value);
    sparkle(curve, numbers?.some(Boolean) ? numbers : undefined);
  }
  write(row.why, sentence);
  row.why.title = sentence;
  const ready = workload.ready ?? { status: "Unknown", reason: "Unknown", message: "" };
  row.badge.dataset.is = ready.status;
  write(row.badge, ready.status === "True" ? "Ready" : ready.reason || ready.status);
  row.badge.title = ready.message || `Ready is ${ready.status}`;
}

/** Draws the visible rows. An index keeps its element while it is visible. */
export function paint() {
  if (!rows.offsetParent && !rows.clientHeight) return;
  const first = Math.max(0, Math.floor(rows.scrollTop / height) - MARGIN);
  const last = Math.min(matching.length, Math.ceil((rows.scrollTop + rows.clientHeight) / height) + MARGIN);
  while (pool.length < last - first) pool.push(newRow());
  const used = new Set();
  for (let index = first; index < last; index++) {
    const row = pool[index % pool.length];
    row.element.hidden = false;
    used.add(row);
    paintRow(row, index);
  }
  for (const row of pool) if (!used.has(row)) row.element.hidden = true;
  if (selected >= first && selected < last) grid.setAttribute("aria-activedescendant", `row-${selectedKey}`);
  else grid.removeAttribute("aria-activedescendant");
}

function schedulePaint() {
  if (isPaintScheduled) return;
  isPaintScheduled = true;
  requestAnimationFrame(() => {
    isPaintScheduled = false;
    paint();
  });
}

function moveTo(index) {
  if (!matching.length) return;
  selected = Math.max(0, Math.min(matching.length - 1, index));
  selectedKey = matching[selected].key;
  const [top, view] = [selected * height, rows.clientHeight];
  if (top < rows.scrollTop) rows.scrollTop = top;
  else if (top + height > rows.scrollTop + view) rows.scrollTop = top + height - view;
  paint();
}

function sortBy(by) {
  order = { by, reversed: order.by === by && !order.reversed };
  applyView();
}

function showOnly(what) {
  show = what;
  applyView();
}

/** Counts the workloads by state, and updates the tiles. */
export function countStates() {
  const counts = { all: 0, Awake: 0, Waking: 0, Asleep: 0, problem: 0 };
  for (const workload of data.all().values()) {
    counts.all++;
    const state = workload.state === "FallingAsleep" ? "Asleep" : workload.state;
    if (state in counts) counts[state]++;
    if (data.isProblem(workload)) counts.problem++;
  }
  for (const tile of tiles) {
    const value = counts[tile.dataset.show];
    write(tile.firstElementChild, number(value));
    tile.toggleAttribute("data-some", value > 0);
  }
}

export function start(open) {
  rows.addEventListener("scroll", () => {
    lastScroll = performance.now();
    schedulePaint();
  }, { passive: true });
  new ResizeObserver(refresh).observe(rows);
  search.addEventListener("input", applyView);
  select.addEventListener("change", () => sortBy(select.value));
  for (const head of heads) head.querySelector("button")?.addEventListener("click", (event) => sortBy(event.target.dataset.sort));
  for (const tile of tiles) tile.addEventListener("click", () => showOnly(tile.dataset.show));
  rows.addEventListener("click", (event) => {
    const key = event.target.closest(".row")?.dataset.key;
    if (key && !event.target.closest("a") && !getSelection().toString()) open(key);
  });
  grid.addEventListener("keydown", (event) => {
    if (event.target !== grid) return;
    const page = Math.max(1, Math.floor(rows.clientHeight / height) - 1);
    const steps = { ArrowDown: selected + 1, ArrowUp: selected - 1, PageDown: selected + page, PageUp: selected - page, Home: 0, End: matching.length - 1 };
    if (event.key in steps) moveTo(steps[event.key]);
    else if (event.key === "Enter" && selected >= 0) open(selectedKey);
    else return;
    event.preventDefault();
  });
  search.addEventListener("keydown", (event) => {
    if (!matching.length || !["ArrowDown", "Enter"].includes(event.key)) return;
    event.preventDefault();
    grid.focus();
    if (selected < 0) moveTo(0);
    if (event.key === "Enter") open(selectedKey);
  });
  document.addEventListener("keydown", (event) => {
    if (byId("overview").hidden) return;
    if (event.key === "/" && event.target !== search) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape") {
      search.value = "";
      showOnly("all");
    }
  });
  updateControls();
}
