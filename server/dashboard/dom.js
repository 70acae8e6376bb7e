// Making elements, and writing figures for people. Text of a candidate is shown through textContent alone:
// nothing in these files parses HTML.

export const STAGES = ["ast", "compile", "tiny", "full", "timing"];

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "style") Object.assign(node.style, value); // properties, which the page's policy allows
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Identifies an element again after its region was drawn anew.
const mark = (node) => node.id || node.getAttribute("href") || node.getAttribute("data-key") || "";

// A part of a page that is drawn anew when its data have changed. Focus, open details and scrolled boxes stay.
export function region(node) {
  let last;
  return (data, draw) => {
    const key = JSON.stringify(data);
    if (key === last) return;
    last = key;
    const active = node.contains(document.activeElement) ? mark(document.activeElement) : "";
    const kept = (selector, what) =>
      new Map([...node.querySelectorAll(selector)].filter(mark).map((one) => [mark(one), what(one)]));
    const open = kept("details", (one) => one.open);
    const scrolled = kept(".scroll, pre", (one) => [one.scrollLeft, one.scrollTop]);
    node.replaceChildren(...[draw()].flat(3).filter(Boolean));
    for (const one of node.querySelectorAll("details")) if (open.has(mark(one))) one.open = open.get(mark(one));
    for (const one of node.querySelectorAll(".scroll, pre")) {
      const at = scrolled.get(mark(one));
      if (at) [one.scrollLeft, one.scrollTop] = at;
    }
    if (active) {
      const again = [...node.querySelectorAll("a, button, input, select, summary, [tabindex]")].find((one) => mark(one) === active);
      if (again) again.focus({ preventScroll: true });
    }
  };
}

export const isNumber = (value) => typeof value === "number" && isFinite(value);
export const count = (value) => (isNumber(value) ? value.toLocaleString("en") : "–");
export const several = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;
export const fixed = (value, digits = 3) => (isNumber(value) ? value.toFixed(digits) : "–");
export const speed = (value) => (isNumber(value) ? value.toFixed(2) + "×" : "–");

export function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  return (share > 0 && share < 1 ? share.toFixed(1) : Math.round(share)) + "%";
}

export function duration(ms) {
  if (!isNumber(ms)) return "–";
  if (ms < 0.001) return "0 ms";
  if (ms < 1) return +(ms * 1000).toPrecision(3) + " µs";
  if (ms < 1000) return (ms < 100 ? +ms.toPrecision(3) : Math.round(ms)) + " ms";
  if (ms < 100000) return (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";
  const minutes = ms / 60000;
  if (minutes < 90) return Math.round(minutes) + " min";
  return minutes < 2880 ? (minutes / 60).toFixed(1) + " h" : (minutes / 1440).toFixed(1) + " d";
}

export function ago(text) {
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  if (!isNumber(seconds)) return "–";
  if (seconds < 10) return "just now";
  if (seconds < 90) return 10 * Math.floor(seconds / 10) + " s ago";
  if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
  if (seconds < 129600) return Math.round(seconds / 3600) + " h ago";
  return new Date(text).toISOString().slice(0, 10);
}

// UTC, as in the log and the API.
export const clockTime = (text) => (text ? text.slice(0, 19).replace("T", " ") + "Z" : "–");

export function plain(value) {
  if (value === null || value === undefined) return "–";
  if (isNumber(value)) return String(+value.toPrecision(6));
  if (Array.isArray(value)) return value.map(plain).join(", ") || "–";
  if (typeof value === "object") return Object.entries(value).map(([k, v]) => k + " " + plain(v)).join(" · ");
  return String(value);
}

export const words = (name) => name.replaceAll("_", " ");

export function size(bytes) {
  if (bytes < 10240) return bytes + " B";
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (bytes /= 1024; bytes >= 1024 && unit < 3; unit++) bytes /= 1024;
  return bytes.toFixed(1) + " " + units[unit];
}

// A figure with the unit in its name: memory_bytes, run_ms.
export function labelled(name, value) {
  if (isNumber(value) && name.endsWith("_bytes")) return [words(name.slice(0, -6)), size(value)];
  if (isNumber(value) && name.endsWith("_ms")) return [words(name.slice(0, -3)), duration(value)];
  return [words(name), plain(value)];
}
