// The frame: which page is open, when it is drawn anew, whether the daemon still answers, and the token.
import { Refused, ask, hasToken, setToken } from "/api.js";
import { compare } from "/compare.js";
import { el } from "/dom.js";
import { group, groups } from "/groups.js";
import { nodes } from "/nodes.js";
import { overview } from "/overview.js";
import { failures, rewards } from "/rewards.js";
import { run, runs } from "/runs.js";
import { submission } from "/submission.js";
import { submissions } from "/submissions.js";
import { task, tasks } from "/tasks.js";

const POLL_MS = 1500;
const STALE_MS = 5000;

const PAGES = [
  [/^#\/submissions\/([0-9a-f-]{36})$/, submission, "Submission"], [/^#\/submissions$/, submissions, "Submissions"], [/^#\/compare\/?(.*)$/, compare, "Compare"],
  [/^#\/groups\/([0-9a-f-]{36})$/, group, "Group"], [/^#\/groups$/, groups, "Groups"], [/^#\/tasks\/(.+)$/, task, "Task"], [/^#\/tasks$/, tasks, "Tasks"],
  [/^#\/runs\/(.+)$/, run, "Run"], [/^#\/runs$/, runs, "Runs"],
  [/^#\/rewards$/, rewards, "Rewards"], [/^#\/failures$/, failures, "Failures"], [/^#\/nodes$/, nodes, "Nodes"], [/^(?:#\/?)?$/, overview, "Overview"],
];

const byId = (id) => document.getElementById(id);
const go = (address) => { location.hash = address; };
let update = null; // of the open page: fetches and draws
let opened = 0;
let answeredAt = Date.now();
let failing = "";

function open() {
  const [path, query] = location.hash.split("?");
  const root = byId("main");
  opened++;
  for (const link of byId("nav").children) {
    const to = link.getAttribute("href");
    const isHere = to === "#/" ? path === "" || path === "#" || path === "#/" : path.startsWith(to);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const [match, page, title] = PAGES.map(([pattern, made, name]) => [pattern.exec(path), made, name]).find(([found]) => found) || [];
  document.title = (title || "No such page") + " – verifierd";
  const fresh = el("div", {});
  root.replaceChildren(fresh);
  update = null;
  if (!page) {
    fresh.append(el("h1", { text: "No such page" }), el("p", {}, el("a", { href: "#/", text: "The overview" })));
    return;
  }
  let argument = "";
  try {
    argument = decodeURIComponent(match[1] || "");
  } catch {
    argument = match[1]; // a lone %: looked for as it is, and not found
  }
  update = page(fresh, new URLSearchParams(query), go, argument);
  tick();
}

function showReady(ready) {
  const pill = byId("ready");
  const text = ready.ok ? "ready" : ready.ok === false ? "not ready" : "unreachable";
  if (pill.textContent !== text) pill.textContent = text;
  pill.className = "pill " + (ready.ok ? "good" : ready.ok === false ? "busy" : "bad");
}

function showAge() {
  const age = Date.now() - answeredAt;
  const isStale = Boolean(failing) || age > STALE_MS;
  const stale = byId("stale");
  document.body.classList.toggle("is-stale", isStale);
  const text = isStale ? `Stale: ${failing || "no answer"}. What you see is from ${new Date(answeredAt).toISOString().slice(11, 19)}Z.` : "";
  if (stale.textContent !== text) stale.textContent = text;
  stale.hidden = !isStale;
  byId("updated").textContent = isStale ? "" : "updated " + new Date(answeredAt).toISOString().slice(11, 19) + "Z";
}

function showRefusal(error) {
  const mustSign = error.status === 401;
  const sign = byId("sign");
  if (mustSign && sign.hidden) {
    sign.hidden = false;
    byId("token").focus();
  }
  byId("sign-why").textContent = mustSign && hasToken() ? error.message : "";
  if (mustSign) return;
  const root = byId("main").firstElementChild;
  if (!root.querySelector(".refusal")) root.append(el("p", { class: "card refusal bad", role: "alert", text: error.message }));
}

async function askReady() {
  const answer = await fetch("/readyz", { signal: AbortSignal.timeout(STALE_MS) });
  return { ok: answer.ok, why: answer.ok ? "" : (await answer.json().catch(() => ({}))).detail || "unknown" };
}

async function round() {
  const mine = opened;
  try {
    const ready = await askReady();
    showReady(ready);
    if (update) await update(ready);
    if (!byId("version").textContent) byId("version").textContent = "verifierd " + ((await ask("/v1/status")).version || "");
    if (mine !== opened) return;
    byId("sign").hidden = true;
    for (const old of document.querySelectorAll(".refusal")) old.remove();
    failing = "";
    answeredAt = Date.now();
  } catch (error) {
    if (mine !== opened) return;
    if (error instanceof Refused && error.status < 500) {
      failing = "";
      answeredAt = Date.now();
      showRefusal(error);
    } else if (error instanceof Refused) {
      failing = error.message;
    } else if (error instanceof TypeError && /fetch|load failed|network/i.test(error.message) || error.name === "TimeoutError" || error.name === "AbortError") {
      failing = "the daemon does not answer";
      showReady({ ok: null });
    } else {
      failing = "this page has a fault";
      console.error(error);
    }
  }
  showAge();
}

let running = 0;
async function tick() {
  if (document.hidden || running === opened) return; // one round at a time of each opened page
  const mine = opened;
  running = mine;
  await round();
  if (running === mine) running = 0;
}

// --- light and dark ---

const THEMES = ["auto", "light", "dark"];
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = "Theme: " + name;
  localStorage.setItem("verifierd.theme", name);
}
setTheme(THEMES.find((name) => name === localStorage.getItem("verifierd.theme")) || "auto");
byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));

byId("sign").addEventListener("submit", (event) => {
  event.preventDefault();
  const isSent = setToken(byId("token").value.trim());
  byId("token").value = "";
  if (isSent) open();
  else byId("sign-why").textContent = "That is no token: a header could not carry it.";
});
document.querySelector(".skip-link").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
addEventListener("hashchange", () => { open(); scrollTo(0, 0); });
document.addEventListener("visibilitychange", tick);
setInterval(tick, POLL_MS);
setInterval(showAge, 1000);

open();
