// Is the reward moving, and is it being gamed? And why do candidates fail?
import { ask } from "/api.js";
import { bandLine, histogram, roundUp, stackedBars } from "/charts.js";
import { clockTime, count, el, fixed, isNumber, percent, region, several, words } from "/dom.js";
import { CLASSES, choice, classTone, dataTable, field, figuresOf, legend, section, tile, when } from "/parts.js";

const BINS = ["< 0", "0", ".1", ".2", ".3", ".4", ".5", ".6", ".7", ".8", ".9", "≥ 1"];

// The reward below which a share q of a step's lies, straight within its tenth; null: none has a reward.
export function quantile(step, q) {
  const n = step.rewards.reduce((a, b) => a + b, 0);
  if (!n) return null;
  let left = q * n;
  for (let i = 0; i < step.rewards.length; i++) {
    if (left <= step.rewards[i]) return i === 0 ? 0 : i === step.rewards.length - 1 ? 1 : (i - 1 + left / step.rewards[i]) / 10;
    left -= step.rewards[i];
  }
  return 1;
}

// Neighbours together, so that few steps are drawn where many would be noise.
export function merge(steps, most) {
  const each = Math.ceil(steps.length / most);
  const out = [];
  for (let i = 0; i < steps.length; i += each) {
    const part = steps.slice(i, i + each);
    const sum = (pick) => part.reduce((total, step) => total + pick(step), 0);
    const rewarded = (step) => step.rewards.reduce((a, b) => a + b, 0);
    const n = sum(rewarded);
    out.push({ start: part[0].start, n: sum((s) => s.n), ok: sum((s) => s.ok), hack: sum((s) => s.hack), policy: sum((s) => s.policy), infra: sum((s) => s.infra),
      device_ms: sum((s) => s.device_ms), wait_ms: sum((s) => s.n) ? sum((s) => (s.wait_ms ?? 0) * s.n) / sum((s) => s.n) : null,
      reward: n ? sum((s) => (s.reward ?? 0) * rewarded(s)) / n : null, rewards: part[0].rewards.map((_, k) => sum((s) => s.rewards[k])) });
  }
  return out;
}

const STEPS_MAX = 60;
const STEPS_LEAST = 8;

// From where there is something to see: a daemon that began lately has an empty past.
export function begun(steps) {
  const first = steps.findIndex((step) => step.n > 0);
  return steps.slice(Math.max(0, Math.min(first - 1, steps.length - STEPS_LEAST)));
}

function charts(trends) {
  const steps = merge(begun(trends.steps), STEPS_MAX);
  const share = (s, n) => (s.n ? (100 * n) / s.n : 0);
  const bins = BINS.map((name, i) => ({ name, value: trends.steps.reduce((sum, s) => sum + s.rewards[i], 0), className: i === 0 ? "bad" : "accent" }));
  const percents = (v) => Math.round(v) + "%";
  const means = steps.map((s) => s.reward).filter(isNumber);
  const low = Math.min(0, ...means), high = Math.max(1, ...means); // kinds of reward differ in what they may be
  return [
    section("Reward over time", el("div", { class: "card" }, legend([["line accent", "mean"], ["band accent", "the middle half (by tenths)"]]),
      bandLine("Mean reward over time, with its middle half", steps, trends.step_s, { value: (s) => s.reward, lo: (s) => quantile(s, 0.25) ?? s.reward, hi: (s) => quantile(s, 0.75) ?? s.reward, top: high > 1 ? roundUp(high) : 1, least: low < 0 ? -roundUp(-low) : 0, className: "accent", format: (v) => v.toFixed(2) }))),
    section("Share of cheats beside it", el("div", { class: "card" }, legend([["cheat", "hack"], ["policy", "policy"]]),
      stackedBars("Share of verdicts of class hack and of class policy over time", steps, trends.step_s, [
        { name: "hack", className: "cheat", value: (s) => share(s, s.hack) }, { name: "policy", className: "policy", value: (s) => share(s, s.policy) }], { format: percents, height: 120 }))),
    section("Verdicts over time", el("div", { class: "card" }, legend([["good", "class ok"], ["bad", "wrong or broken"], ["cheat", "hack or policy"], ["busy", "our fault (infra)"]]),
      stackedBars("Verdicts over time by kind", steps, trends.step_s, [
        { name: "class ok", className: "good", value: (s) => s.ok }, { name: "wrong or broken", className: "bad", value: (s) => s.n - s.ok - s.hack - s.policy - s.infra },
        { name: "hack or policy", className: "cheat", value: (s) => s.hack + s.policy }, { name: "infra", className: "busy", value: (s) => s.infra }], { format: count }))),
    section("How rewards are spread", el("div", { class: "card" }, histogram("How many rewards lie in each tenth", bins, { format: count }))),
    figuresOf("Rewards and cheats over time", [{ name: "from", cell: (s) => clockTime(s.start) }, { name: "verdicts", number: true, cell: (s) => count(s.n) }, { name: "mean reward", number: true, cell: (s) => fixed(s.reward) },
      { name: "class ok", number: true, cell: (s) => percent(s.ok, s.n) }, { name: "hack", number: true, cell: (s) => percent(s.hack, s.n) }, { name: "policy", number: true, cell: (s) => percent(s.policy, s.n) }], steps.filter((s) => s.n)),
  ];
}

// This half of the window against the one before: is it moving?
function moved(trends) {
  const half = trends.steps.length >> 1;
  const [before, after] = [trends.steps.slice(0, half), trends.steps.slice(half)].map((part) => merge(part, 1)[0]);
  const cheats = (s) => (s && s.n ? (s.hack + s.policy) / s.n : null);
  const change = (a, b, told) => (a === null || b === null || a === undefined || b === undefined ? "" : `${told(a)} in the first half of the window, ${told(b)} in the second`);
  const all = merge(trends.steps, 1)[0];
  return el("div", { class: "tiles" },
    tile(fixed(all.reward), "mean reward", el("p", { class: "small dim", text: change(before && before.reward, after && after.reward, (v) => v.toFixed(3)) })),
    tile(percent(all.hack + all.policy, all.n), "hack or policy", el("p", { class: "small dim", text: change(cheats(before), cheats(after), (v) => percent(v, 1)) })),
    tile(percent(all.ok, all.n), "class ok"), tile(all.n, "verdicts"));
}

export function rewards(root, params, go) {
  const part = el("div", {});
  const window = ["1h", "24h", "7d", "30d"].includes(params.get("window")) ? params.get("window") : "24h";
  root.append(el("div", { class: "row" }, el("h1", { text: "Rewards" }), el("span", { class: "grow" }), choice("Window ", ["1h", "24h", "7d", "30d"], window, (name) => go("#/rewards?window=" + name))), part);
  const draw = region(part);
  return async () => {
    const trends = await ask("/v1/trends?window=" + window);
    draw(trends, () => (trends.n ? [moved(trends), charts(trends)] : el("p", { class: "card dim", text: "No verdict in this window." })));
  };
}

const WINDOWS = ["24h", "7d", "30d"];

export function failures(root, params, go) {
  const told = el("div", {}), list = el("div", {});
  const window = WINDOWS.includes(params.get("window")) ? params.get("window") : "24h";
  const change = (name, value) => {
    const next = new URLSearchParams(params);
    if (value) next.set(name, value);
    else next.delete(name);
    go("#/failures" + (next.size ? "?" + next : ""));
  };
  root.append(el("div", { class: "row" }, el("h1", { text: "Failures" }), el("span", { class: "grow" }), choice("Window ", WINDOWS, window, (name) => change("window", name))),
    el("form", { class: "row filters", role: "search", "aria-label": "Filters", onsubmit: (event) => event.preventDefault() },
      field("class", params, change, CLASSES.filter((name) => name !== "ok")), ...["task", "run"].map((name) => field(name, params, change))), told, list);
  const drawTold = region(told), draw = region(list);
  return async () => {
    const query = new URLSearchParams({ window, limit: 100 });
    for (const name of ["class", "task", "run"]) if (params.get(name)) query.set(name, params.get(name));
    const found = await ask("/v1/failures?" + query);
    const shown = found.items.reduce((sum, item) => sum + item.n, 0);
    const most = Math.max(1, ...found.items.map((item) => item.n));
    drawTold([found.n, found.kinds, shown], () => el("p", { class: "dim", text: `${several(found.n, "failure")} of ${several(found.kinds, "kind")}, by class, stage and cause; # stands for a number.` +
      (found.kinds > found.items.length ? ` Shown: the ${found.items.length} most frequent, with ${percent(shown, found.n)} of the failures.` : "") }));
    const address = (item) => "#/submissions?" + new URLSearchParams({ class: item.class, ...Object.fromEntries(["task", "run"].filter((name) => params.get(name)).map((name) => [name, params.get(name)])) });
    draw(found.items, () => dataTable("Failures", [
      { name: "How often", cell: (item) => el("span", { class: "progress" }, el("span", { class: "bar roomy", "aria-hidden": "true" }, el("i", { class: "bad", style: { width: (100 * item.n) / most + "%" } })), el("span", { text: `${count(item.n)} (${percent(item.n, found.n)})` })) },
      { name: "Class", cell: (item) => el("a", { class: "pill " + classTone(item.class), href: address(item), text: words(item.class) }) },
      { name: "Stage", cell: (item) => item.failed_at || "–", roomy: true },
      { name: "Cause", wrap: true, cell: (item) => el("code", { text: item.message === null ? "(new causes, after two hours had 512 of cause, task and run)" : item.message }) },
      { name: "Example", cell: (item) => el("a", { href: "#/submissions/" + item.example, text: "the last one" }) },
      { name: "First", cell: (item) => when(item.first), roomy: true }, { name: "Last", cell: (item) => when(item.last), roomy: true },
    ], found.items, params.size ? "Nothing matches these filters." : "Nothing failed in this window."));
  };
}
