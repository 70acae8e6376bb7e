"""trainer report: one page and one document of a run, from what its steps left. Can be made again at any time."""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from finetune import checkpoint

from . import page
from .common import CONFIG, OK, Json, PipelineError, parser, read

BINS, BEST = 10, 3
KEPT = ("step", "epoch", "loss", "learning_rate", "gradient_norm", "tokens", "seconds", "wait_s", "reward_mean",
        "gpu_peak_gib")  # fmt: skip
FUNNEL = ("extracted", "valid", "compiled", "correct", "timed")
CHEATS = ("hack", "policy")  # classes of common/classes.c: is_cheat
PHASES = ("wall_s", "gpu_s", "idle_gpu_s")


def lines(path: Path) -> Iterator[Json]:
    """The objects of a file of JSON Lines; other lines are skipped."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


def order(name: str) -> tuple[int, list[str | int]]:
    """Base, fine-tuned, reinforced, others; numbers in names by their value."""
    rank = next((i for i, word in enumerate(("base", "sft", "rl|round|reinforce|grpo")) if re.search(word, name)), 3)
    return rank, [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def named(workdir: Path, pattern: str) -> list[tuple[str, Path]]:
    """Files of outputs/, by the directory's name after the first "_"."""
    found = [(path.parent.name.partition("_")[2], path) for path in (workdir / "outputs").glob(pattern)]
    return sorted(found, key=lambda one: order(one[0]))


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def distribution(rewards: list[float]) -> Json:
    """n, mean, least, most, and how many in each of BINS between them."""
    if not rewards:
        return {"n": 0}
    low, high = min(rewards), max(rewards)
    bins = [0] * BINS
    for x in rewards:
        bins[min(BINS - 1, int((x - low) / (high - low) * BINS) if high > low else 0)] += 1
    return {"n": len(rewards), "mean": sum(rewards) / len(rewards), "least": low, "most": high, "bins": bins}


def read_round(document: Json, name: str, path: Path) -> None:
    """Of each distinct answer its reward, how far it came, and its class."""
    funnel, classes, rewards = Counter(dict.fromkeys(("answers", *FUNNEL), 0)), Counter[str](), []
    for row in lines(path):
        verdict = row.get("verdict")
        if not isinstance(verdict, dict) or not verdict.get("class") or verdict.get("duplicate_of"):
            continue
        components = verdict.get("components") or {}
        funnel.update(["answers", *(part for part in FUNNEL if (components.get(part) or 0) > 0)])
        classes[verdict["class"]] += 1
        if is_number(verdict.get("reward")):
            rewards.append(float(verdict["reward"]))
    document["rewards"][name] = distribution(rewards)
    document["funnel"][name], document["classes"][name] = dict(funnel), dict(classes)
    document["cheats"][name] = {cheat: classes[cheat] for cheat in CHEATS}


def read_comparison(workdir: Path) -> Json:
    """The output of `trainer compare --save`, by evaluation and level."""
    out: Json = {}
    for column in read(workdir / "outputs/comparison.json", list) or []:
        for level, figures in column["levels"].items():
            row = {"correct": figures.get("correct")}
            for title, key in (("the first", "correct_difference"), ("the one before", "previous_difference")):
                row[f"beyond {title}"] = (figures.get(key) or {}).get("mean")
            row |= {f"less {name}": value for name, value in (figures.get("less_published") or {}).items()}
            if any(value is not None for value in row.values()):
                out[f"{column['name']}, " + ("all" if level == "all" else f"level {level}")] = row
    return out


def read_costs(state: Json) -> Json:
    """The time of steps and phases, times the GPUs that the run had; price by its gpu_price."""
    configuration = state.get("configuration") or {}
    gpus = configuration.get("gpus", 1)
    steps: Json = {}
    phases: dict[str, Json] = {}
    for name, step in (state.get("steps") or {}).items():
        seconds = step.get("seconds") or 0
        steps[name] = {"seconds": seconds, "gpu_seconds": seconds * gpus, "state": step.get("state")}
        if step.get("stage"):
            # A step that neither trains nor samples leaves the GPUs idle.
            is_busy = step.get("trains") or (step.get("argv") or [""])[0] in ("bestofn", "evaluate")
            taken = (seconds, seconds * gpus, 0 if is_busy else seconds * gpus)
            phase = phases.setdefault(step["stage"], dict.fromkeys(PHASES, 0))
            for key, value in zip(PHASES, taken, strict=True):
                phase[key] += value
    total = sum(step["gpu_seconds"] for step in steps.values())
    price = total / 3600 * configuration.get("gpu_price", 0)
    return {"steps": steps, "phases": phases, "gpu_seconds": total, "price": price}


def read_run(workdir: Path) -> Json:
    """The document of report.json; a file that is not there leaves its part empty."""
    state = read(workdir / "run.json", dict) or {}
    document: Json = {"made": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")}
    document |= {part: {} for part in ("losses", "rewards", "funnel", "classes", "cheats", "evaluations")}
    for name, path in named(workdir, "train_*/metrics.jsonl"):
        document["losses"][name] = [{key: row[key] for key in KEPT if key in row} for row in lines(path)]
    for name, path in named(workdir, "bestofn_*/candidates.jsonl"):
        read_round(document, name, path)
    kept = (row for _, path in named(workdir, "bestofn_*/kept.jsonl") for row in lines(path))
    best = heapq.nlargest(BEST, kept, key=lambda row: row.get("reward") or 0)
    document["best"] = [
        {key: row[key] for key in ("task", "reward", "submission", "code") if key in row} for row in best
    ]
    found = [read(path, dict) for path in (workdir / "outputs").glob("eval_*.json")]
    evaluations = [one for one in found if one and isinstance(one.get("name"), str)]
    for one in sorted(evaluations, key=lambda one: order(one["name"])):
        kept_keys: Json = {key: one[key] for key in ("prompt", "metrics", "levels", "seconds") if key in one}
        document["evaluations"][one["name"]] = {"model": one.get("model_path"), **kept_keys}
    document["comparison"] = read_comparison(workdir)
    document["costs"] = read_costs(state)
    document["configuration"] = state.get("configuration")
    document["curriculum"] = read(workdir / "checkpoints/curriculum.json", dict)
    return document


def conclusion(document: Json) -> str:
    """One sentence: what the last model does, and what it does beyond the first."""
    rates = {
        name: one["metrics"]["correct_rate"]
        for name, one in document["evaluations"].items()
        if is_number((one.get("metrics") or {}).get("correct_rate")) and order(name)[0] < 3
    }
    if not rates:
        return "No model was evaluated."
    first, last = next(iter(rates)), next(reversed(rates))
    tasks = document["evaluations"][last]["metrics"].get("num_tasks", "?")
    said = f"{last} answers {rates[last]:.1f} % of {tasks} tasks correctly"
    return said + (f"; {first}: {rates[first]:.1f} %." if last != first else ".")


def evaluation_rows(evaluations: Json) -> dict[str, Json]:
    rows = {}
    for name, one in evaluations.items():
        metrics = one.get("metrics") or {}
        fast = metrics.get("fast_p") or {}
        rows[name] = metrics | {f"fast_p {p}": fast.get(p) for p in ("1", "1.5", "2")}
    return rows


def training_rows(losses: Json) -> dict[str, Json]:
    """Of each training run: steps, seconds, and the share of its time that it waited for verdicts."""
    rows = {}
    for name, points in losses.items():
        seconds, waited = (sum(point.get(key) or 0 for point in points) for key in ("seconds", "wait_s"))
        rows[name] = {"steps": len(points), "seconds": seconds}
        if seconds > 0:
            rows[name]["waiting for verdicts, %"] = 100 * waited / seconds
    return rows


def page_of(document: Json) -> str:
    configuration, costs = document["configuration"] or {}, document["costs"]
    columns = ["num_tasks", "extracted_rate", "valid_rate", "compiled_rate", "correct_rate", "fast_p 1", "fast_p 1.5",
               "fast_p 2", "speedup_geomean"]  # fmt: skip
    compared = dict.fromkeys(key for row in document["comparison"].values() for key in row)
    parts = [
        f"<p><strong>{page.text(conclusion(document))}</strong></p>",
        f"<p>Model {page.text(configuration.get('model'))}, made {page.text(document['made'])}</p>",
        page.table("Evaluations (percent of tasks)", evaluation_rows(document["evaluations"]), columns),
        page.table(
            "Comparison (correct answers in percent, differences in points)", document["comparison"], [*compared]
        ),
        page.table("Training", training_rows(document["losses"]), ["steps", "seconds", "waiting for verdicts, %"]),
    ]
    for name, points in document["losses"].items():
        parts += [f"<h3>{page.text(name)}</h3>" + page.curve(points, "loss"), page.curve(points, "reward_mean")]
    parts.append(page.table("Rewards by round", document["rewards"], ["n", "mean", "least", "most"]))
    for name, found in document["rewards"].items():
        if found["n"]:
            parts.append(page.histogram(name, found["bins"], found["least"], found["most"], "reward"))
    parts += [
        page.table("Funnel by round (distinct answers)", document["funnel"], ["answers", *FUNNEL]),
        page.table("Cheats found", document["cheats"], CHEATS),
    ]
    if document["best"]:
        parts.append("<h2>Best kernels</h2>")
    parts += [
        page.folded(f"{kernel.get('task')}, reward {page.text(kernel.get('reward'))}", str(kernel.get("code") or ""))
        for kernel in document["best"]
    ]
    parts += [
        page.table("Time by phase", costs["phases"], PHASES),
        page.table("Costs", costs["steps"], ["seconds", "gpu_seconds", "state"]),
        f"<p>{costs['gpu_seconds']:.0f} GPU seconds, price {costs['price']:.2f}</p>",
    ]
    for title in ("curriculum", "configuration"):
        if document[title]:
            parts.append(page.folded(title.capitalize(), json.dumps(document[title], indent=1)))
    return page.document("Training report", parts)


def main(arguments: list[str]) -> int:
    p = parser("report", "Make outputs/report.html and outputs/report.json of a run.")
    given: Any = p.parse_args(arguments)
    if given.check_arguments:
        return OK
    document = read_run(given.workdir)
    parts = (document["costs"]["steps"], document["curriculum"])
    if not any([*parts, *(document[part] for part in ("losses", "funnel", "evaluations"))]):
        raise PipelineError(f"{given.workdir} has no run, no round and no evaluation to report on", CONFIG)
    checkpoint.replace(given.workdir / "outputs/report.json", json.dumps(document, indent=2) + "\n")
    checkpoint.replace(given.workdir / "outputs/report.html", page_of(document))
    print(given.workdir / "outputs/report.html")
    return OK
