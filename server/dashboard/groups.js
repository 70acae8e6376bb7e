// Groups: the candidates of one prompt, judged together.
import { ask } from "/api.js";
import { count, el, fixed, isNumber, percent, region, speed } from "/dom.js";
import { badge, dataTable, facts, labels, section, taskLink, tile, track, when } from "/parts.js";

function progress(item) {
  const s = item.states;
  const part = (className, n) => el("i", { class: className, style: { width: (100 * n) / Math.max(1, item.size) + "%" } });
  const told = `${s.done} of ${item.size} done` + (s.running ? `, ${s.running} under way` : "") + (s.queued ? `, ${s.queued} waiting` : "") + (s.cancelled ? `, ${s.cancelled} cancelled` : "");
  return el("span", { class: "progress" }, el("span", { class: "bar", role: "img", "aria-label": told, title: told }, part("good", item.ok), part("bad", s.done - item.ok), part("busy", s.running)),
    el("span", { class: "dim small", text: s.done + s.cancelled + " / " + item.size }));
}

export function groups(root, params) {
  const filter = el("div", {}), list = el("div", {}), pages = el("p", { class: "row" });
  root.append(el("h1", { text: "Groups" }), filter, list, pages);
  const drawFilter = region(filter), draw = region(list), drawPages = region(pages);
  return async () => {
    const query = new URLSearchParams({ limit: 30 });
    for (const name of ["run", "step", "cursor"]) if (params.get(name)) query.set(name, params.get(name));
    const page = await ask("/v1/groups?" + query);
    const [run, step, cursor] = ["run", "step", "cursor"].map((name) => params.get(name));
    const address = (at) => { const next = new URLSearchParams(params); next.delete("cursor"); if (at) next.set("cursor", at); return "#/groups" + (next.size ? "?" + next : ""); };
    drawFilter([run, step], () => run && el("p", { class: "row" }, el("span", { class: "dim", text: "Of run " }), el("b", { text: step ? `${run}, step ${step}` : run }), el("a", { class: "button", href: "#/groups", text: "All groups" })));
    draw(page.items, () => dataTable("Groups", [
      { name: "Submitted", cell: (item) => when(item.created, "#/groups/" + item.id) }, { name: "Task", cell: taskLink }, { name: "Done", cell: progress },
      { name: "Class ok of done", number: true, cell: (item) => percent(item.ok, item.states.done) }, { name: "Best reward", number: true, cell: (item) => fixed(item.reward) },
      { name: "Run and step", cell: labels }, { name: "Client", cell: (item) => item.client || "–" },
    ], page.items, run ? "No group of this run." : "No group has been submitted yet."));
    drawPages([page.next, cursor], () => [cursor && el("a", { class: "button", href: address(""), text: "Newest" }),
      page.next && el("a", { class: "button", href: address(page.next), text: "Older" })]);
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
    const isOver = g.state === "done" || g.state === "cancelled";
    const done = g.items.filter((item) => item.state === "done");
    // A place is known once all are done: until then they stand as they were sent.
    const isRanked = isOver && (g.ranking || []).length === g.items.length;
    const order = isRanked ? g.ranking.map((i) => g.items[i]) : g.items;
    const first = g.items[0] || {};
    const correct = done.filter((item) => item.class === "ok");
    const best = correct.filter((item) => item.components && item.components.speedup).toSorted((a, b) => b.components.speedup - a.components.speedup)[0];
    const rewards = done.map((item) => item.reward).filter(isNumber);
    const waiting = g.items.filter((item) => item.state === "queued").length, underWay = g.items.filter((item) => item.state === "running").length;
    const left = [waiting && count(waiting) + " waiting", underWay && count(underWay) + " under way, or waiting for a device"].filter(Boolean).join(", ");
    draw(g, () => [
      el("div", { class: "row" }, el("h1", { text: "Group for " + (first.task_name || "a task") }), el("span", { class: "pill " + (g.state === "done" ? "good" : "busy"), text: g.state })),
      el("p", { class: "dim small" }, g.id, g.metadata && g.metadata.run ? [", run ", labels(g)] : null, left ? ": " + left : ""),
      el("div", { class: "tiles" }, tile(isOver ? g.items.length : `${done.length} / ${g.items.length}`, isOver ? "candidates" : "candidates done"), tile(percent(correct.length, done.length), isOver ? "correct" : "correct so far"),
        tile(rewards.length ? fixed(Math.max(...rewards)) : "–", isOver ? "best reward" : "best reward so far"), tile(speed(best && best.components.speedup), isOver ? "best speed-up" : "best speed-up so far"),
        tile(count(done.filter((item) => item.class === "hack" || item.class === "policy").length), "hack or policy")),
      el("p", { class: "row" }, el("a", { class: "button", href: "#/compare/" + (isRanked ? order : done).slice(0, 4).map((item) => item.id).join(","), text: isRanked ? "Compare the best" : "Compare" })),
      dataTable(isRanked ? "Candidates, the best first" : "Candidates, as they were sent", [
        { name: "Place", number: true, cell: (item) => (isRanked ? String(order.indexOf(item) + 1) : "–") },
        { name: "Candidate", cell: (item) => el("a", { href: "#/submissions/" + item.id, text: "#" + item.group_index }) },
        { name: "Verdict", cell: badge }, { name: "Stages", cell: track, roomy: true }, { name: "Reward", number: true, cell: (item) => fixed(item.reward) },
        { name: "Speed-up", number: true, cell: (item) => speed(item.components && item.components.speedup) },
        { name: "Right at other sizes", number: true, cell: (item) => (item.components && isNumber(item.components.generality) ? percent(item.components.generality, 1) : "–") },
        { name: "Why", wrap: true, cell: (item) => (item.feedback && item.feedback.text ? item.feedback.text.split("\n")[0].slice(0, 200) : "–") },
      ], order),
      section("Metadata", g.metadata && facts(Object.entries(g.metadata)))]);
    ended = isOver;
  };
}
