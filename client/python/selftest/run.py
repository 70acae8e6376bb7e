"""The whole corpus: how many cheats were killed, how many honest kernels refused, and what a cheat left behind.

First each task's honest kernel is judged, while nothing hostile has run: the baseline. Then come all other rows,
several in flight, as in use. After the hostile rows of a task its honest kernel is judged again, before anything else
that waits, with a comment that makes its bytes new, since a stored verdict would prove nothing. Most tasks are so short
that a GPU's timing of them may be inconclusive; so that a cheat which spoils the clock is seen all the same, one that
is long enough is judged again after every few hostile rows of any task.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from verifierd_client import VerifierdError

from .bench import Bench, complain, is_refused, say, say_json, table
from .corpus import Candidate, Corpus, CorpusError
from .score import Baseline, Json, Score, class_of, why_wrong, wilson

WIDTH = 8
WIDTH_GPU = 16
"""So that compiling on many cores keeps ahead of the GPU."""
VERDICT_LIMIT_S = 600.0
PROBE_EVERY = 4
"""Hostile rows of one task, at most, until its honest kernel is judged again, which detects lasting damage."""
PROBE_TRIES = 3
CLOCK_EVERY = 6
"""Hostile rows of any task until a kernel that is long enough to be timed is judged again."""
NEEDS_GPU = "needs a GPU"


@dataclass
class Job:
    """kind: row, other_policy, baseline or probe; of a probe, how many tries had no time, and what it comes after."""

    kind: str
    candidate: Candidate
    followed: int = 0
    tries: int = 0
    id: str | None = None


@dataclass
class TaskState:
    id: str | None = None
    is_refused: bool = False
    baseline: Baseline = field(default_factory=Baseline)
    hostile_left: int = 0
    """Rows whose verdicts are still to come."""
    since_probe: int = 0


class Run:
    """One run over the candidates that match one of the patterns `only`, or over all."""

    def __init__(
        self, bench: Bench, corpus: Corpus, only: list[str], policy: str | None, width: int | None, is_json: bool
    ) -> None:
        self.bench, self.corpus, self.policy, self.is_json = bench, corpus, policy, is_json
        self.is_whole = not only
        selected = [k for k in corpus.candidates if not only or any(fnmatchcase(k.label, one) for one in only)]
        if not selected:
            raise CorpusError(f"--only {only[0]}: no candidate is called so")
        self.rows = [k for k in selected if self._may_run(k)]
        self.skipped = [k for k in selected if not self._may_run(k)]
        self.width = width or (WIDTH_GPU if bench.has_gpu else WIDTH)
        self.tasks = {name: TaskState() for name in corpus.tasks}
        for one in self.rows:
            self.tasks[one.task].hostile_left += is_hostile(one)
        self.hostile_left, self.since_clock = sum(is_hostile(one) for one in self.rows), 0
        self.clock_task = corpus.timed_task() if bench.has_gpu and self.hostile_left else None
        self.score = Score()
        self.waiting: list[Job] = []
        """A stack: the next one is the last."""
        self.flying: dict[Future[Json | None], Job] = {}
        self.threads = ThreadPoolExecutor(self.width)
        self.done = self.planned = 0
        self.start = time.monotonic()

    def run(self) -> bool:
        """Was all as it must be? Raises CorpusError, and what Client does."""
        for one in self.skipped:
            self.score.skip(one)
            if self.is_json:
                say_json({"skipped": one.label, "kind": one.kind, "why": NEEDS_GPU})
            else:
                say(f"SKIP {one.label}: {NEEDS_GPU}")
        first = self._plan_baselines()
        self._run_jobs()
        for one in reversed(self.rows):
            if one.label not in first:
                self._push(Job("row", one))
        self._run_jobs()
        for one in reversed(self.rows if self.policy else []):
            self._push(Job("other_policy", one))
        self._run_jobs()
        return self._report()

    def _may_run(self, candidate: Candidate) -> bool:
        return self.bench.has_gpu or not self.corpus.needs_gpu(candidate)

    def _push(self, job: Job) -> None:
        self.waiting.append(job)
        self.planned += 1

    def _plan_baselines(self) -> set[str]:
        """The honest kernels that stand for tasks with hostile rows; the labels of those that are rows themselves."""
        rows, first = {one.label for one in self.rows}, set()
        for name, task in reversed(self.tasks.items()):
            probe = self.corpus.probe_of(name)
            if not task.hostile_left and name != self.clock_task:
                continue
            if not probe:
                raise CorpusError(f"the corpus has no honest candidate for the task {name}, which has cheats")
            if not self._may_run(probe):
                say(f"SKIP {probe.label}: {NEEDS_GPU}, so nothing is judged after the cheats of this task")
                continue
            is_row = probe.label in rows
            first |= {probe.label} if is_row else set()
            self._push(Job("row" if is_row else "baseline", probe))
        return first

    # --- jobs ---

    def _run_jobs(self) -> None:
        """Until nothing waits and nothing is in flight."""
        while self.waiting or self.flying:
            if sys.stderr.isatty():
                passed_s = time.monotonic() - self.start
                sys.stderr.write(f"\r{self.done} of {self.planned} judged, {passed_s:.0f} s ")
                sys.stderr.flush()
            while self.waiting and len(self.flying) < self.width:
                self._start(self.waiting.pop())
            over = wait(self.flying, timeout=1.0, return_when=FIRST_COMPLETED).done
            for future in [one for one in self.flying if one in over]:
                job, verdict = self.flying.pop(future), future.result()
                if verdict is None:
                    self._give_up(job, f"no verdict within {VERDICT_LIMIT_S:.0f} s")
                else:
                    self._finish(job, verdict)

    def _start(self, job: Job) -> None:
        """It is in flight, or given up."""
        task = self.tasks[job.candidate.task]
        # Without a time to compare with, a probe need not have the GPU for itself.
        until = "full" if job.kind == "probe" and not task.baseline.is_timed else None
        policy = self.policy if job.kind == "other_policy" else None
        try:
            if not task.id and not task.is_refused:
                task.is_refused = True
                task.id = self.bench.add_task(self.corpus.tasks[job.candidate.task])
                task.is_refused = False
            if task.id:
                job.id = self.bench.submit(job.candidate, task.id, policy, until)
        except VerifierdError as error:
            if not is_refused(error):
                raise
            complain(error)
        if job.id:
            self.flying[self.threads.submit(self.bench.verdict, job.id, VERDICT_LIMIT_S)] = job
        else:
            self._give_up(job, "its task was refused" if task.is_refused else "the submission was refused")

    def _give_up(self, job: Job, why: str) -> None:
        """A job that no verdict will come for."""
        self._tell(job, None, why)
        if job.kind == "row":
            self.score.add(self._work(job), job.candidate, None)
            self._follow(job.candidate)
        elif job.kind == "probe":
            self.score.contaminated += 1
        self.done += 1

    def _finish(self, job: Job, verdict: Json) -> None:
        baseline, why = self.tasks[job.candidate.task].baseline, ""
        self.done += 1
        if job.kind == "row":
            why = why_wrong(job.candidate, verdict)
            self.score.add(self._work(job), job.candidate, verdict)
            if job.candidate == self.corpus.probe_of(job.candidate.task):
                self._add_baseline(job, verdict)
        elif job.kind == "other_policy":
            self.score.add_other(job.candidate, verdict)
        elif job.kind == "baseline":
            self._add_baseline(job, verdict)
        else:
            is_untimed = baseline.is_timed and not baseline.has_time(verdict) and class_of(verdict) == baseline.cls
            if is_untimed and job.tries + 1 < PROBE_TRIES:
                # A host that is busy for a second leaves a short kernel's time inconclusive; what a cheat left stays.
                self._push(Job("probe", job.candidate, job.followed, job.tries + 1))
                return
            why = baseline.why_spoilt(verdict)
            self.score.add_probe(baseline, verdict, job.followed)
        self._tell(job, verdict, why)
        if job.kind == "row":
            self._follow(job.candidate)

    def _work(self, job: Job) -> str:
        return self.corpus.tasks[job.candidate.task].kind

    def _add_baseline(self, job: Job, verdict: Json) -> None:
        """One that is timed is timed once more, so that its interval holds what lies between two children, too."""
        baseline = self.tasks[job.candidate.task].baseline
        baseline.add(verdict)
        if len(baseline.times) == 1 and baseline.is_timed:
            self._push(Job("baseline", job.candidate))

    def _follow(self, row: Candidate) -> None:
        """After a hostile row: is it time for the honest kernel of its task, or for the one that is long enough?"""
        if not is_hostile(row):
            return
        self.since_clock += 1
        self.hostile_left -= 1
        clock = self.corpus.probe_of(self.clock_task) if self.clock_task else None
        if clock and (self.since_clock >= CLOCK_EVERY or not self.hostile_left):
            self.since_clock = 0
            self._push(Job("probe", clock))  # the rows before it are counted by the probes of their own tasks
        task, probe = self.tasks[row.task], self.corpus.probe_of(row.task)
        task.hostile_left -= 1
        task.since_probe += 1
        if task.since_probe < PROBE_EVERY and task.hostile_left:
            return
        followed, task.since_probe = task.since_probe, 0
        if task.baseline.cls and probe:
            self._push(Job("probe", probe, followed))

    # --- what it came to ---

    def _tell(self, job: Job, verdict: Json | None, why: str) -> None:
        """One line: with --json of every job, else where it was not as it must be."""
        one, found = job.candidate, verdict or {}
        if self.is_json:
            keys = {"id": job.id, **{key: found.get(key) for key in ("class", "failed_at", "reward")}}
            keys["speedup"] = (found.get("components") or {}).get("speedup")
            keys["timing"] = (found.get("timing") or {}).get("outcome")
            head = {job.kind: one.label, "kind": one.kind, "expected": one.expected, "what": one.what}
            say_json({**head, **keys, "right": not why, "why": why or None})
        elif why:
            what = f" ({one.what})" if one.what and job.kind == "row" else ""
            name = f" [{job.id}]" if job.id else ""
            say(f"{'CONTAMINATED' if job.kind == 'probe' else 'SURPRISE'} {one.label}: {why}{what}{name}")

    def _report(self) -> bool:
        is_clean = self.score.is_clean(self.is_whole)
        if not self.is_json:
            self._print_kinds()
            self._print_works()
            self._print_rates()
        told = {"selftest": "corpus", "ok": is_clean, "gpu": self.bench.has_gpu, "policy": self.policy}
        say_json({**self.score.document(), **told, "seconds": round(time.monotonic() - self.start, 3)})
        return is_clean

    def _print_kinds(self) -> None:
        titles = ["KIND", "ROWS", "SKIPPED", "JUDGED", "RIGHT", "REFUSED"]
        kinds = self.score.kinds.items()
        rows: list[list[object]] = [[name, k.rows, k.skipped, k.ran, k.right, k.refused] for name, k in kinds]
        if self.policy:
            titles.append(f"ACCEPTED BY {self.policy}")
            rows = [[*row, k.other_accepted] for row, (_, k) in zip(rows, kinds, strict=True)]
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        table(titles, rows, [k.right == k.ran and k.ran + k.skipped == k.rows for _, k in kinds], titles.index("RIGHT"))

    def _print_works(self) -> None:
        """Both errors, each with Wilson's 95 % interval."""
        rows = [
            [name, *_error(work.accepted, work.wrong), *_error(work.refused, work.right)]
            for name, work in self.score.all_works().items()
        ]
        table(["TASKS", "FALSE ACCEPTS", "RATE", "FALSE REJECTS", "RATE"], rows)

    def _print_rates(self) -> None:
        cheat, (refused, right) = self.score.kinds["cheat"], self.score.rejected
        if cheat.ran:
            say(f"kill rate      {100 * cheat.expected / cheat.ran:5.1f}%  {cheat.expected} of {cheat.ran} cheats")
        if right:
            say(f"false rejects  {100 * refused / right:5.1f}%  {refused} of {right} honest kernels")
        of = f"{self.score.probes} honest kernels judged after {self.score.followed} hostile rows"
        say(f"contamination  {self.score.contaminated} of {of}; {self.score.times_compared} times compared")


def is_hostile(candidate: Candidate) -> bool:
    return candidate.kind in ("cheat", "robustness")


def _error(part: int, whole: int) -> tuple[str, str]:
    low, high = wilson(part, whole)
    rate = f"{100 * part / whole:.1f}% [{100 * low:.1f}, {100 * high:.1f}]" if whole else "-"
    return f"{part} of {whole}", rate
