// Switching between the two views, and the elements above them.

import * as data from "/data.js";
import * as detail from "/detail.js";
import { money, podTime, podUnits, write } from "/draw.js";
import * as list from "/list.js";

const byId = (id) => document.getElementById(id);
const [link, notice, overview, article] = ["link", "notice", "overview", "detail"].map(byId);
const LINKS = { connecting: "Connecting", live: "Live", lost: "Connection lost, retrying" };

let scrolled = 0;

function route() {
  const { hash } = location;
  const key = hash.startsWith("#/") && hash.length > 2 && hash[2] !== "?" ? decodeURIComponent(hash.slice(2)) : null;
  const rows = byId("rows");
  if (key && !overview.hidden) scrolled = rows.scrollTop;
  const wasHidden = overview.hidden;
  overview.hidden = key !== null;
  article.hidden = key === null;
  document.title = key ? `${key} · Zeroscale` : "Zeroscale";
  detail.show(key);
  if (key === null) {
    list.read(hash || "#/");
    rows.scrollTop = scrolled;
    list.refresh();
    // Returns the keyboard focus to its former place.
    if (wasHidden) byId("grid").focus({ preventScroll: true });
  } else {
    scrollTo(0, 0);
    article.focus({ preventScroll: true });
  }
}

function updateHeader() {
  const { link: is, replicas } = data.status();
  link.dataset.is = is;
  write(link.lastElementChild, LINKS[is]);
  const silent = replicas.filter((replica) => !replica.answered);
  notice.hidden = silent.length === 0;
  write(notice, silent.map((replica) => `Replica ${replica.name} does not respond (${replica.error}). Data of its workloads may be out of date.`).join(" "));
  let seconds = 0;
  const costs = new Map();
  for (const workload of data.all().values()) {
    const own = data.saved(workload);
    seconds += own;
    const price = workload.saved?.money;
    if (price) costs.set(price.currency, (costs.get(price.currency) ?? 0) + (price.perHour * own) / 3600);
  }
  const amounts = [...costs].map(([currency, amount]) => money({ amount, currency }));
  const [amount, unit] = podUnits(seconds);
  write(byId("saved"), amounts.length ? amounts.join(" + ") : amount);
  write(byId("saved-label"), amounts.length ? `saved by sleeping: ${podTime(seconds)}` : `${unit} saved by sleeping`);
}

data.listen((changed) => {
  updateHeader();
  if (changed) list.countStates();
  if (!overview.hidden) changed ? list.refreshWhenIdle() : list.paint();
  detail.changed();
});
addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !article.hidden) location.hash = list.address();
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  (article.hidden ? byId("grid") : article).focus();
});
list.start((key) => { location.hash = `#/${key}`; });
route();
data.follow();
