// Is it fed and healthy, and where do candidates die?
import { ask, askIfAllowed } from "/api.js";
import { bandLine, spark, stackedBars } from "/charts.js";
import { STAGES, clockTime, count, duration, el, isNumber, labelled, percent, plain, region, several, words } from "/dom.js";
import { choice, classTone, figuresOf, section, submissionTable, tile } from "/parts.js";
import { begun, merge } from "/rewards.js";

const WINDOWS = ["5m", "1h", "24h", "7d", "30d"];

// One sentence that answers the first question.
function health(ready, status) {
  if (!ready.ok) return ["bad", "Not ready: " + ready.why];
  if (status && !status.queues) return ["dim", "Ready. What waits and runs is not shown to a token that may only submit."];
  const queues = (status && status.queues) || {};
  const running = (queues.cpu_running || 0) + (queues.gpu_running || 0);
  const lanes = ((status && status.workers) || []).filter((one) => one.kind === "referee");
  const lost = lanes.filter((one) => one.lane === "quarantined").length;
  const oldest = Math.max(-1, ...Object.values(queues.oldest_s || {}).filter(isNumber));
  if (lost) return ["busy", `Ready, but ${lost} of ${lanes.length} devices ${lost === 1 ? "is" : "are"} quarantined.`];
  if (queues.waiting > 0.9 * queues.limit) return ["bad", "Ready, and the queue is nearly full: new work is about to be refused."];
  if (queues.waiting > 0) return ["good", `Ready and fed: ${count(running)} running, ${count(queues.waiting)} waiting, the oldest for ${duration(1000 * Math.max(0, oldest))}.`];
  if (running > 0) return ["good", `Ready: ${count(running)} running, nothing waits.`];
  return ["dim", "Ready, and idle: nothing waits and nothing runs."];
}

function tiles(status, hour, five) {
  const queues = status.queues || {};
  const perMinute = hour ? hour.steps.slice(0, -1).map((step) => step.n) : [];
  const recent = five ? five.n / 5 : null;
  const share = (data, pick) => (data && data.n ? percent(pick(data), data.n) : "–");
  const refused = ((status.http || {}).answers || {});
  return el("div", { class: "tiles" },
    tile(isNumber(recent) ? (recent < 10 ? recent.toFixed(1) : count(Math.round(recent))) : "–", "verdicts a minute, the last five", hour && spark("Verdicts in each minute of the last hour", perMinute)),
    tile(queues.waiting, "waiting of " + count(queues.limit)),
    tile(`${plain(queues.cpu_running)} / ${plain(queues.cpu_slots)}`, "CPU stages running"),
    tile(queues.gpu_running, "running on a device"),
    tile(share(hour, (d) => d.classes.ok || 0), "class ok, the last hour"),
    tile(share(hour, (d) => (d.classes.hack || 0) + (d.classes.policy || 0)), "hack or policy, the last hour"),
    tile(refused[429] || 0, "requests refused since the start (429)"));
}

function funnel(trends) {
  const most = Math.max(1, trends.n);
  return STAGES.map((name) => {
    const s = trends.stages[name];
    const bar = (className, n) => el("i", { class: className, style: { width: (100 * n) / most + "%" } });
    return el("tr", {}, el("th", { scope: "row", text: name }),
      el("td", { class: "wide" }, el("span", { class: "bar", "aria-hidden": "true" }, bar("good", s.pass), bar("bad", s.fail), bar("wait", s.skip))),
      el("td", { class: "number", text: count(s.entered) }), el("td", { class: "number roomy", text: count(s.pass) }),
      el("td", { class: "number roomy", text: count(s.fail) }), el("td", { class: "number roomy", text: count(s.skip) }), el("td", { class: "number strong", text: percent(s.pass, s.entered) }));
  });
}

function funnelCard(trends, choose) {
  const classes = Object.entries(trends.classes).sort((a, b) => b[1] - a[1]);
  return el("div", { class: "card" },
    el("div", { class: "row" }, choice("Window ", WINDOWS, trends.window, choose), el("span", { class: "dim", text: count(trends.n) + " verdicts" })),
    el("div", { class: "scroll bare", tabindex: "0", role: "region", "aria-label": "Funnel", "data-key": "funnel" }, el("table", { class: "funnel" },
      el("caption", { class: "unseen", text: "What entered each stage, and how it left" }),
      el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "stage" }), el("td", {}), ...["entered", "passed", "failed", "skipped", "pass rate"].map((text, i) => el("th", { scope: "col", class: i > 0 && i < 4 ? "number roomy" : "number", text })))),
      el("tbody", {}, funnel(trends)))),
    el("p", { class: "row chips" }, classes.map(([name, n]) =>
      el("a", { class: "pill " + classTone(name), href: "#/submissions?class=" + encodeURIComponent(name), text: name + " " + count(n) }))));
}

// A worker in words; further figures of it are in a fold.
function workerCard(item) {
  const state = item.lane || item.state || "";
  const said = item.kind === "referee" ? refereeText(item) : zygoteText(item);
  const rest = Object.entries(item).filter(([k, v]) => !["name", "kind", "device", "lane", "state", "why", "canary"].includes(k) && v !== null && plain(v) !== "");
  return el("div", { class: "card" },
    el("div", { class: "row" }, el("strong", { text: item.name }), el("span", { class: "grow" }), el("span", { class: "pill " + (["ready", "idle", "busy"].includes(state) ? "good" : "busy"), text: state })),
    item.why && el("p", { class: "bad", text: item.why }), el("p", { text: said }),
    el("details", { "data-key": "worker" + item.name }, el("summary", { text: "All it says" }), el("p", { class: "dim small", text: rest.map(([k, v]) => labelled(k, v).join(" ")).join(" · ") })));
}

const restarts = (item) => (item.starts > 1 ? `, started ${count(item.starts)} times` : "");

function zygoteText(item) {
  const children = Object.entries(item.children || {}).map(([role, n]) => `${count(n)} ${words(role)}`).join(", ");
  return `Forks the processes that run candidates${restarts(item)}. ${children ? "Now: " + children : "None runs now"}.`;
}

function refereeText(item) {
  const { ready = 0, references = 0 } = item.children || {};
  const { hits = 0, loads = 0 } = item.references || {};
  const reused = hits + loads ? `; ${percent(hits, hits + loads)} of ${count(hits + loads)} submissions found theirs loaded` : "";
  return `Checks and times on ${item.device}${restarts(item)}. ${several(references, "reference")} loaded${reused}. ${several(ready, "fresh process", "fresh processes")} ready for the next candidate.`;
}

// The time of a GPU's known kernel relative to its norm, and when it was last checked.
function canaryText(canary) {
  const drift = isNumber(canary.drift) && (canary.drift < 0 ? "−" : "+") + Math.abs(100 * canary.drift).toFixed(1) + " % of its norm";
  const words = [canary.failed ? "failed: " + canary.failed : drift, isNumber(canary.age_s) && "passed " + duration(1000 * canary.age_s) + " ago", canary.why_none && "not by time: " + canary.why_none];
  return "canary: " + (words.filter(Boolean).join(", ") || "none yet");
}

// A GPU with what was seen of it when something was last timed on it.
function gpuCard(gpu) {
  const seen = gpu.seen || {};
  const figure = (value, unit, name) => isNumber(value) && el("span", {}, el("b", { text: Math.round(value) + unit }), " " + name);
  return el("div", { class: "card" },
    el("div", { class: "row" }, el("strong", { text: gpu.name || gpu.device }), el("span", { class: "grow" }),
      el("span", { class: "pill " + (["idle", "busy"].includes(gpu.state) ? "good" : "bad"), text: gpu.state || "unknown" })),
    el("p", { class: "row gpu" }, figure(seen.sm_mhz, " MHz", "clock"), figure(seen.mem_mhz, " MHz", "memory clock"), figure(seen.temp_c, " °C", "temperature"),
      figure(seen.power_w, " W", "power"), seen.throttled ? el("span", { class: "bad", text: "throttled" }) : null),
    el("p", { class: "dim small", text: canaryText(gpu.canary || {}) }),
    el("p", { class: "dim small", text: (seen.at ? "as of the last timing. " : "") + Object.entries(gpu).filter(([k, v]) => !["name", "state", "seen", "peaks", "canary"].includes(k) && v !== null)
      .map(([k, v]) => labelled(k, v).join(" ")).join(" · ") }));
}

// Is the device fed, and when was it not? The stretch that is not over is left out.
export function load(trends) {
  const over = begun(trends.steps.slice(0, -1));
  const together = Math.ceil(over.length / 60);
  const whole = over.slice(over.length % together);
  const steps = merge(whole, whole.length / together);
  if (!steps.some((s) => s.n)) return null;
  const each = trends.step_s * together;
  const used = (s) => s.device_ms / (1000 * each);
  const devices = (v) => +v.toPrecision(2);
  return section("Waiting and devices over time", el("div", { class: "card" }, el("h3", { text: "Mean wait of a verdict in queues" }),
    bandLine("Mean wait of a verdict in queues over time", steps, each, { value: (s) => s.wait_ms, format: duration, className: "accent", height: 120 }),
    el("h3", { text: "Devices in use" }), stackedBars("Devices in use over time, by when verdicts ended", steps, each, [{ name: "devices", className: "good", value: used }], { format: devices, height: 120 }),
    figuresOf("Waiting and devices", [{ name: "from", cell: (s) => clockTime(s.start) }, { name: "verdicts", number: true, cell: (s) => count(s.n) },
      { name: "mean wait", number: true, cell: (s) => duration(s.wait_ms) }, { name: "devices in use", number: true, cell: (s) => String(devices(used(s))) }], steps.filter((s) => s.n))));
}

function queueTable(status) {
  const q = status.queues || {};
  const oldest = q.oldest_s || {};
  const row = (name, key, what) => el("tr", {}, el("th", { scope: "row", text: name }), el("td", { class: "number", text: count((q[key] || {}).interactive) }),
    el("td", { class: "number", text: count((q[key] || {}).batch) }), el("td", { class: "number strong", text: isNumber(oldest[what]) ? duration(1000 * oldest[what]) : "–" }));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Queues", "data-key": "queues" }, el("table", {}, el("caption", { class: "unseen", text: "Queues" }),
    el("thead", {}, el("tr", {}, ["waits for", "interactive", "batch", "oldest"].map((text, i) => el("th", { scope: "col", class: i ? "number" : null, text })))),
    el("tbody", {}, row("a CPU slot", "queued", "queued"), row("a device", "ready", "ready"))));
}

export function overview(root, params, go) {
  const names = ["health", "tiles", "funnel", "load", "machine", "recent"];
  const parts = Object.fromEntries(names.map((name) => [name, el("div", {})]));
  root.append(el("h1", { text: "Overview" }), parts.health, parts.tiles, el("h2", { text: "Where candidates die" }), parts.funnel, parts.load, parts.machine,
    el("h2", { text: "Newest submissions" }), parts.recent);
  const draw = Object.fromEntries(names.map((name) => [name, region(parts[name])]));
  const chosen = WINDOWS.includes(params.get("window")) ? params.get("window") : "1h";

  return async (ready) => {
    const [status, page, trends, hour, five] = await Promise.all([ask("/v1/status"), ask("/v1/submissions?view=brief&limit=8"),
      ...[chosen, "1h", "5m"].map((name) => askIfAllowed("/v1/trends?window=" + name))]);
    const [kind, sentence] = health(ready, status);
    draw.health([kind, sentence], () => el("p", { class: "lead " + kind, text: sentence }));
    if (status.queues) draw.tiles([status.queues, hour, five, (status.http || {}).answers], () => tiles(status, hour, five));
    const untold = "Not told to a token that may only submit.";
    draw.funnel(trends, () => (trends ? funnelCard(trends, (name) => go("#/?window=" + name)) : el("p", { class: "card dim", text: untold })));
    draw.load(trends && trends.steps.slice(0, -1), () => [trends && load(trends)]);
    draw.machine([status.queues, status.gpus, status.workers], () => status.queues && [el("div", { class: "columns" },
      section("Queues", queueTable(status)),
      section("GPUs", (status.gpus || []).length ? status.gpus.map(gpuCard)
        : el("p", { class: "card dim", text: status.state === "starting" ? "Not known yet." : "No GPU: kernels run in Triton's interpreter, and nothing is timed." })),
    ), section("Workers", el("div", { class: "columns" }, (status.workers || []).map(workerCard)))]);
    draw.recent(page.items, () => submissionTable("Newest submissions", page.items, "Nothing has been submitted yet."));
  };
}
