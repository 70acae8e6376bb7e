// The list of submissions, with filters that stand in the address.
import { ask } from "/api.js";
import { el, region } from "/dom.js";
import { CLASSES, field, submissionTable } from "/parts.js";

const STATES = ["queued", "running", "done", "cancelled"];
const FILTERS = ["state", "class", "task", "client", "group", "run", "step", "policy_version"];

export function submissions(root, params, go) {
  const address = (change) => {
    const next = new URLSearchParams(params);
    for (const [name, value] of Object.entries(change)) if (value) next.set(name, value); else next.delete(name);
    return "#/submissions" + (next.size ? "?" + next : "");
  };
  const change = (name, value) => go(address({ [name]: value, cursor: "" }));
  const chosen = new Set();
  const compare = el("button", { type: "button", class: "roomy", disabled: true, text: "Compare", onclick: () => go("#/compare/" + [...chosen].join(",")) });
  const list = el("div", {}), pages = el("p", { class: "row" });
  root.append(el("h1", { text: "Submissions" }),
    el("form", { class: "row filters", role: "search", "aria-label": "Filters", onsubmit: (event) => event.preventDefault() },
      field("state", params, change, STATES), field("class", params, change, CLASSES), ...FILTERS.slice(2).map((name) => field(name, params, change)),
      el("span", { class: "grow" }), compare), list, pages);
  const draw = region(list), drawPages = region(pages);

  const select = (item) => {
    const box = el("input", { type: "checkbox", "data-key": "compare" + item.id, "aria-label": "Compare the submission for " + (item.task_name || "a task") + " of " + item.created });
    box.checked = chosen.has(item.id);
    box.addEventListener("change", () => {
      if (box.checked && chosen.size >= 4) box.checked = false; // four at most
      else if (box.checked) chosen.add(item.id);
      else chosen.delete(item.id);
      compare.disabled = chosen.size < 2;
      compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
    });
    return box;
  };

  return async () => {
    const query = new URLSearchParams({ view: "brief", limit: 40 });
    for (const name of [...FILTERS, "cursor"]) if (params.get(name)) query.set(name, params.get(name));
    const page = await ask("/v1/submissions?" + query);
    const isFiltered = FILTERS.some((name) => params.get(name));
    draw(page.items, () => submissionTable("Submissions", page.items, isFiltered ? "Nothing matches these filters." : "Nothing has been submitted yet.", select));
    drawPages([page.next, params.get("cursor")], () => [
      params.get("cursor") && el("a", { class: "button", href: address({ cursor: "" }), text: "Newest" }),
      page.next && el("a", { class: "button", href: address({ cursor: page.next }), text: "Older" })]);
  };
}
