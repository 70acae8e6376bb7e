// Two to four candidates side by side: what they are worth, their times, and how their texts differ.
import { ask, askText } from "/api.js";
import { boxes } from "/charts.js";
import { diffView, painted } from "/code.js";
import { duration, el, fixed, plain, region, speed } from "/dom.js";
import { badge, dataTable, figuresOf, section, taskLink, track } from "/parts.js";

const MOST = 4;
const name = (i) => String.fromCharCode(65 + i);

function verdicts(items) {
  return dataTable("The candidates", [
    { name: "", head: el("span", { class: "unseen", text: "Name" }), cell: (one) => el("a", { href: "#/submissions/" + one.item.id, text: name(one.i) + ": " + one.item.id.slice(-8) }) },
    { name: "Task", cell: (one) => taskLink(one.item) }, { name: "Verdict", cell: (one) => badge(one.item) }, { name: "Stages", cell: (one) => track(one.item) },
    { name: "Reward", number: true, cell: (one) => fixed(one.item.reward) },
    { name: "Speed-up", number: true, cell: (one) => speed(one.item.components && one.item.components.speedup) },
    { name: "Time", number: true, cell: (one) => duration(one.item.timing && one.item.timing.candidate_ms) },
    { name: "Registers", number: true, cell: (one) => plain((one.item.kernels || []).map((k) => k.registers)) },
  ], items);
}

function times(items) {
  const timed = items.filter((one) => one.item.timing && Array.isArray(one.item.timing.candidate_ns) && one.item.timing.candidate_ns.length);
  if (!timed.length) return el("p", { class: "card dim", text: "None of them was timed." });
  const rows = timed.map((one) => ({ name: name(one.i), values: one.item.timing.candidate_ns.map((x) => x / 1e6), className: "candidate" }));
  const first = timed[0].item.timing.reference_ns;
  const all = [{ name: "reference", values: first.map((x) => x / 1e6), className: "reference" }, ...rows];
  const middle = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
  return el("div", { class: "card" }, boxes("Milliseconds of a call: least, quartiles, median, greatest", all, " ms"),
    figuresOf("Times", [{ name: "candidate", cell: (row) => row.name }, { name: "least", number: true, cell: (row) => duration(Math.min(...row.values)) },
      { name: "median", number: true, cell: (row) => duration(middle(row.values)) }, { name: "greatest", number: true, cell: (row) => duration(Math.max(...row.values)) }], all));
}

export function compare(root, params, go, list) {
  const ids = [...new Set(list.split(",").filter((id) => /^[0-9a-f-]{36}$/.test(id)))].slice(0, MOST);
  const add = el("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const id = input.value.trim().split("/").at(-1);
    if (/^[0-9a-f-]{36}$/.test(id)) go("#/compare/" + [...ids, id].join(","));
    else said.textContent = "That is not the id of a submission.";
  } });
  const input = el("input", { id: "add-id", size: 38, spellcheck: "false", placeholder: "id or address of a submission" });
  const said = el("span", { class: "dim", role: "status" });
  add.append(el("label", { for: "add-id" }, "Add", input), el("button", { type: "submit", text: "Compare" }), said);
  const part = el("div", {});
  root.append(el("h1", { text: "Compare" }), ids.length < MOST ? add : el("p", { class: "dim", text: "Four at most." }), part);
  const draw = region(part);
  const sources = new Map();
  const beside = params.get("with");
  return async () => {
    const items = await Promise.all(ids.map(async (id, i) => {
      const item = await ask("/v1/submissions/" + id);
      if (!sources.has(id)) sources.set(id, await askText("/v1/submissions/" + id + "/source"));
      return { i, item, source: sources.get(id) };
    }));
    if (beside === "best" && items.length === 1) {
      const best = (await ask(`/v1/tasks/${encodeURIComponent(items[0].item.task)}/leaders?limit=1`)).items[0];
      if (best && best.id !== ids[0]) go(`#/compare/${best.id},${ids[0]}`);
      said.textContent = best ? "It is the best of its task." : "No candidate of its task was correct yet.";
    }
    if (beside === "reference" && items[0] && !sources.has("reference")) sources.set("reference", (await ask("/v1/tasks/" + encodeURIComponent(items[0].item.task))).reference || "");
    const reference = sources.get("reference");
    draw([items, reference], () => [
      items.length ? verdicts(items) : el("p", { class: "card dim", text: "Give two to four submissions: tick them in the list, or add their ids here." }),
      items.length ? section("Times", times(items)) : null,
      items.slice(1).map((one) => section(`How ${name(one.i)} differs from A`, diffView(items[0].source, one.source, `Difference of A and ${name(one.i)}`))),
      reference !== undefined && items.length ? section("How A differs from the reference", diffView(reference, items[0].source, "Difference of the reference and A")) : null,
      items.length === 1 ? section("Source of A", el("pre", { class: "source", tabindex: "0", "aria-label": "Source of A" }, painted(items[0].source).map((parts) => [...parts, "\n"]))) : null,
    ]);
  };
}
