// Helpers for elements, numbers, times and curves.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element with attributes and children; texts are never parsed as HTML. */
export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

/** Sets a text, if it has changed. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function number(exact) {
  const value = Math.abs(exact) < 0.005 ? 0 : exact; // No -0.
  if (value >= 9.95 || value === 0) return Math.round(value).toLocaleString("en");
  return value.toFixed(value < 0.95 ? 2 : 1).replace(/\.?0+$/, "");
}

export function duration(seconds) {
  if (seconds < 0.0095) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.95) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

/** Formats the time since an event, in whole seconds or larger units. */
export const age = (seconds) => (seconds < 120 ? `${Math.floor(seconds)} s` : duration(seconds));

export const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

export function time(at, now) {
  const seconds = Math.max(0, (now - Date.parse(at)) / 1000);
  return make("time", { datetime: at, title: new Date(at).toLocaleString("en-GB") }, seconds < 2 ? "now" : `${age(seconds)} ago`);
}

/** Formats pod-seconds in a readable unit: a number, and the unit. */
export function podUnits(seconds) {
  if (seconds < 3600) return [number(seconds / 60), "pod-minutes"];
  if (seconds < 72 * 3600) return [number(seconds / 3600), "pod-hours"];
  return [number(seconds / 86400), "pod-days"];
}

export const podTime = (seconds) => podUnits(seconds).join(" ");

export const money = ({ amount, currency }) =>
  new Intl.NumberFormat("en", { style: "currency", currency, maximumFractionDigits: amount < 10 ? 3 : 0 }).format(amount);

/** States in order of urgency, and their labels. */
export const STATES = { Waking: "Waking", Awake: "Awake", FallingAsleep: "Falling asleep", Asleep: "Asleep", Unknown: "Unknown" };

/** Creates a command with a copy button. */
export function command(text) {
  const button = make("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    write(button, (await copy(text)) ? "Copied" : "Select it");
    setTimeout(() => write(button, "Copy"), 2000);
  });
  return make("div", { class: "command" }, make("code", {}, text), button);
}

/** Copies a text. The clipboard exists only on localhost and over TLS; elsewhere a selection is copied. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { class: "hidden" }, text);
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Creates a sparkline, 92 by 28; `sparkle` sets its paths. */
export function spark() {
  const area = draw("path", { class: "area" });
  const curve = draw("path");
  const svg = draw("svg", { class: "spark", viewBox: "0 0 92 28", preserveAspectRatio: "none", "aria-hidden": "true" }, area, curve);
  return { svg, area, curve };
}

export function sparkle({ svg, area, curve }, numbers) {
  svg.classList.toggle("none", !numbers);
  if (!numbers) {
    curve.removeAttribute("d");
    area.removeAttribute("d");
    return;
  }
  let most = 1;
  for (const n of numbers) if (n > most) most = n;
  let d = "";
  for (let i = 0; i < numbers.length; i++) {
    const x = (i / (numbers.length - 1)) * 92;
    d += `${i ? "L" : "M"}${x.toFixed(1)} ${(27 - (numbers[i] / most) * 25).toFixed(1)}`;
  }
  curve.setAttribute("d", d);
  area.setAttribute("d", `${d}L92 27L0 27Z`);
}

/** Returns a round number not below `value`, for the top of an axis. */
export function ceiling(value) {
  if (value <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((step) => step * unit).find((step) => step >= value);
}
