// One submission: what became of it, why, and how to repeat it.
import { ask, askText, call, hasToken } from "/api.js";
import { strip } from "/charts.js";
import { sourceView } from "/code.js";
import { STAGES, clockTime, duration, el, fixed, isNumber, percent, plain, region, speed, words } from "/dom.js";
import { badge, dataTable, facts, figuresOf, labels, legend, section, stageOutcome, tile } from "/parts.js";

const isLive = (item) => item.state === "queued" || item.state === "running";

function timeline(item) {
  const records = item.stages || [];
  const total = Math.max(1, records.reduce((sum, s) => sum + (s.wait_ms || 0) + (s.run_ms || 0), 0));
  let at = 0;
  const rows = STAGES.map((name) => {
    const s = records.find((one) => one.stage === name) || {};
    const outcome = s.outcome || (stageOutcome(item, name) === "now" ? "running" : "");
    const start = at;
    at += (s.wait_ms || 0) + (s.run_ms || 0);
    const bar = (className, from, ms) => el("i", { class: className, style: { marginLeft: (100 * from) / total + "%", width: (100 * ms) / total + "%" } });
    return el("tr", {}, el("th", { scope: "row", text: name }),
      el("td", { class: outcome === "pass" ? "good" : outcome === "fail" ? "bad" : outcome === "running" ? "busy" : "dim", text: outcome || "–" }),
      el("td", { class: "wide" }, el("span", { class: "bar lane", "aria-hidden": "true" }, bar("wait", start, s.wait_ms || 0), bar(outcome === "fail" ? "bad" : "good", 0, s.run_ms || 0))),
      el("td", { class: "number", text: s.outcome ? duration(s.wait_ms) : "" }), el("td", { class: "number", text: s.outcome ? duration(s.run_ms) : "" }),
      el("td", { class: "dim", text: s.of > 1 ? `${s.done} of ${s.of}` : s.why || "" }));
  });
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stages", "data-key": "stages" }, el("table", { class: "stages" },
    el("caption", { class: "unseen", text: "Stages in order" }),
    el("thead", {}, el("tr", {}, ["stage", "outcome", "", "waited", "ran", "steps"].map((text, i) => (text ? el("th", { scope: "col", class: i === 3 || i === 4 ? "number" : null, text }) : el("td", {}))))),
    el("tbody", {}, rows)));
}

// A table of records: a column for each key that any of them has.
function records(caption, items, keys) {
  const used = keys.filter((key) => (items || []).some((item) => item[key] !== null && item[key] !== undefined));
  return items && items.length && used.length
    ? dataTable(caption, used.map((key) => ({ name: words(key), wrap: key === "note", number: isNumber(items.find((i) => isNumber(i[key]))?.[key]), cell: (item) => plain(key === "note" && item[key] ? item[key].trim().split("\n").at(-1) : item[key]) })), items) : null;
}

// What its plan comes to; why there is none.
function planFacts(plan) {
  if (!plan) return null;
  const names = (list) => (list && list.length ? list.join(", ") : null);
  return facts([["launches", plan.launches], ["operators", plan.operators], ["of a library", names(plan["library"])], ["that compute", names(plan.compute)],
    ["share of the elements that own kernels read and make", isNumber(plan.coverage) ? percent(plan.coverage, 1) : null], ["bytes of state", isNumber(plan.state_bytes) ? plan.state_bytes.toLocaleString("en") : null], ["prepared weights", plan.prepared_weights ? "yes, before the first timed call" : null], ["compiled kernels", plan.kernels], ["configurations dropped", plan.configurations_dropped || null],
    ["no plan, because", plan.error && plan.error.text]]);
}

// What compute-sanitizer saw: of each tool how many errors, or why it did not run, and what it found.
export function sanitized(seen) {
  if (!seen) return [];
  const tools = seen.tools || [];
  return [facts([["not run, because", seen.why], ...tools.map((tool) => [tool.tool, [tool.ran && `errors: ${tool.errors}`, tool.why].filter(Boolean).join("; ")])]),
    records("Findings", tools.flatMap((tool) => (tool.findings || []).map((one) => ({ tool: tool.tool, ...one }))), ["tool", "what", "kernel", "file", "line", "thread", "block", "text", "reports"])];
}

// The steps of its plan, as rows of a table.
const planned = (plan) => (plan?.steps || []).map((step) => ({
  line: step.line, step: step.operator || step.kernel + (step.configurations ? ` (${step.configurations} configurations)` : ""),
  shapes: step.shapes.join(" "), grid: step.grid ? step.grid.map((size) => size ?? "?").join("×") : null,
  "share of the time": isNumber(step.share) ? percent(step.share, 1) : null,
}));

export function sampleCharts(t) {
  const isPairs = t && Array.isArray(t.reference_ns) && Array.isArray(t.candidate_ns) && t.reference_ns.length > 0 &&
    t.reference_ns.length === t.candidate_ns.length && t.reference_ns.concat(t.candidate_ns).every((x) => isNumber(x) && x > 0);
  if (!isPairs) return null;
  const ms = (list) => list.map((x) => x / 1e6);
  const ratios = t.reference_ns.map((x, i) => x / t.candidate_ns[i]);
  const band = isNumber(t.speedup_lo) && isNumber(t.speedup_hi) ? [t.speedup_lo, t.speedup_hi] : null;
  return el("div", { class: "card" },
    legend([["square reference", "reference"], ["candidate", "candidate"]]),
    strip("Milliseconds of one call, in the order they were made", [
      { name: "reference", values: ms(t.reference_ns), className: "reference", shape: "square" },
      { name: "candidate", values: ms(t.candidate_ns), className: "candidate" }], " ms"),
    el("p", { class: "legend dim" }, "Reference over candidate, pair by pair", band ? `; shaded: the 95 % interval of the speed-up, ${speed(band[0])} to ${speed(band[1])}` : ""),
    strip("The ratio of each pair with the interval of the speed-up", [{ name: "pair", values: ratios, className: "candidate" }], "×", { band, middle: t.speedup }),
    figuresOf("Samples", [{ name: "pair", number: true, cell: (r) => r.i }, { name: "reference", number: true, cell: (r) => duration(r.a / 1e6) },
      { name: "candidate", number: true, cell: (r) => duration(r.b / 1e6) }, { name: "ratio", number: true, cell: (r) => speed(r.a / r.b) }],
    t.reference_ns.map((a, i) => ({ i, a, b: t.candidate_ns[i] }))));
}

function mismatch(item) {
  const m = item.correctness && item.correctness.first_mismatch;
  if (!m) return null;
  const at = Array.isArray(m.index) ? "[" + m.index.join(", ") + "]" : "";
  return el("div", { class: "card" }, el("p", {}, `Case “${plain(m.case)}”, output ${plain(m.output)}${at}: expected `, el("b", { class: "good", text: plain(m.expected) }), ", got ", el("b", { class: "bad", text: plain(m.got) }), "."),
    isNumber(m.differing) && isNumber(m.of) && el("p", { class: "dim", text: `${m.differing.toLocaleString("en")} of ${m.of.toLocaleString("en")} values differ (rtol ${plain(m.rtol)}, atol ${plain(m.atol)}).` }),
    isNumber(m.differing) && isNumber(m.of) && el("span", { class: "bar", "aria-hidden": "true" }, el("i", { class: "bad", style: { width: (100 * m.differing) / Math.max(1, m.of) + "%" } })));
}

// For a POSIX shell: one quoted word, and as a JSON text it has no control characters.
const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

function repeat(item, source) {
  // A policy that was changed is named as the one that it was made of, with all its parts.
  const policy = item.policy_on ? { name: item.policy.replace(/\*$/, ""), ...item.policy_on } : item.policy;
  const body = { task: item.task, candidate: source, ...(item.entry_point ? { entry_point: item.entry_point } : {}), policy, reward: item.reward_spec };
  const command = "curl " + quoted(location.origin + "/v1/submissions?wait=60") + " \\\n    -H 'Content-Type: application/json'" +
    (sessionStorage.getItem("verifierd.token") ? " \\\n    -H \"Authorization: Bearer $VERIFIERD_TOKEN\"" : "") + " \\\n    -d " + quoted(JSON.stringify(body));
  const said = el("span", { class: "dim", role: "status" });
  const copy = el("button", { type: "button", "data-key": "copy", text: "Copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(command);
      said.textContent = "Copied.";
    } catch {
      said.textContent = "The browser does not let this page copy: select the text.";
    }
  } });
  return [el("pre", { class: "command", tabindex: "0", "aria-label": "Command to repeat it", "data-key": "command", text: command }), el("p", { class: "row" }, copy, said)];
}

export function clocks(item) {
  const gpu = item.timing && item.timing.gpu;
  if (!gpu) return null;
  const names = { sm_mhz: "clock, MHz", mem_mhz: "memory clock, MHz", temp_c: "temperature, °C", power_w: "power, W" };
  const rows = Object.entries(names).filter(([key]) => Array.isArray(gpu[key])).map(([key, name]) => [name, [...new Set(gpu[key])].map(plain).join(" to ")]);
  return facts([...rows, ["blocks", gpu.blocks], ["blocks void", gpu.void], ["blocks in the background of others", gpu.background], ["blocks throttled", gpu.throttled]]);
}

// The whole feedback, as the model gets it; its first line stands out.
function feedback(item) {
  if (!item.feedback || !item.feedback.text) return null;
  const [line, ...more] = item.feedback.text.split("\n");
  return el("pre", { class: "lead " + (item.class === "ok" ? "good" : item.class === "infra" ? "busy" : "bad"), tabindex: "0", "aria-label": "Feedback", "data-key": "feedback" },
    el("b", { text: line }), more.length > 0 && el("span", { text: "\n" + more.join("\n") }));
}

// Whether the feedback has the error's whole text, as it is or behind "| ": then it stands there alone.
function isTold(item) {
  const lines = ((item.feedback && item.feedback.text) || "").split("\n").map((line) => (line.startsWith("| ") ? line.slice(2) : line));
  return lines.join("\n").includes(item.error.text.trim());
}

// A link that saves a document. No link carries a token: where there is one, the page fetches the document itself.
function saved(path, name, text) {
  const said = el("span", { class: "bad", role: "status" });
  const link = el("a", { href: path, download: name, text, onclick: async (event) => {
    if (!hasToken()) return;
    event.preventDefault();
    try {
      const url = URL.createObjectURL(new Blob([await askText(path)], { type: "application/json" }));
      el("a", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
    } catch (error) {
      said.textContent = error.message;
    }
  } });
  return [link, " ", said];
}

// What was refused is told beside the button; 409: it has ended.
async function cancel(button, id) {
  button.disabled = true;
  const answer = await call("/v1/submissions/" + id, { method: "DELETE" }).catch(() => null);
  if (answer && (answer.ok || answer.status === 409)) return;
  const why = answer ? (await answer.json().catch(() => ({}))).detail || "refused: " + answer.status : "the daemon does not answer";
  button.disabled = false;
  button.after(el("span", { class: "bad", role: "status", text: why }));
}

function head(item) {
  const c = item.components || {};
  const stop = isLive(item) && el("button", { type: "button", "data-key": "cancel", text: "Cancel it", onclick: (event) => cancel(event.target, item.id) });
  return [
    el("div", { class: "row" }, el("h1", {}, item.task_name || "Submission"), badge(item), el("span", { class: "grow" }), stop),
    el("p", { class: "dim small" }, "Submitted " + clockTime(item.created), item.client ? " by " + item.client : "", ", ", el("a", { href: "#/tasks/" + encodeURIComponent(item.task), text: "its task" }),
      item.group ? [", ", el("a", { href: "#/groups/" + item.group, text: "its group" })] : null,
      item.metadata && item.metadata.run ? [", run ", labels(item)] : null),
    el("p", { class: "row" }, el("a", { class: "button", href: `#/compare/${item.id}?with=reference`, text: "Compare with the reference" }),
      el("a", { class: "button", href: `#/compare/${item.id}?with=best`, text: "Compare with the best" }), el("a", { class: "button", href: "#/compare/" + item.id, text: "Compare with another" })),
    el("div", { class: "tiles" }, tile(fixed(item.reward, 4), "reward"),
      tile(speed(c.speedup), isNumber(c.speedup_lo) ? `speed-up, ${speed(c.speedup_lo)} to ${speed(c.speedup_hi)}` : "speed-up"),
      tile(item.failed_at || item.passed_stage || item.stage || "–", item.failed_at ? "failed at" : item.state === "done" ? "passed up to" : "stage"),
      tile(duration((item.stages || []).reduce((sum, s) => sum + (s.run_ms || 0), 0)), "spent on it")),
    feedback(item),
  ];
}

function body(item, source, answer, log) {
  const line = item.error && item.error.line;
  const t = item.timing || {};
  const timed = facts(Object.entries(t).filter(([, v]) => v !== null && typeof v !== "object"));
  return [
    section("Stages", timeline(item)),
    section("First mismatch", mismatch(item)),
    item.error && item.error.text && !isTold(item) && !(item.correctness && item.correctness.first_mismatch) ? section("Error", el("pre", { class: "error", tabindex: "0", "aria-label": "Error", "data-key": "error", text: (item.error.type ? item.error.type + (line ? " at line " + line : "") + "\n" : "") + item.error.text })) : null,
    section("Source", sourceView(source, line ? { line, text: item.error.text.split("\n").find((one) => one.trim()) || "" } : null)),
    section("Samples", sampleCharts(item.timing)),
    section("Whole answer", answer && el("details", { "data-key": "answer" }, el("summary", { text: "What the model wrote, with the source in it" }),
      el("pre", { tabindex: "0", "aria-label": "Whole answer", "data-key": "whole", text: answer }))),
    section("Cases", records("Cases", item.correctness && item.correctness.results, ["name", "outcome", "max_abs", "max_rel", "matched", "against", "note"])),
    section("Plan of one call", planFacts(item.plan), records("Plan of one call", planned(item.plan), ["line", "step", "shapes", "grid", "share of the time"])),
    section("compute-sanitizer", ...sanitized(item.sanitize)),
    section("Compiled kernels", records("Compiled kernels", item.kernels, ["name", "outcome", "registers", "spill_bytes", "shared_bytes", "cubin_bytes"])),
    el("div", { class: "columns" },
      section("Components of the reward", item.components && facts([["kind", item.reward_spec && item.reward_spec.kind + " v" + item.reward_spec.version], ...Object.entries(item.components)])),
      section("Timing", timed), section("Clocks", clocks(item)), section("Environment", item.env && facts(Object.entries(item.env))),
      section("Record", facts(["id", "policy", "flags", "generality", "rule", "cache", "attempts", "priority", "seed", "finished", "metadata"].map((name) => [name, item[name] && typeof item[name] === "object" && !Object.keys(item[name]).length ? null : item[name]])))),
    section("Printed", log && el("pre", { tabindex: "0", "aria-label": "What it printed", "data-key": "log", text: log })),
    section("Run it again", repeat(item, source)),
    el("p", {}, saved("/v1/submissions/" + item.id, item.id + ".json", "The verdict as JSON"),
      item.state === "done" && saved(`/v1/submissions/${item.id}/bundle`, item.id + ".bundle.json", "The bundle: all that it came from, to judge it again")),
  ];
}

export function submission(root, params, go, id) {
  const top = el("div", {}), rest = el("div", {});
  root.append(top, rest);
  const drawTop = region(top), drawRest = region(rest);
  let source, answer, ended;
  return async () => {
    if (ended) return; // a verdict does not change
    const item = await ask("/v1/submissions/" + encodeURIComponent(id));
    source ??= await askText("/v1/submissions/" + item.id + "/source");
    answer ??= await askText("/v1/submissions/" + item.id + "/answer");
    const log = isLive(item) ? "" : await askText("/v1/submissions/" + item.id + "/log");
    drawTop(item, () => head(item));
    drawRest([item, log], () => body(item, source, answer, log));
    ended = !isLive(item);
  };
}

