// Which of the two views is shown, and what stands above both.

import * as data from "/data.js";
import * as detail from "/detail.js";
import { money, podTime, write } from "/draw.js";
import * as list from "/list.js";

const byId = (id) => document.getElementById(id);
const [link, notice, overview, article] = ["link", "notice", "overview", "detail"].map(byId);
const LINKS = { connecting: "Connecting", live: "Live", lost: "Connection lost, trying again" };

let scrolled = 0;

function route() {
  const key = location.hash.startsWith("#/") && location.hash.length > 2 ? decodeURIComponent(location.hash.slice(2)) : null;
  const rows = byId("rows");
  if (key && !overview.hidden) scrolled = rows.scrollTop;
  overview.hidden = key !== null;
  article.hidden = key === null;
  document.title = key ? `${key} · Zeroscale` : "Zeroscale";
  detail.show(key);
  if (key === null) {
    rows.scrollTop = scrolled;
    list.refresh();
  } else {
    scrollTo(0, 0);
  }
}

function top() {
  const { link: is, replicas } = data.status();
  link.dataset.is = is;
  write(link.lastElementChild, LINKS[is]);
  const silent = replicas.filter((replica) => !replica.answered);
  notice.hidden = silent.length === 0;
  write(notice, silent.map((replica) => `Replica ${replica.name} does not answer (${replica.error}): what it decides on may be out of date.`).join(" "));
  let seconds = 0;
  const costs = new Map();
  for (const workload of data.all().values()) {
    const own = data.saved(workload);
    seconds += own;
    const price = workload.saved?.money;
    if (price) costs.set(price.currency, (costs.get(price.currency) ?? 0) + (price.amount * own) / (workload.saved.podSeconds || 1));
  }
  const amounts = [...costs].map(([currency, amount]) => money({ amount, currency }));
  write(byId("saved"), amounts.length ? amounts.join(" + ") : podTime(seconds));
  write(byId("saved-label"), amounts.length ? `saved by sleeping: ${podTime(seconds)}` : "saved by sleeping");
}

data.listen((news) => {
  top();
  if (news) list.countStates();
  if (!overview.hidden) news ? list.renew() : list.paint();
  detail.changed();
});
addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !article.hidden) location.hash = "#/";
});
list.start((key) => { location.hash = `#/${key}`; });
route();
data.follow();
