// What several pages show alike.
import { STAGES, ago, clockTime, count, el, fixed, isNumber, labelled, speed, words } from "/dom.js";

export const CLASSES = ["ok", "extract", "syntax", "form", "policy", "import", "compile", "launch", "timeout", "oom", "crash", "shape", "dtype", "nonfinite", "mismatch",
  "nondeterministic", "mutated_input", "out_of_bounds", "hack", "infra"];

export function tone(item) {
  if (item.state !== "done") return item.state === "running" ? "busy" : "dim";
  if (item.class === "ok") return "good";
  if (item.class === "infra") return "busy";
  return item.class === "hack" || item.class === "policy" ? "cheat" : "bad";
}

export const classTone = (name) => tone({ state: "done", class: name });

export const badge = (item) => el("span", { class: "pill " + tone(item), text: item.state === "done" ? words(item.class || "done") : item.state });

export function stageOutcome(item, stage) {
  const record = (item.stages || []).find((one) => one.stage === stage);
  if (record && record.outcome) return record.outcome;
  if (item.failed_at === stage) return "fail";
  if (STAGES.indexOf(stage) <= STAGES.indexOf(item.passed_stage)) return "pass";
  return item.state === "running" && item.stage === stage ? "now" : "";
}

// The five stages as five marks; the words are for users who cannot see them.
export function track(item) {
  const failed = item.failed_at ? "failed at " + item.failed_at : item.passed_stage ? "passed up to " + item.passed_stage : item.stage || "waits";
  return el("span", { class: "track", role: "img", "aria-label": failed, title: failed },
    STAGES.map((stage) => el("i", { class: stageOutcome(item, stage) })));
}

export const taskLink = (item) => el("a", { href: "#/tasks/" + encodeURIComponent(item.task), text: item.task_name || (item.task || "").slice(0, 19), title: item.task });

// Which step of which run it is of; item has the labels, or its metadata has.
export function labels(item) {
  const { run, step } = item.run === undefined ? item.metadata || {} : item;
  return run ? el("a", { href: "#/runs/" + encodeURIComponent(run), text: isNumber(step) ? `${run}, step ${count(step)}` : run }) : "–";
}

export const when = (text, href) => el(href ? "a" : "span", { href, title: clockTime(text), text: ago(text) });

// columns: [{name, cell(item), number, wrap, roomy, cut}]; cell gives a node or a text. On a phone the roomy ones are left
// out, and a cut one has what room the others leave.
export function dataTable(caption, columns, items, none = "None.") {
  if (!items.length) return el("p", { class: "card dim", text: none });
  const look = (column) => ["number", "wrap", "roomy", "cut"].filter((name) => column[name]).join(" ") || null;
  const cell = (column, item) => {
    const content = column.cell(item);
    const isNode = content instanceof Node;
    return el("td", { class: look(column), text: isNode ? null : content }, isNode ? content : null);
  };
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, "data-key": caption }, el("table", {},
    el("caption", { class: "unseen", text: caption }),
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: look(column) }, column.head || column.name)))),
    el("tbody", {}, items.map((item) => el("tr", {}, columns.map((column) => cell(column, item)))))));
}

// The figures of a chart as a table.
export function figuresOf(caption, columns, items) {
  return el("details", { "data-key": caption }, el("summary", { text: "As a table" }), dataTable(caption, columns, items));
}

export function submissionTable(caption, items, none, select) {
  return dataTable(caption, [
    select && { name: "Compare", head: el("span", { class: "unseen", text: "Compare" }), cell: select, roomy: true },
    { name: "Submitted", cell: (item) => when(item.created, "#/submissions/" + item.id) },
    { name: "Task", cell: taskLink, cut: true },
    { name: "Verdict", cell: badge },
    { name: "Stages", cell: track, roomy: true },
    { name: "Reward", number: true, cell: (item) => fixed(item.reward) },
    { name: "Speed-up", number: true, cell: (item) => speed(item.speedup), roomy: true },
    { name: "Run and step", cell: labels, roomy: true },
    items.some((item) => item.policy_version) && { name: "Policy version", cell: (item) => item.policy_version || "–", roomy: true, wrap: true },
    { name: "Client", cell: (item) => item.client || "–", roomy: true },
  ].filter(Boolean), items, none);
}

export function facts(entries) {
  const shown = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return shown.length ? el("dl", { class: "card" }, shown.map(([name, value]) =>
    value instanceof Node ? [el("dt", { text: words(name) }), el("dd", {}, value)]
      : labelled(name, value).map((text, i) => el(i ? "dd" : "dt", { text })))) : null;
}

export const section = (title, ...content) => {
  const shown = content.flat().filter(Boolean);
  return shown.length ? el("section", {}, el("h2", { text: title }), shown) : null;
};

export const tile = (value, name, extra) => el("div", { class: "tile" }, el("b", { text: isNumber(value) ? count(value) : value }), el("span", { class: "dim", text: name }), extra);

// Buttons of which one is pressed.
export function choice(label, names, chosen, choose) {
  return el("div", { class: "choice", role: "group", "aria-label": label }, names.map((name) =>
    el("button", { type: "button", "data-key": label + name, "aria-pressed": String(name === chosen), text: name, onclick: () => choose(name) })));
}

export const legend = (items) => el("p", { class: "legend dim" }, items.map(([className, text]) => el("span", {}, el("i", { class: "key " + className }), text)));

// A filter that stands in the address; options: else any text.
export function field(name, params, change, options) {
  const id = "filter-" + name;
  const value = params.get(name) || "";
  const input = options
    ? el("select", { id }, el("option", { value: "", text: "any" }), options.map((one) => el("option", { value: one, selected: one === value, text: one })))
    : el("input", { id, type: "search", size: { group: 14, step: 5 }[name] || 12, value, placeholder: "any", spellcheck: "false" });
  input.addEventListener("change", () => change(name, input.value.trim()));
  return el("label", { for: id }, words(name), input);
}
