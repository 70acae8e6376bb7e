// Groups: the candidates of one prompt, judged together.
import { ask } from "/api.js";
import { count, el, fixed, percent, region, speed } from "/dom.js";
import { badge, dataTable, taskLink, tile, track, when } from "/parts.js";

function progress(item) {
  const s = item.states;
  const part = (className, n) => el("i", { class: className, style: { width: (100 * n) / Math.max(1, item.size) + "%" } });
  const told = `${s.done} of ${item.size} done` + (s.running ? `, ${s.running} running` : "") + (s.cancelled ? `, ${s.cancelled} cancelled` : "");
  return el("span", { class: "progress" }, el("span", { class: "bar", role: "img", "aria-label": told, title: told }, part("good", item.ok), part("bad", s.done - item.ok), part("busy", s.running)),
    el("span", { class: "dim small", text: s.done + s.cancelled + " / " + item.size }));
}

export function groups(root, params) {
  const list = el("div", {}), pages = el("p", { class: "row" });
  root.append(el("h1", { text: "Groups" }), list, pages);
  const draw = region(list), drawPages = region(pages);
  return async () => {
    const cursor = params.get("cursor");
    const page = await ask("/v1/groups?limit=30" + (cursor ? "&cursor=" + encodeURIComponent(cursor) : ""));
    draw(page.items, () => dataTable("Groups", [
      { name: "Submitted", cell: (item) => when(item.created, "#/groups/" + item.id) }, { name: "Task", cell: taskLink }, { name: "Done", cell: progress },
      { name: "Correct", number: true, cell: (item) => percent(item.ok, item.size) }, { name: "Best reward", number: true, cell: (item) => fixed(item.reward) },
      { name: "Client", cell: (item) => item.client || "–" },
    ], page.items, "No group has been submitted yet."));
    drawPages([page.next, cursor], () => [cursor && el("a", { class: "button", href: "#/groups", text: "Newest" }),
      page.next && el("a", { class: "button", href: "#/groups?cursor=" + page.next, text: "Older" })]);
  };
}

export function group(root, params, go, id) {
  const part = el("div", {});
  root.append(part);
  const draw = region(part);
  let ended;
  return async () => {
    if (ended) return;
    const g = await ask("/v1/groups/" + encodeURIComponent(id));
    const order = (g.ranking || []).length === g.items.length ? g.ranking.map((i) => g.items[i]) : g.items;
    const first = g.items[0] || {};
    const correct = g.items.filter((item) => item.class === "ok");
    const best = correct.filter((item) => item.components && item.components.speedup).toSorted((a, b) => b.components.speedup - a.components.speedup)[0];
    draw(g, () => [
      el("div", { class: "row" }, el("h1", { text: "Group for " + (first.task_name || "a task") }), el("span", { class: "pill " + (g.state === "done" ? "good" : "busy"), text: g.state })),
      el("div", { class: "tiles" }, tile(g.items.length, "candidates"), tile(percent(correct.length, g.items.length), "correct"),
        tile(fixed(Math.max(...g.items.map((item) => item.reward ?? -Infinity))), "best reward"), tile(speed(best && best.components.speedup), "best speed-up"),
        tile(count(g.items.filter((item) => item.class === "hack" || item.class === "policy").length), "hack or policy")),
      el("p", { class: "row" }, el("a", { class: "button", href: "#/compare/" + order.slice(0, 4).map((item) => item.id).join(","), text: "Compare the best" })),
      dataTable("Candidates, the best first", [
        { name: "Place", number: true, cell: (item) => String(order.indexOf(item) + 1) },
        { name: "Candidate", cell: (item) => el("a", { href: "#/submissions/" + item.id, text: "#" + item.group_index }) },
        { name: "Verdict", cell: badge }, { name: "Stages", cell: track }, { name: "Reward", number: true, cell: (item) => fixed(item.reward) },
        { name: "Speed-up", number: true, cell: (item) => speed(item.components && item.components.speedup) },
        { name: "Why", wrap: true, cell: (item) => (item.feedback && item.feedback.text ? item.feedback.text.slice(0, 160) : "–") },
      ], order)]);
    ended = g.state === "done" || g.state === "cancelled";
  };
}
