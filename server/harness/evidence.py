"""Whose kernels did the work: the evidence pass of a submission that has passed everything before.

The candidate is called on fresh inputs while its process is observed: by CUPTI on a GPU, by the interpreter's
launches without one. Then once more with its own kernels silent, all of them and each alone: what is right without
them did not need them. docs/trust.md says what this shows and what it does not.
"""

from __future__ import annotations

import math
import re
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import activity
import tolerance
import torch
import values
from activity import Activity, Record
from judge import BUILD_LIMIT_MS, Job, Report
from launches import FUNCTIONS_MAX, OPAQUE, TOO_MANY, UNKNOWN, kind_of
from peer import PeerFailed
from reference import CALL_SEED, Expected
from wire import Json, clean_text

CALLS: Final = 2
"""Recorded calls on a GPU, the quicker of which is what the own kernels take at least; without one a call is slow, and
one says as much."""
ALONE_MAX: Final = 8
ALONE_S: Final = 2.0
CALL_LIMIT_MS: Final = 10_000.0
"""Or what a call of `full` may take, where that is more."""
TRIES: Final = 3
"""How often a call is observed that is wrong then and right unobserved. Once may be chance: it is right mostly, or it
needs what the neighbours had; so often it is the observing."""

TIME_SHARE: Final = 0.01
"""Of the GPU's time, what foreign kernels may compute under a policy that allows them nothing: clock noise and the
odd scalar. Whoever lets torch compute the task has far more."""
ELEMENT_SHARE: Final = 0.05
"""The same without a GPU, where elements stand for time: coarser."""
TINY_SHARE: Final = 0.5
"""The same for a case of a few elements, where a scalar is a large part; what torch computes and a kernel copies is
half."""
SMALL_NS: Final = 5_000
SMALL_THREADS: Final = 1024
SMALL_PART: Final = 64
SMALL_SHARE: Final = 0.5
"""A foreign launch that is no longer than SMALL_NS and has at most SMALL_THREADS threads, or a SMALL_PARTth of the
largest own launch, is paid for by its launch and not by its work (a sum of partial sums, a scalar): these count only
where together they take more than SMALL_SHARE."""
SLOWEST: Final = 10.0
"""Foreign shares are of at most so many times what the reference takes: what torch computes does not become less by
the candidate's own kernels being at work for long."""
LOOSE: Final = 10.0
"""Two right answers that agree within so many tolerances tell nothing of what was computed."""
OWN_MOST: Final = 4
"""Own kernels count for at most so many times the elements of the case (without a GPU by the elements, since a tensor
that is handed to a kernel need not be read by it; with one, as the largest launch, by its threads)."""
FOREIGN_MAX: Final = 16
OVERRUN: Final = "work beyond what is recorded"
AST_NAME_MAX: Final = 128
"""Bytes of a kernel's name as the `ast` stage tells it; a longer one loses its middle."""
NAME_MAX: Final = 200


# --- kernels that are not the candidate's, by name ---

MOVEMENT: Final = re.compile(
    r"memcpy|memset|direct_copy_kernel|copy_kernel_cuda|_copy_kernel|FillFunctor|CatArrayBatchedCopy|index_elementwise"
    r"|index_kernel|index_copy_kernel|index_put|indexSelect|index_fill|vectorized_gather|scatter_gather|gather_kernel"
    r"|triu_tril|elementwise_kernel_with_index|arange_cuda|range_cuda|flip_kernel|roll_cuda|_pad\w*_kernel|constant_pad"
    r"|compute_cuda_kernel|im2col|nchwToNhwc|nhwcToNchw|tensorTransform|transpose_kernel|transpose_readWrite|split_with_sizes"
    r"|chunk_cat|eye_kernel|linspace",
    re.IGNORECASE,
)
NOT_LIBRARY: Final = re.compile(
    r"fmha|flash|attention|softmax|bn_fw|bnfw|bn_bw|batch_?norm|layer_?norm|pooling|activation|rnn_|lstm|gru_"
    r"|elementwise_kernel|(?:at::native|N2at6native).*reduce_kernel",
    re.IGNORECASE,
)
LIBRARY: Final = re.compile(
    r"gemm|gemv|cutlass|cublas|cudnn|xmma|nvjet|split_?k|implicit_con|convolve|conv2d|conv3d|conv_depthwise"
    r"|slow_conv|col2im|winograd|fprop|dgrad|wgrad|fft2d_|dot_kernel|cask|scalePackedTensor|computeOffsets",
    re.IGNORECASE,
)


VENDORS: Final = re.compile(
    r"_Z|nvjet_|sm\d+_xmma_|cutlass_\d|fmha_cutlass|cudnn_generated"
    r"|(?:maxwell|volta|turing|ampere|hopper)_(?:\w+_)?[sdhczi][a-z0-9]*(?:gemm|cudnn)_"
)
"""Names that a library's kernels begin with. CUPTI tells them as they are there, and they could be a function's in
Python, too: a kernel of such a name is nobody's own."""
REDUCING: Final = re.compile(r"Reduce(?:Add|Multiply|Mean|Minimum|Maximum)", re.IGNORECASE)
"""In the names of gathers and scatters that reduce."""
BIAS: Final = "CUDAFunctor_add"


def kernel_kind(name: str) -> str:
    """`movement`, `library` (products and convolutions) or `other`, by what its makers call a kernel."""
    if MOVEMENT.search(name):
        return "other" if REDUCING.search(name) else "movement"
    if NOT_LIBRARY.search(name):
        return "other"
    return "library" if LIBRARY.search(name) else "other"


def is_forbidden(kind: str, foreign: str) -> bool:
    """Whether a foreign kernel of this kind computes what the policy wants the candidate's own to compute."""
    return foreign != "any" and (kind == "other" or (kind == "library" and foreign == "movement"))


# --- weighing ---


@dataclass(frozen=True)
class Own:
    """What trusted children found: names in the syntax tree (None: not told), hashes of compiled images by name."""

    names: frozenset[str] | None = None
    images: dict[str, frozenset[str]] = field(default_factory=dict)

    @staticmethod
    def parse(found: Json) -> Own:
        names = found.get("names")
        images: dict[str, set[str]] = {}
        for item in found.get("compiled") or []:
            images.setdefault(str(item["name"]), set()).add(str(item["hash"]))
        return Own(
            None if names is None else frozenset(map(str, names)),
            {name: frozenset(hashes) for name, hashes in images.items()},
        )


@dataclass
class Weighed:
    """Who did how much. Shares are of time on a GPU, of elements without one."""

    coverage: float | None = None
    own_ms: float | None = None
    all_ms: float | None = None
    floor_ns: float = 0.0  # the least time in which the own kernels were done in one call
    foreign: list[Json] = field(default_factory=list)
    kernels: list[Json] = field(default_factory=list)
    culprits: list[Json] = field(default_factory=list)  # of `foreign`: those that the policy does not allow
    is_forgiven: bool = False  # there were some, of too small a share
    of: str = "GPU's time"


def busy_ns(records: list[Record]) -> int:
    """Nanoseconds in which at least one of them ran."""
    total, until = 0, -1
    for item in sorted(records, key=lambda item: item.start_ns):
        if item.end_ns > until:
            total += item.end_ns - max(item.start_ns, until)
            until = item.end_ns
    return total


def _kind_of(record: Record) -> str:
    """What goes to the host may be computed there, where nothing is recorded: it counts as if it were."""
    if record.kind == activity.KERNEL:
        return kernel_kind(record.name)
    return "other" if record.name == activity.COPY_NAMES[2] else "movement"


def _kinds_of(records: list[Record], is_own: Callable[[Record], bool]) -> Iterator[tuple[Record, str]]:
    """Each with its kind, `own` for the candidate's, in the order in which they began.

    torch adds a convolution's bias by a kernel of its own, right after the library's: that is part of it.
    """
    may_add = False
    for record in sorted(records, key=lambda item: item.start_ns):
        kind = "own" if is_own(record) else _kind_of(record)
        if may_add and kind == "other" and BIAS in record.name:
            kind, may_add = "library", False
        elif kind != "movement":
            may_add = kind == "library"
        yield record, kind


def _is_small(record: Record, largest: int) -> bool:
    return record.ns <= SMALL_NS and record.threads <= max(SMALL_THREADS, largest // SMALL_PART)


def weigh_records(
    calls: list[Activity],
    own: Own,
    decoys: set[str],
    foreign: str,
    *,
    elements: int = 1 << 62,
    reference_ns: float = math.inf,
) -> Weighed:
    """The records of some calls, alike in what they do.

    elements: of the case; reference_ns: what the reference takes for it, or more.
    """
    records = [record for call in calls for record in call.records]
    all_ns = sum(record.ns for record in records)
    if all_ns == 0:
        return Weighed()

    def is_own(record: Record) -> bool:
        if record.kind != activity.KERNEL or own.names is None or VENDORS.match(record.name):
            return False
        return record.name in own.names or clean_text(record.name, AST_NAME_MAX) in own.names

    mine = [record for record in records if is_own(record) and record.name not in decoys]
    largest = min(max((record.threads for record in mine), default=0), OWN_MOST * elements)
    decoys_ns = sum(record.ns for record in records if is_own(record) and record.name in decoys)
    judged_ns = max(1.0, min(all_ns - decoys_ns, SLOWEST * reference_ns * len(calls)))
    groups: dict[tuple[str, str], list[Record]] = {}
    for call in calls:
        for record, kind in _kinds_of(call.records, is_own):
            groups.setdefault((record.name, kind), []).append(record)
    found = Weighed(sum(record.ns for record in mine) / all_ns)
    found.own_ms = sum(record.ns for record in mine) / len(calls) / 1e6
    found.all_ms = all_ns / len(calls) / 1e6
    found.floor_ns = min(
        float(busy_ns([item for item in call.records if is_own(item) and item.name not in decoys])) for call in calls
    )
    seen = frozenset[str]().union(*[call.modules for call in calls])
    heavy = light = 0
    for (name, kind), group in sorted(groups.items(), key=lambda item: -sum(record.ns for record in item[1])):
        total = sum(record.ns for record in group)
        line: Json = {"name": activity.plain(name)[:NAME_MAX], "share": round(total / all_ns, 6), "count": len(group)}
        if is_own(group[0]):
            images = own.images.get(name)
            found.kernels.append({**line, "image": None if images is None else bool(images & seen)})
            continue
        found.foreign.append({**line, "kind": kind})
        if is_forbidden(kind, foreign):
            found.culprits.append(found.foreign[-1])
            small = sum(record.ns for record in group if kind == "other" and _is_small(record, largest))
            light, heavy = light + small, heavy + total - small
    if heavy / judged_ns <= TIME_SHARE and (heavy + light) / judged_ns <= SMALL_SHARE:
        found.is_forgiven = bool(found.culprits)
        found.culprits = []
    if any(call.is_overrun for call in calls):  # behind enough launches of its own anybody's work could hide
        line = {"name": OVERRUN, "share": 1.0, "count": sum(call.lost for call in calls), "kind": "other"}
        found.foreign.insert(0, line)
        found.culprits = [line] if is_forbidden("other", foreign) else []
    del found.foreign[FOREIGN_MAX:]
    return found


def weigh_launches(
    told: Json, decoys: set[str], foreign: str, limit: float = ELEMENT_SHARE, most: int = 1 << 62
) -> Weighed:
    """What a child said of its launches and of torch's functions beside them: elements stand for time.

    limit: a share of them that is held against the candidate; most: elements of own launches that count.
    """
    launched = {str(name)[:NAME_MAX]: _count(n) for name, n in _mapping(told.get("launches"))}
    own = float(min(most, _count(told.get("elements"))))
    ops = [item for item in _items(told.get("ops")) if isinstance(item, list) and len(item) == 3]
    lines: list[Json] = []
    for name, count, elements in ops:
        plain = activity.plain(str(name))[:NAME_MAX]
        lines.append({"name": plain, "count": _count(count), "elements": _count(elements), "kind": kind_of(plain)})
    total = own + sum(line["elements"] for line in lines)
    if total == 0:
        return Weighed()
    for line in lines:
        line["share"] = round(line.pop("elements") / total, 6)
    if launched and set(launched) <= decoys:
        own = 0.0
    found = Weighed(own / total, of="elements that are read and written")
    found.kernels = [{"name": activity.plain(name), "count": count} for name, count in sorted(launched.items())]
    found.foreign = sorted(lines, key=lambda line: -float(line["share"]))
    found.culprits = [line for line in found.foreign if is_forbidden(line["kind"], foreign)]
    if sum(line["share"] for line in found.culprits) < limit:
        found.culprits = []
    del found.foreign[FOREIGN_MAX:]
    return found


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def _mapping(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items())[:256] if isinstance(value, dict) else []


def _items(value: Any) -> list[Any]:
    return value[:256] if isinstance(value, list) else []


# --- the pass ---


class Refused(Exception):
    """The candidate answers otherwise when it is observed, or its records are none: there is no evidence."""


class Pass:
    """One evidence pass. The candidate's process is loaded, and not used for anything else afterwards."""

    def __init__(self, job: Job, case: Json, own: Own) -> None:
        self._job = job
        self._case = case
        self._own = own
        self._method = job.method
        self._recorded = job.recorded if case["name"] == "own" else job.recorded_at_tiny
        self._model, self._state = job.reference.model(case, 0)
        self._launched: list[str] = []
        self._wanted: list[Expected] = []
        self._decoys: set[str] = set()
        self._flags: list[str] = []
        self._activities: list[Activity] = []
        self._told: Json = {}
        self._counted: Json = {}  # on a GPU: the same of a call in which torch's functions were counted
        self._reference_ns = math.inf
        self._is_decoy = False
        self._is_still = False  # nothing was recorded of a right answer of `full`
        self._is_idle = False  # it was right, and launched none of its kernels
        self._why: str | None = job.method_why
        self._refused: str | None = None
        self._failed: PeerFailed | None = None  # it fails, observed or not

    def run(self, report: Report) -> Report:
        """The report of the stage before, with its evidence, and failed where that speaks against the candidate."""
        try:
            self._job.build(self._model, self._case, 0, self._state)
            self._observe()
        except PeerFailed as failure:
            self._fail(failure)
        except Refused as refused:
            self._refuse(str(refused))
        else:
            self._silence()
        if report.detail.get("outcome") == "measured":
            self._reference_ns = statistics.median(report.detail["reference_ns"])
        weighed = self._weigh()
        report.detail["evidence"] = self._json(weighed)
        if report.stage == "timing":
            hold_to_floor(report.detail, weighed.floor_ns, self._flags)
        return self._decide(report, weighed)

    def run_on_full(self, report: Report) -> Report:
        """The report of `full`, failed where what was recorded of right answers at the case speaks against it.

        Whoever is caught here is not timed, and failing in a later case, or in `timing`, saves nobody from this.
        Nothing is called unless nothing was recorded of a right answer: it may have been kept from the call before.
        """
        weighed = self._weigh_full(self._own)
        if weighed is None and self._is_still and report.outcome == "pass":
            weighed = self._weigh_another()
        if weighed is None and self._refused is None and self._failed is None:
            return report
        if weighed is not None and not weighed.culprits:
            for _ in range(2):
                self._expect(self._job.reference.inputs(self._case, secrets.randbits(62)))
        found_so_far = report.class_
        decided = self._decide(report, weighed or Weighed())
        if decided.class_ != found_so_far:
            decided.detail["evidence"] = {**self._json(weighed or Weighed()), "calls": self._n_before()}
            decided.detail["first_mismatch"] = None  # it is not what decided
        return decided

    def _weigh_another(self) -> Weighed | None:
        """A call on fresh inputs; weighed as those of `full`."""
        try:
            self._job.build(self._model, self._case, 0, self._state)
            self._observe_once(record=True)
        except PeerFailed as failure:
            self._fail(failure)
        except Refused as refused:
            self._refuse(str(refused))
        found = self._weigh_records(self._activities, self._own)
        return found if found.culprits or found.coverage == 0 else None

    # --- calls ---

    def _expect(self, tree: Any) -> Expected:
        job = self._job
        wanted = job.reference.expect(self._model, tree, seed=CALL_SEED, precision=job.precision(), want_fp64=False)
        self._wanted = [*self._wanted[-1:], wanted]
        return wanted

    def _call(self, silent: list[str] | None, *, record: bool, ops: bool, is_seen: bool = True) -> bool:
        """One call on fresh inputs: whether the answer is right. PeerFailed when it does not answer."""
        job = self._job
        limit_ms = max(CALL_LIMIT_MS, job.call_limit_ms)
        tree = job.reference.inputs(self._case, secrets.randbits(62))
        wanted = self._expect(tree)
        set_ = secrets.randbelow(job.reference.sizes.sets)
        placed, _ = job.place_inputs(tree, set_)
        tf32 = job.precision() == "tf32" and job.candidate.device.type == "cuda"
        job.candidate.bind(set_, self._model, placed, limit_ms=BUILD_LIMIT_MS, tf32=tf32, seed=CALL_SEED)
        if not is_seen:
            return self._is_right(job.candidate.call(set_, limit_ms), wanted)
        job.candidate.observe(silent, record=record, ops=ops)
        try:
            got = job.candidate.call(set_, limit_ms)
            is_right = self._is_right(got, wanted)
        except PeerFailed as failure:
            if not failure.is_gone:
                job.candidate.observed(record=record)
            raise
        self._told, data = job.candidate.observed(record=record)
        if record:
            self._activities.append(activity.parse(data))
        return is_right

    def _is_right(self, got: Any, wanted: Expected) -> bool:
        leaves = list(values.leaves(got))
        if [path for path, _ in leaves] != wanted.paths:
            return False
        for index, (_, leaf) in enumerate(leaves):
            mine, theirs = tolerance.as_tensor(leaf), tolerance.as_tensor(wanted.own[index])
            if mine is None or theirs is None:
                if leaf != wanted.own[index]:
                    return False
                continue
            if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
                return False
            limit = self._job.timing_limit(index, wanted.own[index])
            if not tolerance.compare(mine, theirs, limit).is_match(limit):
                return False
        return True

    def _observe(self) -> None:
        """Calls with every kernel at work, observed."""
        record = self._method == "cupti"
        for _ in range(CALLS if record else 1):
            self._observe_once(record)
        if record and self._weigh_records(self._activities, self._known()).is_forgiven:
            told = self._told
            self._observe_once(record=False)
            self._told, self._counted = told, self._told
            launches = dict(_mapping(self._counted.get("launches")))
            if not _count(self._counted.get("elements")) or UNKNOWN in launches:
                self._counted = {}  # of a graph's kernels, and of those launched by themselves, nothing is known
        self._launched = sorted(str(name)[:NAME_MAX] for name, _ in _mapping(self._told.get("launches")))
        if self._method == "interpreter" and not self._launched:
            told = self._told
            self._observe_once(record)
            self._is_idle = self._tells_inputs_apart()
            self._told = told

    def _observe_once(self, record: bool) -> None:
        """One right answer, observed. Where there is none: PeerFailed if it fails unobserved too or is gone."""
        kept = list(self._activities)
        for _ in range(TRIES):
            try:
                if self._call([], record=record, ops=not record):
                    return
                why = "it answers wrongly while it is observed"
            except PeerFailed as failure:
                if failure.is_gone:
                    raise
                why = f"it fails while it is observed: {failure.error['text'][:400]}"
            except activity.BadRecords as error:
                why = f"its records are none: {error}"
            self._activities, self._told = list(kept), {}
            if not self._call([], record=False, ops=False, is_seen=False):
                text = "a call on fresh inputs answered wrongly"
                raise PeerFailed("mismatch", text, {"type": "mismatch", "text": text, "line": None})
        self._activities = []
        raise Refused(why)

    def _fail(self, failure: PeerFailed) -> None:
        self._failed = failure
        self._why = f"the process failed while it was observed: {failure.error['text'][:400]}"

    def _refuse(self, why: str) -> None:
        self._why = self._refused = why
        self._flags.append("evidence_refused")

    def _silence(self) -> None:
        """All kernels silent, then each alone. A process that ends then may do so for good reasons."""
        observed = self._told
        try:
            if self._launched and self._job.policy.foreign != "any":
                self._is_decoy = self._is_right_without(None)
                if self._is_decoy:
                    self._decoys = set(self._launched)
                elif len(self._launched) > 1:
                    self._each_alone()
        except PeerFailed as failure:
            self._why = f"the process failed while its kernels were silent: {failure.error['text'][:400]}"
        finally:
            self._told = observed

    def _each_alone(self) -> None:
        end = time.monotonic() + ALONE_S
        for name in self._launched[:ALONE_MAX]:
            if time.monotonic() > end:
                break
            if self._is_right_without([name]):
                self._decoys.add(name)

    def _is_right_without(self, silent: list[str] | None) -> bool:
        """The answer is right, on inputs that it was never given, though these kernels wrote rubbish."""
        try:
            is_right = self._call(silent, record=False, ops=False)
        except PeerFailed as failure:
            if failure.is_gone:
                raise
            return False
        return is_right and _count(self._told.get("silenced")) > 0 and self._tells_inputs_apart()

    def _tells_inputs_apart(self) -> bool:
        """The right answers to the last inputs and to those before differ: neither memory nor a constant gives both."""
        last, before = self._wanted[-1], self._wanted[-2]
        if last.paths != before.paths:
            return True
        for index, (a, b) in enumerate(zip(last.own, before.own, strict=True)):
            if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
                if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor) or a != b:
                    return True
                continue
            limit = self._job.timing_limit(index, a)
            loose = tolerance.Limit(LOOSE * limit.rtol, LOOSE * limit.atol, limit.ratio, limit.outlier)
            if a.shape != b.shape or not tolerance.compare(b, a, loose).is_match(loose):
                return True
        return False

    # --- what it comes to ---

    def _weigh(self) -> Weighed:
        if self._method == "cupti":
            own = self._known()
            observed = self._weigh_records(self._activities, own)
            if self._counted and not observed.culprits:
                counted = self._weigh_told(self._counted)
                observed.culprits, observed.of = counted.culprits, counted.of
            return observed if observed.culprits else self._weigh_full(own) or observed
        calls = [self._told, *[told for told in _items(self._told.get("before")) if isinstance(told, dict)]]
        found = [self._weigh_told(told) for told in calls]
        return next((weighed for weighed in found if weighed.culprits), None) or self._weigh_full(self._own) or found[0]

    def _known(self) -> Own:
        """What is told of its kernels; else what it launched."""
        if self._own.names is not None:
            return self._own
        return Own(frozenset(str(name)[:NAME_MAX] for name, _ in _mapping(self._told.get("launches"))))

    def _weigh_records(self, calls: list[Activity], own: Own) -> Weighed:
        known = self._job.reference.rough_ns.get(self._model, math.inf)
        return weigh_records(
            calls,
            own,
            self._decoys,
            self._job.policy.foreign,
            elements=self._case["elements"],
            reference_ns=min(self._reference_ns, known),
        )

    def _weigh_told(self, told: Json) -> Weighed:
        limit = ELEMENT_SHARE if self._case["name"] == "own" else TINY_SHARE
        return weigh_launches(told, self._decoys, self._job.policy.foreign, limit, OWN_MOST * self._case["elements"])

    def _before(self) -> list[Json]:
        """What was told of the calls of this case before the pass: it may be all that there is of who ends in it."""
        return self._job.told.get(self._case["name"], [])

    def _n_before(self) -> int:
        return len(self._recorded) if self._method == "cupti" else len(self._before())

    def _weigh_full(self, own: Own) -> Weighed | None:
        """The first call of `full` in which others did what the policy does not allow, or all that was done."""
        if self._method != "cupti":
            return next((weighed for weighed in map(self._weigh_told, self._before()) if weighed.culprits), None)
        for data in self._recorded:
            try:
                call = activity.parse(data)
            except activity.BadRecords as error:
                self._refuse(f"its records of full are none: {error}")
                return None
            weighed = self._weigh_records([call], own)
            if weighed.culprits or weighed.coverage == 0:
                return weighed
            self._is_still |= weighed.coverage is None
        return None

    def _json(self, weighed: Weighed) -> Json:
        if self._decoys:
            self._flags.append("decoy_kernel")
        if weighed.coverage is None:
            self._flags.append("no_evidence")
        if any(line["name"] == OPAQUE for line in weighed.foreign):
            self._flags.append("opaque_operator")
        images = {line.get("image") for line in weighed.kernels}
        if False in images and True not in images:
            self._flags.append("unknown_image")
        found: Json = {
            "method": self._method,
            "why": self._why,
            "calls": len(self._activities) or (1 if self._told else 0),
            "coverage": _rounded(weighed.coverage),
            "own_ms": _rounded(weighed.own_ms),
            "all_ms": _rounded(weighed.all_ms),
            "kernels": weighed.kernels,
            "foreign": weighed.foreign,
            "decoys": sorted(activity.plain(name) for name in self._decoys),
            "lost": sum(item.lost for item in self._activities),
            # CUPTI works here, as this process showed before it read the candidate, and there are no records.
            "is_withheld": self._method == "cupti" and weighed.coverage is None,
            "flags": self._flags,
        }
        return found

    def _is_without_kernels(self, weighed: Weighed) -> bool:
        """It was right on inputs that it was never given, and none of its kernels ran."""
        if self._method != "cupti":
            return self._is_idle
        return weighed.coverage == 0 and not self._decoys and len(self._wanted) > 1 and self._tells_inputs_apart()

    def _decide(self, report: Report, weighed: Weighed) -> Report:
        text = rule = class_ = None
        if self._is_decoy:
            class_, rule = "hack", "decoy"
            text = "the output is right though none of the candidate's kernels ran: they are decoys"
        elif self._is_without_kernels(weighed) and self._job.policy.foreign != "any":
            class_, rule = "policy", "foreign_kernel"
            text = "the output is right though none of the candidate's kernels was launched"
        elif self._refused is not None and self._job.policy.foreign != "any":
            class_, rule = "policy", "evidence_refused"
            text = f"whose kernels did the work cannot be told: {self._refused}"
        elif any(line["name"] == TOO_MANY for line in weighed.culprits):
            class_, rule = "policy", "foreign_kernel"
            text = f"one call uses more than {FUNCTIONS_MAX:,} of torch's functions: without a GPU no more are watched"
        elif any(line["name"] == OVERRUN for line in weighed.culprits):
            class_, rule = "policy", "foreign_kernel"
            text = f"one call has the GPU do more than {activity.RECORDS_MAX:,} things: no more are recorded"
        elif weighed.culprits:
            class_, rule = "policy", "foreign_kernel"
            share = sum(line["share"] for line in weighed.culprits)
            names = ", ".join(repr(line["name"][:80]) for line in weighed.culprits[:3])
            text = (
                f"torch computes what the candidate's kernels should: {names} "
                f"({'have' if len(weighed.culprits) > 1 else 'has'} {100 * share:.0f} % of the {weighed.of})"
            )
        error: Json = {"type": rule, "text": text, "line": None}
        if class_ is None and self._failed is not None:
            class_, rule, error = self._failed.class_, self._failed.rule, self._failed.error
            report.done = 0  # a case counts once it is known whose work the answer was
        if class_ is None:
            return report
        report.outcome, report.class_, report.rule, report.error = "fail", class_, rule, error
        report.generality = None
        return report


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 6)


def hold_to_floor(detail: Json, floor_ns: float, flags: list[str]) -> None:
    """No sample is credited with less than the own kernels took while they were recorded."""
    samples = detail.get("candidate_ns")
    if not samples or floor_ns <= 0:
        return
    held = [max(sample, round(floor_ns, 1)) for sample in samples]
    if statistics.median(held) > 1.05 * statistics.median(samples):
        flags.append("held_to_kernel_time")
    detail["candidate_ns"] = held


def collect(job: Job, report: Report, own: Own, *, is_last: bool) -> Report:
    """The evidence of a job whose stage gave this report: added to it, and decided by.

    is_last: the candidate will not be called again, so that it can be observed now.
    """
    case = job.evidence_case()
    if case is None:
        return report
    if is_last and report.outcome != "fail":
        return Pass(job, case, own).run(report)
    is_answered = report.outcome == "fail" or bool(job.recorded)
    if report.stage == "full" and report.class_ != "hack" and own.names is not None and is_answered:
        report = Pass(job, case, own).run_on_full(report)
        tiny = job.spec["cases"]["tiny"]
        if report.class_ not in (None, "policy", "hack") and report.done == 0 and tiny and job.is_right_at_tiny:
            return Pass(job, tiny, own).run_on_full(report)  # all that it would be paid for is what it did there
    return report
