"""trainer run --estimate: what the steps will take and cost, by the speeds that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence

from .common import Json
from .plan import STAGES, Step

KERNELBOOK_ROWS, KERNELBENCH_TASKS = 18000, 270  # where the configuration says "all of it"


def devices(text: str) -> int:
    """How many GPUs a list of their numbers names."""
    return len(text.split(",")) if text else 0


def hours(conf: Json, step: Step) -> float:
    """Of one GPU: tokens by the speeds of the section "estimate", verdicts by theirs."""
    of, rl, command = conf["estimate"], conf["rl"], step.argv[0]
    prepared = conf["prepare"]["max_samples"] or KERNELBOOK_ROWS

    def trained(rows: float) -> float:
        return float(rows * of["row_tokens"] / of["train_tokens_per_s"])

    def sampled(answers: float, most_tokens: float) -> float:  # of half their greatest length, and a verdict for each
        return float(answers * (most_tokens / 2 / of["sample_tokens_per_s"] + 1 / of["verdicts_per_s"]))

    seconds = 0.0
    longest = conf["endpoint"]["max_tokens"]
    if step.name == "prepare":
        is_judged = conf["prepare"]["verify"] and not conf["prepare"]["static"]
        seconds = prepared / of["verdicts_per_s"] if is_judged else 0
    elif step.name == "teach":  # another machine samples
        seconds = rl["fused"] * conf["teacher"]["samples"] / of["verdicts_per_s"]
    elif command == "bestofn":
        seconds = sampled(rl["max_tasks"] * rl["samples"], longest)
    elif command == "evaluate":
        tasks = (conf["evaluate"]["max_tasks"] or KERNELBENCH_TASKS) * conf["evaluate"]["samples"]
        seconds = sampled(rl["held_out_tasks"] if step.name.startswith("held_out") else tasks, longest)
    elif command in ("reinforce", "grpo"):
        answers = conf["train"]["epochs"] * rl["max_tasks"] * conf["train"]["samples"]
        seconds = sampled(answers, conf["train"]["answer_tokens"]) + trained(answers)
    elif step.is_training:
        kept = rl["max_tasks"] * rl["samples" if rl["method"] == "weighted" else "keep"]
        method, rows = (conf["sft"], prepared) if step.name == "sft" else (conf["train"], kept)
        seconds = trained(method["epochs"] * min(rows, method["max_samples"] or rows))
    return seconds / 3600


def estimate(conf: Json, steps: Sequence[Step]) -> None:
    """A line for each step and phase and their sum: hours of GPUs that work, on the clock, of GPUs that wait; price."""
    own, judging = conf["gpus"], devices(conf["verifier"]["devices"])
    rows: dict[str, list[float]] = {}
    sums: dict[str, list[float]] = {}
    for step in steps:
        # Training and sampling have the run's GPUs; what only judges has verifierd's, or all where these are not named.
        used = own if step.is_training or step.serve is not None else judging or own + judging
        busy = hours(conf, step)
        rows[step.name] = [busy, busy / used, busy / used * (own + judging) - busy]
        for name in (f"phase {step.stage}", "all"):
            sums[name] = [a + b for a, b in zip(sums.get(name, [0.0] * 3), rows[step.name], strict=True)]
    phases = [f"phase {stage}" for stage in STAGES]
    rows |= {name: sums[name] for name in phases if name in sums and sums[name][1] > 0}
    rows["all"] = sums.get("all", [0.0] * 3)
    print(f"{'step':<20} {'GPU hours':>12} {'wall clock h':>12} {'idle GPU h':>12} {'price':>12}")
    for name, (busy, wall, idle) in rows.items():
        print(f"{name:<20} {busy:12.2f} {wall:12.2f} {idle:12.2f} {(busy + idle) * conf['gpu_price']:12.2f}")
    of = conf["estimate"]
    print(
        f"at {of['train_tokens_per_s']:g} trained and {of['sample_tokens_per_s']:g} sampled tokens a second and "
        f"{of['verdicts_per_s']:g} verdicts a second of one GPU, {of['row_tokens']:g} tokens a row, "
        f"{conf['gpu_price']:g} for a GPU hour, idle ones counted (section estimate, gpu_price)"
    )
