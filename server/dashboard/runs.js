// Training runs: what the labels run and step of submissions come to, side by side, by step and by task.
import { Refused, ask } from "/api.js";
import { heatMap, histogram, lines } from "/charts.js";
import { count, el, fixed, isNumber, percent, region, speed } from "/dom.js";
import { choice, dataTable, figuresOf, legend, section, tile, when } from "/parts.js";

const BESIDE = 6; // runs in one chart
const share = (value) => (isNumber(value) ? percent(value, 1) : "–");
const percents = (v) => Math.round(100 * v) + "%";
const CURVES = [
  { key: "reward", name: "Mean reward", format: (v) => +v.toFixed(3) }, { key: "correct", name: "Correct", format: percents, top: 1 },
  { key: "hack", name: "Hack or policy", format: percents, top: 1 },
];
const FAST = ["fast_1", "fast_1.5", "fast_2"];
const fastName = (key) => "Faster than " + key.slice(5) + "×";

// A page that sums up a whole run is asked for less often than the others.
const REST_MS = 10000;
function rested(update) {
  let last = -REST_MS;
  return async () => {
    if (performance.now() < last + REST_MS) return;
    await update();
    last = performance.now();
  };
}

const runLink = (run) => el("a", { href: "#/runs/" + encodeURIComponent(run), text: run });
const stepsOf = (item) => (item.last_step === null ? "–" : item.first_step === item.last_step ? count(item.last_step) : `${count(item.first_step)} to ${count(item.last_step)}`);

// series: [{name, steps}], in the order of their colours.
function curve(series, { key, name, format, top }) {
  const drawn = series.map((one, i) => ({ name: one.name, className: "run-" + i, points: one.steps.map((s) => [s.step, s[key]]) }));
  if (!drawn.some((one) => one.points.some(([, value]) => isNumber(value)))) return el("p", { class: "card dim", text: name + ": nothing to draw. Without a GPU nothing is timed, and without a step there is no curve." });
  return el("div", { class: "card" }, el("h3", { text: name }), lines(name + " against step", drawn, { format, top }));
}

function curves(series, fast, choose) {
  const chosen = { key: fast, name: fastName(fast), format: percents, top: 1 };
  return [
    legend(series.map((one, i) => ["line run-" + i, one.name])),
    el("div", { class: "row" }, el("span", { class: "dim", text: "fast_p" }), choice("fast_p ", FAST, fast, choose)),
    el("div", { class: "columns" }, [...CURVES, chosen].map((one) => curve(series, one))),
    figuresOf("Curves", [
      { name: "run", cell: (row) => row.name }, { name: "step", number: true, cell: (row) => count(row.step) }, { name: "verdicts", number: true, cell: (row) => count(row.n) },
      { name: "reward", number: true, cell: (row) => fixed(row.reward) }, { name: "correct", number: true, cell: (row) => share(row.correct) },
      ...FAST.map((key) => ({ name: key, number: true, cell: (row) => share(row[key]) })), { name: "hack or policy", number: true, cell: (row) => share(row.hack) },
    ], series.flatMap((one) => one.steps.map((s) => ({ ...s, name: one.name })))),
  ];
}

// None of a run that has no verdict yet.
async function stepsOfRun(run) {
  try {
    return (await ask("/v1/runs/" + encodeURIComponent(run))).steps;
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return [];
    throw error;
  }
}

export function runs(root, params, go) {
  const list = el("div", {}), pages = el("p", { class: "row" }), side = el("div", {});
  root.append(el("h1", { text: "Runs" }), el("p", { class: "dim", text: "Of submissions that say their run in metadata. Tick runs to see them side by side." }), side, list, pages);
  const draw = region(list), drawPages = region(pages), drawSide = region(side);
  const fast = FAST.includes(params.get("fast")) ? params.get("fast") : "fast_1";
  const address = (chosen, more) => {
    const next = new URLSearchParams(params);
    next.delete("run");
    for (const run of chosen) next.append("run", run);
    for (const [name, value] of Object.entries(more || {})) if (value) next.set(name, value); else next.delete(name);
    return "#/runs" + (next.size ? "?" + next : "");
  };
  return rested(async () => {
    const cursor = params.get("cursor");
    const page = await ask("/v1/runs?limit=30" + (cursor ? "&cursor=" + encodeURIComponent(cursor) : ""));
    const told = params.getAll("run").slice(0, BESIDE);
    const chosen = told.length ? told : page.items.slice(0, 3).map((item) => item.run);
    const series = await Promise.all(chosen.map(async (run) => ({ name: run, steps: await stepsOfRun(run) })));
    drawSide(series, () => (series.length ? section("Side by side", curves(series, fast, (name) => go(address(told, { fast: name })))) : null));
    const tick = (item) => {
      const box = el("input", { type: "checkbox", "data-key": "run" + item.run, "aria-label": "Show " + item.run });
      box.checked = chosen.includes(item.run);
      box.disabled = !box.checked && chosen.length >= BESIDE;
      box.addEventListener("change", () => go(address(box.checked ? [...chosen, item.run] : chosen.filter((run) => run !== item.run))));
      return box;
    };
    draw([page.items, chosen], () => dataTable("Runs", [
      { name: "Show", head: el("span", { class: "unseen", text: "Show" }), cell: tick }, { name: "Run", wrap: true, cell: (item) => runLink(item.run) },
      { name: "Reward", number: true, cell: (item) => fixed(item.reward) }, { name: "Correct", number: true, cell: (item) => share(item.correct) },
      { name: "fast_1", number: true, cell: (item) => share(item.fast_1) }, { name: "Hack or policy", number: true, cell: (item) => share(item.hack) },
      { name: "Best speed-up", number: true, cell: (item) => speed(item.speedup) }, { name: "Steps", number: true, cell: stepsOf },
      { name: "Verdicts", number: true, cell: (item) => count(item.n) }, { name: "Last verdict", cell: (item) => when(item.last) },
    ], page.items, "No submission says its run. Send metadata {\"run\": \"…\", \"step\": 3} with each, as verifierd_client does."));
    drawPages([page.next, cursor], () => [cursor && el("a", { class: "button", href: address(told, { cursor: "" }), text: "Newest" }),
      page.next && el("a", { class: "button", href: address(told, { cursor: page.next }), text: "Older" })]);
  });
}

// --- one run ---

function speedups(bins) {
  const name = (bin) => (bin.above === null ? "≤ " + bin.to : bin.to === null ? "> " + bin.above : bin.above + "–" + bin.to);
  const items = bins.map((bin) => ({ name: name(bin), value: bin.n, className: bin.above !== null && bin.above >= 1 ? "good" : "bad" }));
  if (!items.some((item) => item.value)) return el("p", { class: "card dim", text: "Nothing was timed: there is no speed-up to count." });
  return el("div", { class: "card" }, histogram("How many correct answers were how many times as fast as the reference", items, { format: count }),
    figuresOf("Speed-ups", [{ name: "times as fast", cell: (item) => item.name }, { name: "answers", number: true, cell: (item) => count(item.value) }], items));
}

const MEASURES = {
  correct: { of: (s) => s.correct, shade: (v) => v, told: share },
  reward: { of: (s) => s.reward, shade: (v) => v, told: (v) => fixed(v) },
  "speed-up": { of: (s) => s.speedup, shade: (v) => v / 3, told: speed },
};

function tasksByStep(found, measure, chosen, choose, pick) {
  if (!found.items.length) return null;
  const steps = [...new Set(found.items.flatMap((item) => item.steps.map((s) => s.step)))].toSorted((a, b) => a - b);
  const by = MEASURES[measure];
  const rows = found.items.map((item) => ({
    name: item.task_name || item.task.slice(0, 19), key: item.task, isChosen: item.task === chosen,
    cells: steps.map((step) => {
      const s = item.steps.find((one) => one.step === step);
      return s && isNumber(by.of(s)) ? { shade: by.shade(by.of(s)), told: `${by.told(by.of(s))} of ${count(s.n)}` } : null;
    }),
  }));
  const one = found.items.find((item) => item.task === chosen);
  const series = one && [{ name: one.task_name || one.task.slice(0, 19), steps: one.steps }];
  return [
    el("div", { class: "row" }, choice("Colour by ", Object.keys(MEASURES), measure, choose),
      el("span", { class: "dim", text: found.step_width > 1 ? `each column is ${count(found.step_width)} steps` : "each column is a step" })),
    heatMap("Tasks by step", "task", steps, rows, pick),
    one && section("Task " + series[0].name, el("p", { class: "row" }, el("a", { href: "#/tasks/" + encodeURIComponent(one.task), text: "Its page" })),
      el("div", { class: "columns" }, curve(series, CURVES[1]), curve(series, { key: "speedup", name: "Best speed-up", format: (v) => +v.toFixed(2) + "×" }))),
    figuresOf("Tasks", [
      { name: "task", cell: (row) => row.name }, { name: "step", number: true, cell: (row) => count(row.step) }, { name: "verdicts", number: true, cell: (row) => count(row.n) },
      { name: "correct", number: true, cell: (row) => share(row.correct) }, { name: "reward", number: true, cell: (row) => fixed(row.reward) },
      { name: "best speed-up", number: true, cell: (row) => speed(row.speedup) },
    ], found.items.flatMap((item) => item.steps.map((s) => ({ ...s, name: item.task_name || item.task.slice(0, 19) })))),
  ];
}

export function run(root, params, go, name) {
  const part = el("div", {});
  root.append(part);
  const draw = region(part);
  const path = encodeURIComponent(name);
  const measure = Object.hasOwn(MEASURES, params.get("by")) ? params.get("by") : "correct";
  const change = (key, value) => {
    const next = new URLSearchParams(params);
    if (value) next.set(key, value);
    else next.delete(key);
    go("#/runs/" + path + (next.size ? "?" + next : ""));
  };
  const fast = FAST.includes(params.get("fast")) ? params.get("fast") : "fast_1";
  return rested(async () => {
    const [one, tasks] = await Promise.all([ask("/v1/runs/" + path), ask(`/v1/runs/${path}/tasks?limit=50`)]);
    draw([one, tasks], () => [
      el("h1", { text: one.run }),
      el("p", { class: "dim small" }, "Steps " + stepsOf(one) + ", last verdict ", when(one.last), ", ",
        el("a", { href: "#/submissions?run=" + path, text: "its submissions" }), ", ", el("a", { href: "#/groups?run=" + path, text: "its groups" })),
      el("div", { class: "tiles" }, tile(fixed(one.reward), "mean reward"), tile(share(one.correct), "correct"), ...FAST.map((key) => tile(share(one[key]), fastName(key).toLowerCase())),
        tile(share(one.hack), "hack or policy"), tile(speed(one.speedup), "best speed-up"), tile(one.n, one.infra ? `verdicts, ${count(one.infra)} of them our fault` : "verdicts")),
      section("Curves", curves([{ name: one.run, steps: one.steps }], fast, (key) => change("fast", key))),
      section("Tasks by step", tasksByStep(tasks, measure, params.get("task"), (key) => change("by", key), (task) => change("task", task === params.get("task") ? "" : task))),
      section("How fast", speedups(one.speedups)),
    ]);
  });
}
