"use strict";

// Whatever came from a candidate is shown through textContent alone: nothing here parses HTML.

const STAGES = ["ast", "compile", "tiny", "full", "timing"];
const POLL_MS = 1000;
const PAGE = 30;

const byId = (id) => document.getElementById(id);
let cursor = null;
let next = null;
let shown = null; // the submission's page that is open: {id, key}

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "text") node.textContent = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const isNumber = (value) => typeof value === "number" && isFinite(value);
const fixed = (value, digits) => (isNumber(value) ? value.toFixed(digits) : "–");
const speed = (value) => (isNumber(value) ? value.toFixed(2) + "×" : "–");

function duration(ms) {
  if (!isNumber(ms)) return "–";
  if (ms < 0.001) return "0 ms";
  if (ms < 1) return +(ms * 1000).toPrecision(3) + " µs";
  if (ms < 1000) return (ms < 100 ? +ms.toPrecision(3) : Math.round(ms)) + " ms";
  return (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";
}

function ago(text) {
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  if (!isNumber(seconds)) return "–";
  if (seconds < 5) return "now";
  if (seconds < 90) return Math.round(seconds) + " s ago";
  if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
  if (seconds < 129600) return Math.round(seconds / 3600) + " h ago";
  return new Date(text).toLocaleDateString();
}

function plain(value) {
  if (value === null || value === undefined) return "–";
  if (isNumber(value)) return String(+value.toPrecision(6));
  if (Array.isArray(value)) return value.map(plain).join(", ") || "–";
  if (typeof value === "object") return Object.entries(value).map(([k, v]) => k + " " + plain(v)).join(" · ");
  return String(value);
}

const words = (name) => name.replaceAll("_", " ");

function size(bytes) {
  if (bytes < 10240) return bytes + " B";
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (bytes /= 1024; bytes >= 1024 && unit < 3; unit++) bytes /= 1024;
  return bytes.toFixed(1) + " " + units[unit];
}

// A figure with its unit, as its name tells it: memory_bytes, run_ms.
function labelled(name, value) {
  if (isNumber(value) && name.endsWith("_bytes")) return [words(name.slice(0, -6)), size(value)];
  if (isNumber(value) && name.endsWith("_ms")) return [words(name.slice(0, -3)), duration(value)];
  return [words(name), plain(value)];
}

// --- calls: with the token that was typed in, where the daemon asks for one. It is forgotten with the tab. ---

const TOKEN = "verifierd.token";

async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = Object.assign({}, options.headers, token ? { Authorization: "Bearer " + token } : {});
  const answer = await fetch(path, Object.assign({}, options, { headers }));
  if (answer.status === 401) byId("sign").hidden = false;
  else if (answer.ok) byId("sign").hidden = true;
  return answer;
}

async function ask(path) {
  const answer = await call(path, { headers: { Accept: "application/json" } });
  if (answer.status === 401 || answer.status === 403) throw new Error((await answer.json()).detail);
  if (!answer.ok) throw new Error(path + ": " + answer.status);
  return answer.json();
}

async function askText(path) {
  const answer = await call(path);
  return answer.ok ? answer.text() : "";
}

function sign() {
  const text = byId("token").value.trim();
  if (/[^\x21-\x7e]/.test(text)) return; // no header could carry it
  sessionStorage.setItem(TOKEN, text);
  byId("token").value = "";
  shown = null;
  tick();
}

// --- the whole daemon ---

function showReady(isReady, why) {
  const pill = byId("ready");
  pill.textContent = isReady ? "ready" : isReady === null ? "unreachable" : "not ready";
  pill.className = "pill " + (isReady ? "good" : isReady === null ? "bad" : "busy");
  byId("why").textContent = why || "";
}

function figure(name, value) {
  const text = isNumber(value) ? value.toLocaleString("en") : plain(value);
  return make("div", { class: "figure" }, make("b", { text }), make("span", { text: words(name) }));
}

function card(item) {
  const titled = ["name", "kind", "id", "device"].find((key) => item[key]);
  const stated = ["state", "mode"].find((key) => item[key]);
  const title = titled ? String(item[titled]) : "worker";
  const state = stated ? String(item[stated]) : "";
  const isEmpty = (value) => value === null || value === "" || plain(value) === "";
  const facts = Object.entries(item).filter(([k, v]) => ![titled, stated, "kind"].includes(k) && !isEmpty(v));
  return make("div", { class: "card" },
    make("div", { class: "row" }, make("strong", { text: title }), make("span", { class: "grow" }),
      state ? make("span", { class: "pill", text: state }) : null),
    make("div", { class: "facts", text: facts.map(([k, v]) => labelled(k, v).join(" ")).join(" · ") }));
}

function showCards(id, items, none) {
  const nodes = (items || []).map(card);
  byId(id).replaceChildren(...(nodes.length ? nodes : [make("div", { class: "card dim", text: none })]));
}

function showFigures(status) {
  const queues = status.queues || {};
  const counts = status.counts || {};
  const shown = [
    ["waiting", queues.waiting], ["in CPU stages", queues.cpu_running], ["on a device", queues.gpu_running],
    ["done", counts.done], ["cancelled", counts.cancelled], ["tasks", counts.tasks],
    ["requests held", (status.http || {}).held],
  ];
  byId("figures").replaceChildren(...shown.filter(([, value]) => isNumber(value)).map(([n, v]) => figure(n, v)));
}

// What entered each stage since the start, and how it left: the bars are parts of what entered the first.
function showFunnel(counts) {
  const stages = (counts || {}).stages || {};
  const most = Math.max(1, ...Object.values(stages).map((s) => s.entered || 0));
  byId("funnel").replaceChildren(...STAGES.filter((name) => stages[name]).map((name) => {
    const s = stages[name];
    const parts = ["pass", "fail", "skip"].map((outcome) => {
      const part = make("i", { class: outcome, title: outcome + " " + s[outcome] });
      part.style.width = (100 * (s[outcome] || 0)) / most + "%";
      return part;
    });
    const mean = s.entered ? ", " + duration(s.run_ms / s.entered) + " each" : "";
    return make("div", { class: "stage" }, make("span", { text: name }),
      make("span", { class: "number", text: (s.entered || 0).toLocaleString("en") }),
      make("span", { class: "bar parts" }, ...parts),
      make("span", { class: "dim", text: s.pass + " passed, " + s.fail + " failed" + mean }));
  }));
  const classes = Object.entries((counts || {}).classes || {}).sort((a, b) => b[1] - a[1]);
  byId("classes").replaceChildren(...classes.map(([name, n]) =>
    make("span", { class: "pill " + tone({ state: "done", class: name }), text: name + " " + n.toLocaleString("en") })));
}

function showStatus(status) {
  showFigures(status);
  showFunnel(status.counts);
  const untold = "Not told to a token that may only submit.";
  showCards("gpus", status.gpus, !status.gpus ? untold : status.state === "starting" ? "Not known yet."
    : "No GPU: kernels run in the interpreter, and nothing is timed.");
  showCards("workers", status.workers, status.workers ? "None yet." : untold);
  byId("version").textContent = status.version || "";
}

// --- the list ---

function stageClass(item, stage) {
  const record = (item.stages || []).find((s) => s.stage === stage);
  if (record && record.outcome) return record.outcome;
  const at = STAGES.indexOf(stage);
  if (item.failed_at === stage) return "fail";
  if (at <= STAGES.indexOf(item.passed_stage)) return "pass";
  if (item.state === "running" && item.stage === stage) return "now";
  return "";
}

function track(item) {
  const title = item.failed_at ? "failed at " + item.failed_at : item.stage || "";
  return make("span", { class: "track", title },
    ...STAGES.map((stage) => make("i", { class: stageClass(item, stage), title: stage })));
}

function tone(item) {
  if (item.state !== "done") return item.state === "running" ? "busy" : "dim";
  return item.class === "ok" ? "good" : item.class === "infra" ? "busy" : "bad";
}

function row(item) {
  return make("tr", {},
    make("td", {}, make("a", { href: "#/submissions/" + item.id, text: ago(item.created), title: item.created })),
    make("td", { class: "task", text: item.task_name || (item.task || "").slice(0, 19), title: item.task }),
    make("td", {}, make("span", { class: "pill " + tone(item), text: item.state === "done" ? item.class : item.state })),
    make("td", {}, track(item)),
    make("td", { class: "number", text: fixed(item.reward, 3) }),
    make("td", { class: "number", text: speed(item.speedup) }),
    make("td", { class: "dim", text: item.client || "" }));
}

async function showList() {
  const state = byId("state").value;
  const query = new URLSearchParams({ view: "brief", limit: PAGE });
  if (state) query.set("state", state);
  if (cursor) query.set("cursor", cursor);
  const page = await ask("/v1/submissions?" + query);
  next = page.next;
  byId("rows").replaceChildren(...page.items.map(row));
  byId("empty").hidden = page.items.length > 0;
  byId("older").hidden = !next;
  byId("newest").hidden = !cursor;
}

// --- one submission ---

function facts(entries) {
  const list = make("dl", {});
  for (const [name, value] of entries)
    if (value !== null && value !== undefined && value !== "")
      list.append(...labelled(name, value).map((text, i) => make(i ? "dd" : "dt", { text })));
  return make("div", { class: "card" }, list);
}

function timeline(item) {
  const stages = item.stages || [];
  const longest = Math.max(1, ...stages.map((s) => s.run_ms || 0));
  return make("div", { class: "card timeline" }, ...STAGES.map((name) => {
    const s = stages.find((one) => one.stage === name) || {};
    const outcome = s.outcome || (stageClass(item, name) === "now" ? "running" : "");
    const bar = make("i", {});
    bar.style.width = (100 * (s.run_ms || 0)) / longest + "%"; // a property, which the page's policy allows
    return make("div", { class: "stage" }, make("span", { text: name }),
      make("span", { class: outcome === "pass" ? "good" : outcome === "fail" ? "bad" : "dim", text: outcome || "–" }),
      make("span", { class: "bar" }, bar),
      make("span", { class: "dim", text: s.outcome ? duration(s.run_ms) + ", waited " + duration(s.wait_ms) : "" }));
  }));
}

function section(title, node) {
  return node ? [make("h2", { text: title }), node] : [];
}

// Rows of objects: one line for each, a column for each key that any of them has.
function table(items, keys) {
  const used = keys.filter((key) => (items || []).some((item) => item[key] !== null && item[key] !== undefined));
  if (!items || !items.length || !used.length) return null;
  const tone = (key, value) => (key !== "outcome" ? null : value === "pass" ? "good" : value === "fail" ? "bad" : "dim");
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...used.map((key) => make("th", { text: labelled(key, 0)[0] })))),
    make("tbody", {}, ...items.map((item) => make("tr", {},
      ...used.map((key) => make("td", { class: key === "note" ? "wrap" : tone(key, item[key]), text: labelled(key, item[key])[1] })))))));
}

function mismatch(item) {
  const m = item.correctness && item.correctness.first_mismatch;
  return m ? facts(Object.entries(m)) : null;
}

function measured(item) {
  const t = item.timing;
  if (!t) return null;
  return facts(Object.entries(t).filter(([, v]) => !Array.isArray(v)).concat(
    item.components ? [["speedup", speed(item.components.speedup)]] : []));
}

// --- the samples of a timing: reference and candidate in the order they were made, and their ratio with its interval ---

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const CHART = { width: 640, height: 110, left: 70, pad: 10 };

// One strip: the series share an axis; `band` is shaded across.
function strip(label, series, unit, band) {
  const every = series.flatMap((one) => one.values).concat(band || []);
  const lo = Math.min(...every);
  const span = Math.max(...every) - lo || Math.abs(lo) || 1;
  const inner = { w: CHART.width - CHART.left - CHART.pad, h: CHART.height - 2 * CHART.pad };
  const y = (value) => CHART.pad + inner.h * (1 - (value - lo) / span);
  const x = (i, n) => CHART.left + (inner.w * (i + 0.5)) / n;
  const dots = series.flatMap((one) => one.values.map((value, i) =>
    svg("circle", { class: one.name, cx: x(i, one.values.length), cy: y(value), r: 2.5 },
      svg("title", { text: one.name + " " + i + ": " + plain(value) + unit }))));
  const shade = band ? [svg("rect", { class: "band", x: CHART.left, width: inner.w, y: y(band[1]), height: Math.max(1, y(band[0]) - y(band[1])) })] : [];
  const ends = [lo, lo + span].map((value) => svg("text", { x: 0, y: y(value) + 4, text: plain(value) + unit }));
  return svg("svg", { viewBox: "0 0 " + CHART.width + " " + CHART.height, role: "img", "aria-label": label }, ...shade, ...ends, ...dots);
}

function samples(t) {
  const isPairs = t && Array.isArray(t.reference_ns) && Array.isArray(t.candidate_ns) && t.reference_ns.length > 0 &&
    t.reference_ns.length === t.candidate_ns.length && t.reference_ns.concat(t.candidate_ns).every((x) => isNumber(x) && x > 0);
  if (!isPairs) return null;
  const ms = (list) => list.map((x) => x / 1e6);
  const ratios = t.reference_ns.map((x, i) => x / t.candidate_ns[i]);
  const band = isNumber(t.speedup_lo) && isNumber(t.speedup_hi) ? [t.speedup_lo, t.speedup_hi] : null;
  return make("div", { class: "card samples" },
    make("div", { class: "dim" }, make("span", { class: "reference", text: "● reference " }),
      make("span", { class: "candidate", text: "● candidate " }), make("span", { text: "milliseconds of one call, in the order they were made" })),
    strip("samples", [{ name: "reference", values: ms(t.reference_ns) }, { name: "candidate", values: ms(t.candidate_ns) }], " ms", null),
    make("div", { class: "dim", text: "reference over candidate; shaded: the 95 % interval of the speed-up" }),
    strip("ratios", [{ name: "ratio", values: ratios }], "×", band));
}

async function showOne(id) {
  const item = await ask("/v1/submissions/" + encodeURIComponent(id));
  const key = JSON.stringify(item);
  if (shown && shown.id === id && shown.key === key) return; // leave the reader's place alone
  const [source, log] = await Promise.all(
    [askText("/v1/submissions/" + id + "/source"), askText("/v1/submissions/" + id + "/log")]);
  if (!location.hash.endsWith(id)) return;
  shown = { id, key };
  const hasSpeedup = item.components && isNumber(item.components.speedup);
  const head = make("div", { class: "row" },
    make("h1", { text: item.task_name || "submission" }),
    make("span", { class: "pill " + tone(item), text: item.state === "done" ? item.class : item.state }),
    make("span", { class: "grow" }),
    make("span", {}, make("b", { text: fixed(item.reward, 4) }), make("span", { class: "dim", text: " reward" })),
    hasSpeedup ? make("span", {}, make("b", { text: speed(item.components.speedup) }),
      make("span", { class: "dim", text: " speedup" })) : null);
  const stop = item.state === "queued" || item.state === "running" ? make("button", { type: "button", text: "Cancel" }) : null;
  if (stop) {
    stop.addEventListener("click", async () => {
      stop.disabled = true;
      await call("/v1/submissions/" + id, { method: "DELETE" });
    });
    head.append(stop);
  }
  byId("one").replaceChildren(
    make("p", {}, make("a", { href: "#/", text: "← all submissions" })), head,
    make("div", { class: "dim", text: id }),
    ...section("Stages", timeline(item)),
    ...section("What it says", item.feedback && item.feedback.text ? make("pre", { text: item.feedback.text }) : null),
    ...section("Error", item.error && item.error.text ? make("pre", { text: item.error.text }) : null),
    ...section("Cases", table(item.correctness && item.correctness.results,
      ["name", "outcome", "max_abs", "max_rel", "matched", "against", "note"])),
    ...section("Compiled kernels", table(item.kernels,
      ["name", "outcome", "registers", "spill_bytes", "shared_bytes", "cubin_bytes"])),
    ...section("Samples", samples(item.timing)),
    make("div", { class: "columns" }, ...[
      section("First mismatch", mismatch(item)),
      section("Timing", measured(item)),
      section("Components", item.components ? facts(Object.entries(item.components)) : null),
    ].filter((nodes) => nodes.length).map((nodes) => make("div", {}, ...nodes))),
    ...section("Record", facts(["policy", "reward_spec", "flags", "generality", "cache", "attempts", "client", "group",
      "created", "finished", "env"].map((name) => [name, item[name]]))),
    ...section("Source", make("pre", { class: "source", text: source })),
    ...section("Printed", log ? make("pre", { text: log }) : null),
    make("p", {}, make("a", { href: "/v1/submissions/" + id, text: "as JSON" })));
}

// --- the rounds ---

async function round() {
  const match = /^#\/submissions\/([0-9a-f-]{36})$/.exec(location.hash);
  byId("home").hidden = Boolean(match);
  byId("one").hidden = !match;
  try {
    const ready = await fetch("/readyz");
    showReady(ready.ok, ready.ok ? "" : (await ready.json()).detail);
    if (match) {
      if (!byId("version").textContent) byId("version").textContent = (await ask("/v1/status")).version || "";
      await showOne(match[1]);
    } else {
      shown = null;
      showStatus(await ask("/v1/status"));
      await showList();
    }
  } catch (error) {
    if (error instanceof TypeError) showReady(null, "the daemon does not answer");
    else byId("why").textContent = error.message;
  }
}

let running = false;
async function tick() {
  if (running || document.hidden) return;
  running = true;
  await round();
  running = false;
}

byId("state").addEventListener("change", () => { cursor = null; tick(); });
byId("token-use").addEventListener("click", sign);
byId("token").addEventListener("keydown", (event) => { if (event.key === "Enter") sign(); });
byId("older").addEventListener("click", () => { cursor = next; tick(); });
byId("newest").addEventListener("click", () => { cursor = null; tick(); });
addEventListener("hashchange", () => { shown = null; byId("one").replaceChildren(); tick(); scrollTo(0, 0); });
document.addEventListener("visibilitychange", tick);
setInterval(tick, POLL_MS);
tick();
