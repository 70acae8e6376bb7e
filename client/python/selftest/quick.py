"""A check before a long job: PASS, FAIL or SKIP, a line for each property of the daemon that the job relies on.

Everything is submitted at once and judged concurrently.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from pathlib import Path

from verifierd_client import Unavailable, VerifierdError

from .bench import Bench, complain, is_refused, say, say_json
from .corpus import Corpus, CorpusError
from .score import Json, class_of

VERDICT_LIMIT_S = 120.0
CASES_MIN = 5
AA_SLACK = 0.05
TRAINER_LIMIT_S = 45.0
TRAINER_USAGE = 2
"""It does not know the command."""
HONEST, ONE_SIZE = "relu/honest", "relu/first_block_only"
DIES_EARLY, DIES_COMPILING = "relu/syntax_error", "relu/unknown_tl_function"
TIMED, ITSELF = "an honest kernel", "the reference against itself"


class Quick:
    """trainer: the program that may be in our own directory."""

    def __init__(self, bench: Bench, corpus: Corpus, trainer: Path, is_json: bool) -> None:
        self.bench, self.corpus, self.trainer, self.is_json = bench, corpus, trainer, is_json
        self.start = time.monotonic()
        self.checks: dict[str, Json] = {}
        self.verdicts: dict[str, Json] = {}

    def run(self) -> bool:
        """Did nothing fail? Raises CorpusError, and what Client does."""
        self._judge_all()
        self._check_inputs()
        self._check_funnel()
        self._check_timing()
        self._check_sandbox()
        self._check_curriculum()
        is_well = all(check["outcome"] != "FAIL" for check in self.checks.values())
        told = {"selftest": "quick", "ok": is_well, "gpu": self.bench.has_gpu}
        say_json({**told, "seconds": round(time.monotonic() - self.start, 3), "checks": self.checks})
        return is_well

    def _say(self, check: str, outcome: str, why: str) -> None:
        self.checks[check] = {"outcome": outcome, "why": why}
        if not self.is_json:
            say(f"{outcome} {check:<11} {why}")

    # --- judging ---

    def _judge_all(self) -> None:
        by_label = {one.label: one for one in self.corpus.candidates}
        labels = (HONEST, ONE_SIZE, DIES_EARLY, DIES_COMPILING)
        for label in labels:
            if label not in by_label:
                raise CorpusError(f"the corpus has no {label}")
        task_id = self.bench.add_task(self.corpus.tasks["relu"])
        ids = {label: self.bench.submit(by_label[label], task_id) for label in labels}
        if self.bench.has_gpu:
            ids |= self._submit_timed()
        for label, ident in ids.items():
            verdict = self.bench.verdict(ident, VERDICT_LIMIT_S)
            if verdict is None:
                raise Unavailable(f"no verdict of {ident} within {VERDICT_LIMIT_S:.0f} s", 408)
            self.verdicts[label] = verdict

    def _submit_timed(self) -> dict[str, str]:
        """A kernel that is long enough to be timed, and its reference as a candidate."""
        name = self.corpus.timed_task()
        honest = self.corpus.probe_of(name) if name else None
        if not name or not honest:
            raise CorpusError("the corpus has no task that needs a GPU and has an honest candidate")
        task = self.corpus.tasks[name]
        itself = dataclasses.replace(
            honest, text=task.source, entry_point=task.entry_point, policy="kernelbench", is_completion=False
        )
        task_id = self.bench.add_task(task)
        return {TIMED: self.bench.submit(honest, task_id), ITSELF: self.bench.submit(itself, task_id)}

    # --- the checks ---

    def _check_inputs(self) -> None:
        """Several inputs judge: the right kernel passes them all, one that is right for the smallest alone does not."""
        honest, one_size = self.verdicts[HONEST], class_of(self.verdicts[ONE_SIZE])
        correctness = honest.get("correctness") or {}
        cases, passed = correctness.get("cases"), correctness.get("passed")
        if class_of(honest) != "ok":
            why = f"{HONEST} is {class_of(honest)}: {(honest.get('feedback') or {}).get('text') or ''}"
        elif isinstance(cases, int) and (cases < CASES_MIN or passed != cases):
            why = f"an honest kernel passed {passed} of {cases} inputs, at least {CASES_MIN} must judge"
        elif one_size != "mismatch":
            why = f"{ONE_SIZE}, which is right for the smallest input alone, is {one_size}, not mismatch"
        else:
            passes = f"an honest kernel passes {cases} inputs"
            self._say("multi-input", "PASS", f"{passes}; one that is right for the smallest alone is a mismatch")
            return
        self._say("multi-input", "FAIL", why)

    def _check_funnel(self) -> None:
        """A candidate that is refused early runs no later stage."""
        why = self._why_late(DIES_EARLY, "ast") or self._why_late(DIES_COMPILING, "compile")
        self._say("funnel", "FAIL" if why else "PASS", why or "what fails at ast or compile runs no later stage")

    def _why_late(self, label: str, stage: str) -> str:
        verdict = self.verdicts[label]
        failed, stages = verdict.get("failed_at"), verdict.get("stages") or []
        if failed != stage:
            return f"{label} ended at {failed or 'no stage'} ({class_of(verdict)}), not at {stage}"
        names = [one.get("stage") for one in stages]
        behind = stages[names.index(stage) + 1 :] if stage in names else []
        later = [one for one in behind if one.get("outcome") not in (None, "skip") or (one.get("run_ms") or 0) > 0]
        return f"{label} failed at {stage}, and {later[0].get('stage')} ran all the same" if later else ""

    def _check_timing(self) -> None:
        """A reference against itself is as fast as itself, and a kernel's time has an interval."""
        if not self.bench.has_gpu:
            self._say("timing", "SKIP", "no GPU: nothing is timed on this machine")
            return
        speedups = {}
        for name in (TIMED, ITSELF):
            verdict = self.verdicts[name]
            outcome = (verdict.get("timing") or {}).get("outcome")
            speedup = (verdict.get("components") or {}).get("speedup")
            if outcome != "measured" or speedup is None:
                why = f"{name} was not measured: {outcome or 'no timing'}, class {class_of(verdict)}"
                self._say("timing", "FAIL", why)
                return
            speedups[name] = float(speedup)
        components = self.verdicts[ITSELF]["components"]
        low, high = components.get("speedup_lo") or 0.0, components.get("speedup_hi") or 0.0
        is_one = low <= 1 <= high or abs(speedups[ITSELF] - 1) <= AA_SLACK
        why = f"{ITSELF} {speedups[ITSELF]:.3f} [{low:.3f}, {high:.3f}], {TIMED} {speedups[TIMED]:.3f}"
        self._say("timing", "PASS" if is_one else "FAIL", why)

    def _check_sandbox(self) -> None:
        """The layers, and the probe of the corpus as a task: it is refused where it could do what it must not."""
        layers: Json = (self.bench.status.get("sandbox") or {}).get("run_layers") or {}
        on, off = [n for n, s in layers.items() if s == "on"], [n for n, s in layers.items() if s != "on"]
        has_basics = {"no_new_privs", "seccomp"} <= set(on) and bool({"uid", "user_namespace"} & set(on))
        is_tight = self._is_probe_denied()
        why = f"{len(on)} layers on" + (f", not: {', '.join(off)}" if off else "")
        why += (
            "; foreign files, network, processes and privileges are denied"
            if is_tight
            else "; the sandbox's probe was refused: see above"
        )
        if not has_basics:
            why += "; no_new_privs, seccomp and an own uid or user namespace have to be on"
        self._say("sandbox", "PASS" if is_tight and has_basics else "FAIL", why)

    def _is_probe_denied(self) -> bool:
        # New bytes: a task that is known already is not run again.
        source = (self.corpus.place / "quick/sandbox.py").read_text() + f"\n# {self.bench.nonce()}\n"
        relu = self.corpus.tasks["relu"]
        probe = dataclasses.replace(relu, name="selftest sandbox", source=source, entry_point="Model", is_dynamic=False)
        try:
            self.bench.add_task(probe)
        except VerifierdError as error:
            if not is_refused(error):
                raise
            complain(error)
            return False
        return True

    def _check_curriculum(self) -> None:
        """The trainer's own check, where there is a trainer."""
        if not os.access(self.trainer, os.X_OK):
            self._say("curriculum", "SKIP", "there is no trainer program beside this one")
            return
        command = [str(self.trainer), "selftest", "--quick"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TRAINER_LIMIT_S, check=False)
            status, how = done.returncode, f"ended with status {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            status, how = -1, str(error)
        if status == TRAINER_USAGE:
            self._say("curriculum", "SKIP", "the trainer beside this program has no selftest")
        else:
            self._say("curriculum", "FAIL" if status else "PASS", f"trainer selftest --quick {how}")
