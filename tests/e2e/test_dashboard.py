"""The dashboard in real headless Chromium, on verdicts of the real funnel."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import corpus
import pytest
import service
from browser import Browser, browser, is_there
from test_trends import token

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_there(), reason="chromium and chromium-driver are not installed"),
]

CANDIDATES = corpus.HERE / "candidates"
SYNTAX = "import triton\n\nclass ModelNew(:\n    pass\n"
MARKUP = "</pre></td><script>window.pwned=1</script><img src=x onerror=window.pwned=2>{{7*7}}<b id=pwned>"
RUN = "grpo/7 ü"
LOOKS = {"light": {}, "dark": {"dark": True}, "narrow": {"narrow": True}}


def accessibility() -> str:
    """The text of axe-core, which a package for Python carries."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-playwright-python is not installed")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text()


@dataclass(frozen=True)
class Scene:
    """A daemon that has judged something of each kind."""

    daemon: service.Daemon
    task: str
    group: str
    honest: str
    mismatch: str
    syntax: str
    hack: str

    @property
    def url(self) -> str:
        return self.daemon.client.url

    def pages(self) -> dict[str, tuple[str, str]]:
        """Every page: its address, and words that stand on it once its data are there."""
        one = f"#/submissions/{self.honest}"
        return {
            "overview": ("#/?window=24h", "verdicts a minute"),
            "submissions": ("#/submissions", "syntax"),
            "filtered": ("#/submissions?class=hack", "hack"),
            "submission": (one, "Run it again"),
            "mismatch": (f"#/submissions/{self.mismatch}", "values differ"),
            "syntax": (f"#/submissions/{self.syntax}", "What the model wrote"),
            "compare": (f"#/compare/{self.honest},{self.mismatch},{self.hack}", "How C differs from A"),
            "groups": ("#/groups", "3 / 3"),
            "nodes": ("#/nodes", "(this one)"),
            "group": (f"#/groups/{self.group}", "Compare the best"),
            "groups of a run": (f"#/groups?run={quote(RUN)}&step=1", "All groups"),
            "runs": ("#/runs", "Side by side"),
            "run": (f"#/runs/{quote(RUN, safe='')}?task={self.task}", "Its page"),
            "beside its reference": (
                f"{one.replace('submissions', 'compare')}?with=reference",
                "differs from the reference",
            ),
            "tasks": ("#/tasks", "relu"),
            "task": (f"#/tasks/{self.task}", "Leaderboard"),
            "rewards": ("#/rewards", "Share of cheats beside it"),
            "failures": (f"#/failures?run={quote(RUN)}&task=relu", "failures of"),
            "reference": ("docs", "HTTP reference"),
            "nowhere": ("#/nowhere", "No such page"),
        }


def time_it(store: Path, submission: str) -> None:
    """Let a stored verdict say what one says that was timed on a GPU, which this machine need not have."""
    with sqlite3.connect(store) as db:
        (text,) = db.execute("SELECT verdict FROM submission WHERE id = ?", (submission,)).fetchone()
        verdict = json.loads(text)
        reference = [1e6 + 1000 * (i % 7) for i in range(50)]
        verdict["timing"] |= {
            "outcome": "measured",
            "reference_ns": reference,
            "candidate_ns": [x / 2 + 900 * (i % 5) for i, x in enumerate(reference)],
            "speedup": 1.99,
            "speedup_lo": 1.98,
            "speedup_hi": 2.0,
            "gpu": {"sm_mhz": [1965, 1980], "temp_c": [41, 44], "power_w": [310, 342], "blocks": 8, "throttled": 0},
        }
        verdict["components"] |= {"timed": 1, "speedup": 1.99, "speedup_lo": 1.98, "speedup_hi": 2.0}
        db.execute("UPDATE submission SET verdict = ? WHERE id = ?", (json.dumps(verdict), submission))
        for table in ("run_sum", "run_step"):
            db.execute(f"UPDATE {table} SET speedup = 1.99, bin_5 = ok WHERE run = ? AND ok = 1", (RUN,))
    db.close()


def candidate(name: str) -> str:
    return corpus.load_candidate(CANDIDATES / name).text


@pytest.fixture(scope="module")
def scene(tasks: dict[str, corpus.Task]) -> Iterator[Scene]:
    with service.directory() as directory:
        daemon = service.Daemon(directory, {"stage_limit_ms": 15000, "tiny_limit_ms": 8000})
        try:
            client = daemon.start()
            task = client.add_task(tasks["relu"].registration())
            sources = [candidate("relu/honest.py"), candidate("relu/last_block_missing.py"), SYNTAX]
            labels = {"run": RUN, "step": 1, "policy_version": "base"}
            candidates = [{"candidate": source} for source in sources[:2]]
            answer = f"Let me think.\n```python\n{SYNTAX}```\n"
            body = {"task": task, "candidates": [*candidates, {"completion": answer}], "client": "ann"}
            group = str(client.expect("POST", "/v1/groups", {**body, "metadata": labels})["id"])
            honest, mismatch, syntax = client.wait(group, kind="groups")["items"]
            assert [x["class"] for x in (honest, mismatch, syntax)] == ["ok", "mismatch", "syntax"]
            copied = client.add_task(tasks["copy"].registration())
            cheat = {"task": copied, "candidate": candidate("copy/returns_its_input.py")}
            hack = client.judge({**cheat, "metadata": {"run": RUN, "step": 2}})
            assert hack["class"] == "hack"
            client.judge({"task": copied, "candidate": SYNTAX, "metadata": {"run": "sft-1", "step": 4}})
            daemon.stop()
            time_it(directory / "store.db", honest["id"])
            daemon.start()
            yield Scene(daemon, task, group, honest["id"], mismatch["id"], syntax["id"], hack["id"])
        finally:
            daemon.kill()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as one:
        yield one


def show(window: Browser, url: str, address: str, words: str) -> None:
    window.open(f"{url}/{address}")
    window.wait_text(words)


def forget(window: Browser) -> None:
    """The page before asks no more, of a daemon that may be gone, and what it complained of is read."""
    window.open("about:blank")
    window.complaints()


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_with_real_data(scene: Scene, window: Browser, look: str) -> None:
    axe = accessibility()
    window.look(**LOOKS[look])
    faults = {}
    forget(window)
    for name, (address, words) in scene.pages().items():
        show(window, scene.url, address, words)
        seen: list[Any] = window.complaints()
        # Wider than the window is only what scrolls within its own box.
        if window.script("return document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            seen.append("the page is wider than the window")
        window.script(axe)
        seen += window.script(
            "return axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes.slice(0, 3).map((n) => n.html)]))"
        )
        if seen:
            faults[name] = seen
    assert faults == {}


def test_a_page_has_everything_from_the_daemon_itself(scene: Scene, window: Browser) -> None:
    window.look()
    show(window, scene.url, "#/", "verdicts a minute")
    loaded = window.script("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert len(loaded) > 10 and all(name.startswith(scene.url + "/") for name in loaded)


def test_one_submission_says_where_it_failed_and_why(scene: Scene, window: Browser) -> None:
    show(window, scene.url, f"#/submissions/{scene.syntax}", "Run it again")
    assert window.script("return document.querySelector('.source .marked .n').dataset.n") == "3"
    assert "class ModelNew(:" in window.script("return document.querySelector('.source .marked').innerText")
    show(window, scene.url, f"#/submissions/{scene.mismatch}", "First mismatch")
    assert "of the candidate" not in window.text()
    feedback = scene.daemon.client.expect("GET", f"/v1/submissions/{scene.mismatch}")["feedback"]["text"]
    assert window.script("return document.querySelector('pre.lead').textContent") == feedback
    assert window.text().count(feedback.splitlines()[0]) == 1
    assert window.script("return document.querySelector('[data-key=error]')") is None


def test_the_whole_answer_is_shown_and_the_candidates_own_words_once(scene: Scene, window: Browser) -> None:
    """Issue 28: newcomer 29."""
    show(window, scene.url, f"#/submissions/{scene.syntax}", "What the model wrote")
    answer = window.script("return document.querySelector('[data-key=whole]').textContent")
    assert answer == f"Let me think.\n```python\n{SYNTAX}```\n"
    quoted = [line[2:] for line in window.script("return document.querySelector('pre.lead').textContent").splitlines()
              if line.startswith("| ")]  # fmt: skip
    assert quoted and window.script("return document.querySelector('pre.error')") is None
    show(window, scene.url, f"#/submissions/{scene.honest}", "Run it again")
    assert "What the model wrote" not in window.text()


def test_what_is_let_off_its_timing_is_counted_as_skipped(scene: Scene, window: Browser) -> None:
    """Issue 28: newcomer 34."""
    window.look()
    show(window, scene.url, "#/?window=24h", "skipped")
    rows = window.script(
        "return [...document.querySelectorAll('.funnel tr')].map((row) => [...row.cells].map((c) => c.innerText))"
    )
    assert rows[0][2:6] == ["entered", "passed", "failed", "skipped"]
    assert [row[5] for row in rows[1:]] == ["0", "0", "0", "0", "1"]


def test_one_that_was_timed_shows_its_samples_with_the_interval(scene: Scene, window: Browser) -> None:
    show(window, scene.url, f"#/submissions/{scene.honest}", "Samples")
    assert window.script("return document.querySelectorAll('.chart g.candidate').length") == 100
    assert window.script("return document.querySelectorAll('.chart .interval').length") == 1
    text = window.text()
    assert "1.99" in text and "1965 to 1980" in text and "Components of the reward" in text


def test_runs_are_drawn_side_by_side_against_their_steps(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/runs", "Side by side")
    names = window.script("return [...document.querySelectorAll('.legend > span')].map((s) => s.textContent)")
    assert sorted(names) == [RUN, "sft-1"]
    titles = window.script("return [...document.querySelectorAll('.chart .dot title')].map((t) => t.textContent)")
    assert {f"{RUN}, step 1: 33%", f"{RUN}, step 2: 100%", "sft-1, step 4: 0%"} <= set(titles)
    window.click("input[aria-label='Show sft-1']")
    window.wait("document.querySelectorAll('.legend > span').length === 1")
    assert window.script("return location.hash") == "#/runs?run=" + quote(RUN, safe="").replace("%20", "+")
    window.script("[...document.querySelectorAll('.choice button')].find((b) => b.textContent === 'fast_2').click()")
    window.wait_text("Faster than 2\u00d7")


def test_a_run_shows_its_tasks_by_step_and_how_fast_they_were(scene: Scene, window: Browser) -> None:
    show(window, scene.url, f"#/runs/{quote(RUN, safe='')}", "Tasks by step")
    cells = (
        "return [...document.querySelectorAll('.heat tbody tr')].map((r) => [...r.children].map((c) => c.textContent))"
    )
    assert window.script(cells) == [["relu", "33% of 3", "none"], ["copy", "none", "0% of 1"]]
    bars = window.script("return [...document.querySelectorAll('.chart g > title')].map((t) => t.textContent)")
    assert "1.5\u20132: 1" in bars and "> 5: 0" in bars
    window.click(".heat tbody tr button")
    window.wait_text("Task relu")
    window.script("[...document.querySelectorAll('.choice button')].find((b) => b.textContent === 'speed-up').click()")
    window.wait("document.querySelector('.heat tbody tr td')?.textContent === '1.99\u00d7 of 3'")
    window.script("location.hash = `#/submissions?run=${arguments[0]}&step=2`", quote(RUN, safe=""))
    window.wait("document.querySelectorAll('tbody tr').length === 1 && document.body.innerText.includes('hack')")


def test_failures_are_narrowed_to_a_task_or_a_run_and_none_is_left_out_unsaid(scene: Scene, window: Browser) -> None:
    causes = "return [...document.querySelectorAll('tbody tr')].map((r) => [1, 3].map((i) => r.children[i].innerText))"
    show(window, scene.url, "#/failures", "4 failures of")
    every = window.script(causes)
    assert sorted(name for name, _ in every)[:2] == ["hack", "mismatch"]
    assert any(text.startswith("SyntaxError: ") for name, text in every if name == "syntax")
    window.script(
        "const s = document.getElementById('filter-run'); s.value = 'sft-1'; s.dispatchEvent(new Event('change'))"
    )
    window.wait("location.hash === '#/failures?run=sft-1'")
    window.wait_text("1 failure of 1 kind")
    assert [name for name, _ in window.script(causes)] == ["syntax"]
    show(window, scene.url, "#/failures?task=relu&class=mismatch", "1 failure of 1 kind")
    href = window.script("return document.querySelector('tbody a.pill').getAttribute('href')")
    assert href == "#/submissions?class=mismatch&task=relu"
    drawn = """
    return Promise.all([import('/rewards.js')]).then(async ([m]) => {
      const item = {class: 'compile', failed_at: 'compile', message: 'm', n: 60, example: 'x', first: null, last: null};
      const real = window.fetch;
      window.fetch = async () => new Response(JSON.stringify({n: 80, kinds: 7, items: [item]}));
      const root = document.createElement('div');
      try { await m.failures(root, new URLSearchParams(), () => {})(); } finally { window.fetch = real; }
      return root.textContent; });
    """
    text = window.script(drawn)
    assert "80 failures of 7 kinds" in text and "the 1 most frequent, with 75% of the failures" in text


def test_a_worker_is_told_of_in_words(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/?window=24h", "Forks the processes that run candidates")
    assert "Checks and times on" in window.text()
    assert "free bytes" not in window.text()  # it stands behind the fold


def test_waiting_and_devices_are_drawn_over_time(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/?window=24h", "verdicts a minute")
    drawn = """
    return import('/overview.js').then((m) => {
      const step = {n: 4, ok: 1, hack: 0, policy: 0, infra: 0, reward: 0.5, rewards: [0], wait_ms: 250};
      step.device_ms = 30000;
      const steps = Array.from({length: 61}, (_, i) => ({...step, start: new Date(i * 60000).toISOString()}));
      return m.load({step_s: 60, steps}).textContent; });
    """
    text = window.script(drawn)
    assert "Mean wait of a verdict in queues" in text and "250 ms" in text and "devices 0.5" in text


def test_clocks_that_did_not_change_are_told_once(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/?window=24h", "verdicts a minute")
    drawn = """
    return import('/submission.js').then((m) =>
      m.clocks({timing: {gpu: {sm_mhz: [1980, 1980], temp_c: [37, 38]}}}).textContent);
    """
    assert window.script(drawn) == "clock, MHz1980temperature, °C37 to 38"


def test_what_compute_sanitizer_saw_is_shown_by_tool(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/?window=24h", "verdicts a minute")
    finding = {"what": "invalid global write", "kernel": "_add", "file": "candidate.py", "line": 7, "thread": "(1,0,0)"}
    tools = [
        {"tool": "memcheck", "ran": True, "errors": 1, "why": None, "findings": [finding | {"reports": 3}]},
        {"tool": "racecheck", "ran": False, "errors": 0, "why": "out of time", "findings": []},
    ]
    drawn = """
    const seen = JSON.parse(arguments[0]);
    return import('/submission.js').then((m) => m.sanitized(seen).filter(Boolean).map((part) => part.textContent));
    """
    facts, findings = window.script(drawn.replace("arguments[0]", json.dumps(json.dumps({"tools": tools}))))
    assert facts == "memcheckerrors: 1racecheckout of time"
    assert "invalid global write_addcandidate.py7(1,0,0)3" in findings
    assert window.script(drawn.replace("arguments[0]", json.dumps(json.dumps({"why": "no GPU", "tools": []})))) == [
        "not run, becauseno GPU"
    ]


def test_a_group_has_no_places_before_all_are_done(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/groups", "3 / 3")
    drawn = """
    return Promise.all([import('/groups.js'), import('/api.js')]).then(async ([m]) => {
      const items = [{id: 'a', state: 'done', class: 'ok', reward: 0.7, group_index: 0},
        {id: 'b', state: 'running', group_index: 1}, {id: 'c', state: 'queued', group_index: 2},
        {id: 'd', state: 'done', class: 'mismatch', reward: 0.3, group_index: 3}];
      const answer = {id: 'g', state: 'running', items, ranking: [0, 3, 1, 2], metadata: {run: 'r', step: 4}};
      const real = window.fetch;
      window.fetch = async () => new Response(JSON.stringify(answer));
      const root = document.createElement('div');
      try { await m.group(root, new URLSearchParams(), () => {}, 'g')(); } finally { window.fetch = real; }
      return root.textContent; });
    """
    text = window.script(drawn)
    assert "2 / 4candidates done" in text and "50%correct so far" in text and "g, run r, step 4" in text
    assert "1 waiting, 1 under way" in text and "as they were sent" in text and "\u2013#0ok" in text


def test_a_candidate_is_beside_its_reference_or_the_best_by_one_click(scene: Scene, window: Browser) -> None:
    show(window, scene.url, f"#/submissions/{scene.mismatch}", "First mismatch")
    window.click("a[href$='with=reference']")
    window.wait_text("How A differs from the reference")
    assert window.script("return document.querySelectorAll('.source .gone, .source .new').length") > 2
    show(window, scene.url, f"#/submissions/{scene.mismatch}", "First mismatch")
    window.click("a[href$='with=best']")
    window.wait("location.hash === arguments[0]", f"#/compare/{scene.honest},{scene.mismatch}")


def test_a_line_feed_at_the_end_is_no_difference_and_a_time_that_is_unknown_no_place(
    scene: Scene, window: Browser
) -> None:
    client = scene.daemon.client
    source = client.get(f"/v1/submissions/{scene.mismatch}/source").body.decode().rstrip("\n")
    task = client.expect("GET", f"/v1/submissions/{scene.mismatch}")["task"]
    one, other = (client.judge({"task": task, "candidate": source + end, "until": "ast"})["id"] for end in ("", "\n"))
    show(window, scene.url, f"#/compare/{one},{other}", "How B differs from A")
    assert window.script("return document.querySelectorAll('.source .gone, .source .new').length") == 0
    show(window, scene.url, f"#/tasks/{task}", "Leaderboard")
    rows = client.expect("GET", f"/v1/tasks/{task}/leaders?limit=20")["items"]
    shown = window.script(
        "return [...document.querySelectorAll('table')].find((t) => t.innerText.includes('95 % interval'))"
        ".querySelectorAll('tbody tr').values().map((row) => row.cells[0].innerText).toArray()"
    )
    assert shown == [str(i) if row["speedup"] else "\N{EN DASH}" for i, row in enumerate(rows, 1)] and rows


def test_the_command_of_a_submission_repeats_it(scene: Scene, window: Browser) -> None:
    for one, expected in ((scene.mismatch, "mismatch"), (scene.syntax, "syntax")):
        show(window, scene.url, f"#/submissions/{one}", "Run it again")
        command = window.script("return document.querySelector('.command').textContent")
        done = subprocess.run(["sh", "-c", f"{command} -sS --noproxy '*'"], capture_output=True, text=True, timeout=120)
        again = json.loads(done.stdout)
        assert (again["class"], again["state"]) == (expected, "done"), done.stderr
        assert again["id"] != one


def test_a_submission_has_a_link_to_its_bundle_with_and_without_a_token(scene: Scene, window: Browser) -> None:
    show(window, scene.url, f"#/submissions/{scene.mismatch}", "The bundle")
    path = window.script("return document.querySelector('a[download$=\".bundle.json\"]').getAttribute('href')")
    assert scene.daemon.client.expect("GET", path)["format"] == "verifierd bundle"
    clicked = """
    sessionStorage.setItem('verifierd.token', 'vd_x');
    const real = window.fetch;
    const said = ({headers}) => new Response(headers.Authorization);
    window.fetch = async (path, options) => (path === arguments[0] ? said(options) : real(path, options));
    URL.createObjectURL = (blob) => { blob.text().then((text) => { window.kept = text; }); return '#'; };
    document.querySelector('a[download$=".bundle.json"]').click();
    HTMLAnchorElement.prototype.click = function () { window.name = this.download; };
    """
    window.script(clicked, path)
    assert window.wait("window.kept") == "Bearer vd_x"
    assert window.script("return window.name") == f"{scene.mismatch}.bundle.json"
    window.script("sessionStorage.clear(); window.name = ''")


def test_what_was_cancelled_has_no_link_to_a_bundle(scene: Scene, window: Browser) -> None:
    client = scene.daemon.client
    one = client.submit({"task": scene.task, "candidate": "while True: pass\n" + candidate("relu/honest.py")})
    assert client.call("DELETE", f"/v1/submissions/{one}").status == 200
    assert client.wait(one)["state"] == "cancelled"
    show(window, scene.url, f"#/submissions/{one}", "The verdict as JSON")
    assert "The bundle" not in window.text()


def test_what_is_submitted_shows_without_a_reload(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/submissions?client=live", "Nothing matches")
    window.script("window.kept = true")
    body = {"task": scene.task, "candidate": candidate("relu/honest.py") + "# live\n", "client": "live"}
    one = scene.daemon.client.submit(body)
    window.wait("document.querySelector(arguments[0])", f"a[href='#/submissions/{one}']")
    window.click(f"a[href='#/submissions/{one}']")
    window.wait_text("Run it again")
    window.wait("document.querySelector('h1 + .pill').textContent === 'ok'", limit_s=120)
    window.wait("document.querySelectorAll('table.stages .good').length >= 4")
    assert window.script("return window.kept") is True


def test_focus_stays_where_it_was_when_a_list_grows(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/submissions?class=syntax", "syntax")
    link = f"#/submissions/{scene.syntax}"
    window.script("document.querySelector(`a[href='${arguments[0]}']`).focus()", link)
    one = scene.daemon.client.judge({"task": scene.task, "candidate": SYNTAX + "# again\n"})["id"]
    window.wait("document.querySelector(arguments[0])", f"a[href='#/submissions/{one}']")
    assert window.script("return document.activeElement.getAttribute('href')") == link


def test_a_daemon_that_is_gone_makes_the_page_stale_until_it_is_back(
    start_daemon: service.StartDaemon, window: Browser
) -> None:
    daemon = start_daemon(paused=True, ready=False)
    port = daemon.client.url.rpartition(":")[2]
    show(window, daemon.client.url, "#/", "verdicts a minute")
    assert window.script("return document.getElementById('stale').hidden") is True
    daemon.kill()
    window.wait("!document.getElementById('stale').hidden")
    window.wait_text("unreachable")
    assert "Stale: the daemon does not answer" in window.text()
    daemon.options["listen"] = f"127.0.0.1:{port}"
    daemon.start(ready=False)
    window.wait("document.getElementById('stale').hidden")
    window.wait("document.getElementById('ready').textContent === 'not ready'")  # it is paused


def test_markup_in_every_free_text_is_inert(scene: Scene, window: Browser, tasks: dict[str, corpus.Task]) -> None:
    client = scene.daemon.client
    registration = {**tasks["relu"].registration(), "name": MARKUP, "entry_point": "Model"}
    registration["reference"] = str(registration["reference"]) + f"\n# {MARKUP}\n"
    task = client.add_task(registration)
    source = f"raise RuntimeError({MARKUP!r})\n" + candidate("relu/honest.py") + f"# {MARKUP}\nprint({MARKUP!r})\n"
    items = [
        {"candidate": source, "metadata": {MARKUP: MARKUP, "run": MARKUP, "step": 1}},
        {"candidate": f"class ModelNew:\n  {MARKUP}\n"},
    ]
    body = {"task": task, "candidates": items, "client": MARKUP}
    group = str(client.expect("POST", "/v1/groups", body)["id"])
    first, second = (item["id"] for item in client.wait(group, kind="groups")["items"])
    forget(window)
    for address, words in (
        ("#/", MARKUP),
        ("#/submissions", MARKUP),
        (f"#/submissions/{first}", MARKUP),
        (f"#/submissions/{second}", MARKUP),
        (f"#/compare/{first},{second}", MARKUP),
        ("#/groups", MARKUP),
        (f"#/groups/{group}", MARKUP),
        ("#/tasks", MARKUP),
        (f"#/tasks/{task}", MARKUP),
        ("#/runs", MARKUP),
        (f"#/runs/{quote(MARKUP, safe='')}?task={task}", MARKUP),
        ("#/failures", "RuntimeError"),
        ("#/submissions?client=" + "%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D3%3E", "Nothing matches"),
        ("#/tasks/%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D4%3E", "there is no task"),
    ):
        show(window, scene.url, address, words)
        assert window.script("return window.pwned") is None, address
        assert window.script("return document.querySelectorAll('main script, main img, #pwned').length") == 0, address
        assert [one for one in window.complaints() if "404" not in one] == [], address


def test_where_there_are_tokens_the_page_asks_for_one_once(start_daemon: service.StartDaemon, window: Browser) -> None:
    with service.directory() as directory:
        admin = token(directory, "root", "admin")
        daemon = start_daemon(paused=True, ready=False, tokens=directory / "tokens")
        window.open(f"{daemon.client.url}/#/")
        window.wait("!document.getElementById('sign').hidden")
        window.type("#token", "vd_wrong_token")
        window.press("Enter")
        window.wait_text("unknown, revoked or expired")
        window.type("#token", admin)
        window.click("#sign button")
        window.wait_text("verdicts a minute")
        window.wait("document.getElementById('sign').hidden")
        assert window.script("return Object.keys(localStorage).filter((k) => k.includes('token')).length") == 0
        window.script("location.hash = '#/groups'")
        window.wait_text("No group has been submitted yet.")
        window.script("location.reload()")  # the tab keeps it
        window.wait_text("No group has been submitted yet.")
        assert window.script("return document.getElementById('sign').hidden") is True
        window.script("sessionStorage.clear()")


def test_everything_can_be_reached_by_keyboard(scene: Scene, window: Browser) -> None:
    window.look()
    show(window, scene.url, "#/", "verdicts a minute")
    window.press("Tab")
    assert window.script("return document.activeElement.className") == "skip-link"
    seen = []
    for _ in range(8):
        window.press("Tab")
        seen.append(window.script("return document.activeElement.textContent.trim()"))
        assert window.script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert seen[:7] == ["verifierd", "Overview", "Runs", "Submissions", "Groups", "Tasks", "Rewards"]
    window.script("document.querySelector('nav a[href=\"#/rewards\"]').focus()")
    window.press("Enter")
    window.wait_text("Reward over time")
    window.script("[...document.querySelectorAll('.choice button')].find((b) => b.textContent === '7d').focus()")
    window.press("Space")
    window.wait("location.hash === '#/rewards?window=7d'")


def test_filters_and_ticks_stand_in_the_address(scene: Scene, window: Browser) -> None:
    show(window, scene.url, "#/submissions", "syntax")
    window.script(
        "const s = document.getElementById('filter-class'); s.value = 'ok'; s.dispatchEvent(new Event('change'))"
    )
    window.wait("location.hash === '#/submissions?class=ok'")
    window.look()
    show(window, scene.url, f"#/submissions?run={quote(RUN)}&policy_version=base", "Policy version")
    window.wait("document.querySelectorAll('tbody tr').length === 3")
    show(window, scene.url, f"#/submissions?run={quote(RUN)}&policy_version=other", "Nothing matches these filters")
    show(window, scene.url, f"#/submissions?group={scene.group}", "mismatch")
    window.wait("document.querySelectorAll('input[type=checkbox]').length === 3")
    window.script("document.querySelectorAll('input[type=checkbox]').forEach((box) => box.click())")
    window.click(".filters button")
    window.wait_text("How C differs from A")


def test_a_phone_shows_each_reward_without_scrolling(scene: Scene, window: Browser) -> None:
    window.look(narrow=True)
    show(window, scene.url, "#/submissions?client=nobody", "Nothing matches")
    widths = """
    return import('/parts.js').then((m) => {
      const item = {id: 'a', state: 'done', class: arguments[0], reward: 0.7, task: 't', task_name: 'a_long_name'};
      const table = m.submissionTable('Phone', [{...item, created: new Date(Date.now() - 2e6).toISOString()}], '');
      document.getElementById('main').append(table);
      const cells = ['.cut', '.number'].map((name) => table.querySelector('td' + name).getBoundingClientRect());
      return [table.scrollWidth - table.clientWidth, cells[0].width, innerWidth - cells[1].right]; });
    """
    for name, least in (("mismatch", 80), ("nondeterministic", 40)):
        hidden, task, beside = window.script(widths, name)
        assert hidden <= 0 and task > least and beside > 0, (name, hidden, task, beside)
    window.look()


def test_light_and_dark_can_be_chosen(scene: Scene, window: Browser) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    window.look(dark=True)
    show(window, scene.url, "#/", "verdicts a minute")
    dark = window.script(background)
    window.click("#theme")
    assert window.script(background) != dark
    show(window, scene.url, "#/", "verdicts a minute")
    assert window.script(background) != dark  # kept
    window.click("#theme")
    assert window.script(background) == dark
    window.click("#theme")
    window.look()


DIFFS = [
    ("", "", 0, 0),
    ("a\nb\nc", "a\nb\nc", 0, 0),
    ("a\nb\nc", "a\nx\nc", 1, 1),
    ("a\nb", "b\na", 1, 1),
    ("", "a\nb", 1, 2),
    ("a\nb\nc\nd", "b\nd\ne", 2, 1),
    ("x\n" * 3000, "y\n" * 3000, 3000, 3000),
]


@pytest.mark.parametrize(("a", "b", "gone", "new"), DIFFS)
def test_the_difference_of_two_texts_gives_both_back(
    scene: Scene, window: Browser, a: str, b: str, gone: int, new: int
) -> None:
    if not str(window.script("return location.href")).startswith(scene.url):
        show(window, scene.url, "#/", "verdicts a minute")
    rows = window.script("return import('/code.js').then((m) => m.diff(arguments[0], arguments[1]))", a, b)
    assert "\n".join(text for kind, _, _, text in rows if kind != "new") == a.rstrip(), "but for its blank end"
    assert "\n".join(text for kind, _, _, text in rows if kind != "gone") == b.rstrip()
    assert ([kind for kind, *_ in rows].count("gone"), [kind for kind, *_ in rows].count("new")) == (gone, new)


def test_figures_are_counted_right(scene: Scene, window: Browser) -> None:
    if not str(window.script("return location.href")).startswith(scene.url):
        show(window, scene.url, "#/", "verdicts a minute")
    step = {"start": "2026-01-01T00:00:00Z", "n": 4, "ok": 1, "hack": 1, "policy": 0, "infra": 0, "reward": 0.5}
    step |= {"wait_ms": 8, "device_ms": 3}
    step["rewards"] = [0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1]
    merged, quartiles = window.script(
        "return import('/rewards.js').then((m) => [m.merge([arguments[0], arguments[0], arguments[0]], 2),"
        " [0.125, 0.5, 1].map((q) => m.quantile(arguments[0], q))])",
        step,
    )
    assert [(s["n"], s["hack"], s["reward"], s["rewards"][8]) for s in merged] == [(8, 2, 0.5, 4), (4, 1, 0.5, 2)]
    assert quartiles == [pytest.approx(0.05), pytest.approx(0.75), 1]
    rounded = window.script("return import('/charts.js').then((m) => [0, 1, 1.1, 99, 501, 0.0312].map(m.roundUp))")
    assert rounded == [1, 1, pytest.approx(1.2), 100, 600, pytest.approx(0.04)]
