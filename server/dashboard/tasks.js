// Tasks: the attempts, the best one, and when each record was set.
import { ask } from "/api.js";
import { stepLine } from "/charts.js";
import { sourceView } from "/code.js";
import { clockTime, count, duration, el, fixed, percent, region, speed } from "/dom.js";
import { dataTable, facts, figuresOf, section, tile, when } from "/parts.js";

export function tasks(root, params) {
  const list = el("div", {}), pages = el("p", { class: "row" });
  root.append(el("h1", { text: "Tasks" }), el("p", { class: "dim", text: "The most recently active first." }), list, pages);
  const draw = region(list), drawPages = region(pages);
  return async () => {
    const cursor = params.get("cursor");
    const page = await ask("/v1/leaderboard?limit=50" + (cursor ? "&cursor=" + encodeURIComponent(cursor) : ""));
    draw(page.items, () => dataTable("Tasks", [
      { name: "Task", cell: (item) => el("a", { href: "#/tasks/" + encodeURIComponent(item.task), text: item.task_name || item.task.slice(0, 19) }) },
      { name: "Level", number: true, cell: (item) => (item.level === null ? "–" : String(item.level)) },
      { name: "Best speed-up", number: true, cell: (item) => speed(item.speedup) }, { name: "Best reward", number: true, cell: (item) => fixed(item.reward) },
      { name: "Verdicts", number: true, cell: (item) => count(item.n) },
      { name: "Correct", number: true, cell: (item) => percent(item.ok, item.n) }, { name: "Hack or policy", number: true, cell: (item) => percent(item.cheats, item.n) },
      { name: "Last verdict", cell: (item) => when(item.last) },
    ], page.items, "No task has a verdict yet."));
    drawPages([page.next, cursor], () => [cursor && el("a", { class: "button", href: "#/tasks", text: "First page" }),
      page.next && el("a", { class: "button", href: "#/tasks?cursor=" + encodeURIComponent(page.next), text: "More" })]);
  };
}

function records(board) {
  if (!board.records.length) return el("p", { class: "card dim", text: "Nothing was timed: there is no speed-up to follow." });
  const points = board.records.map((r) => ({ at: Date.parse(r.finished), value: r.speedup, href: "#/submissions/" + r.id, name: `${speed(r.speedup)} on ${clockTime(r.finished)}` }));
  return el("div", { class: "card" }, stepLine("Best speed-up over time; the dashed line is the reference", points, { format: (v) => +v.toFixed(2) + "×" }),
    figuresOf("When the best was beaten", [{ name: "when", cell: (r) => clockTime(r.finished) }, { name: "speed-up", number: true, cell: (r) => speed(r.speedup) },
      { name: "submission", cell: (r) => el("a", { href: "#/submissions/" + r.id, text: r.id.slice(-8) }) }], board.records));
}

function baselines(items) {
  const seen = new Map();
  for (const item of items) if (item.reference_ms !== null) seen.set(item.gpu || "unknown", [...(seen.get(item.gpu || "unknown") || []), item.reference_ms]);
  const rows = [...seen].map(([gpu, ms]) => [gpu, `${duration(ms.toSorted((a, b) => a - b)[ms.length >> 1])} (median beside ${ms.length} of these)`]);
  return rows.length ? facts(rows) : null;
}

export function task(root, params, go, id) {
  const part = el("div", {});
  root.append(part);
  const draw = region(part);
  let known;
  return async () => {
    const board = await ask(`/v1/tasks/${encodeURIComponent(id)}/leaders?limit=20`);
    known ??= await ask("/v1/tasks/" + encodeURIComponent(id));
    draw(board, () => [
      el("div", { class: "row" }, el("h1", { text: board.task_name || "Task" }), (known.flags || []).map((flag) => el("span", { class: "pill busy", text: flag }))),
      el("p", { class: "dim small", text: board.task }),
      el("div", { class: "tiles" }, tile(speed(board.speedup), "best speed-up"), tile(fixed(board.reward), "best reward"), tile(board.n, "verdicts"), tile(percent(board.ok, board.n), "correct"),
        tile(percent(board.cheats, board.n), "hack or policy")),
      section("Best speed-up over time", records(board)),
      section("Leaderboard", dataTable("Leaderboard", [
        { name: "Place", number: true, cell: (item) => (item.speedup === null ? "–" : String(board.items.indexOf(item) + 1)) },
        { name: "Submission", cell: (item) => el("a", { href: "#/submissions/" + item.id, text: item.id.slice(-8) }) },
        { name: "Speed-up", number: true, cell: (item) => speed(item.speedup) },
        { name: "95 % interval", cell: (item) => (item.speedup_lo === null ? "–" : speed(item.speedup_lo) + " to " + speed(item.speedup_hi)) },
        { name: "Time", number: true, cell: (item) => duration(item.candidate_ms) }, { name: "Reference", number: true, cell: (item) => duration(item.reference_ms) },
        { name: "Reward", number: true, cell: (item) => fixed(item.reward) }, { name: "GPU", cell: (item) => item.gpu || "–" }, { name: "Client", cell: (item) => item.client || "–" }, { name: "When", cell: (item) => when(item.finished) },
      ], board.items, "No candidate was correct yet.")),
      el("p", { class: "row" }, board.items.length > 1 && el("a", { class: "button", href: "#/compare/" + board.items.slice(0, 4).map((item) => item.id).join(","), text: "Compare the best" }),
        el("a", { class: "button", href: "#/submissions?task=" + encodeURIComponent(board.task), text: "All its submissions" })),
      section("Baseline", baselines(board.items)),
      section("Reference", sourceView(known.reference || "", null)),
    ]);
  };
}
