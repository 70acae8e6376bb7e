"""The inputs of compute-sanitizer's child from a job, and its report (executor/sanitize.py). It decides nothing."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

import torch
from executor import sanitize
from shared import values
from shared.wire import WORKER_DETAIL_MAX, Json, clean_text

from oracle.peer import NotTheCandidate, Peer, PeerFailed

if TYPE_CHECKING:
    from oracle.judge import Job

LIMIT_MS: Final = 1000 * (sanitize.LIMIT_S + 10)


def look(job: Job | None, tool: Peer | None) -> Json:
    """The report in the verdict."""
    try:
        if job is None or job.images is None:
            raise NotTheCandidate("the process that ran its plan has ended")
        if tool is None:
            raise NotTheCandidate("its process could not be made")
        return _asked(job, tool, job.images)
    except PeerFailed as failure:
        why = str(failure.error["text"])
    except NotTheCandidate as broken:
        why = str(broken)
    return {"why": clean_text(why), "tools": []}


def _asked(job: Job, tool: Peer, images: bytes) -> Json:
    contents = {"images": images, "inputs": _inputs(job)}
    message = tool.ask({"op": "sanitize"}, "sanitized", LIMIT_MS, contents, takes=("found",))
    found: Json = json.loads(message.take("found", WORKER_DETAIL_MAX))
    return found


def _inputs(job: Job) -> bytes:
    """Of the cases that judge, by size, as get_inputs() draws them: so indices and lengths are such as they may be."""
    cases = job.spec["cases"]
    judging = [case for case in (cases["tiny"], cases["own"], *cases["shapes"]) if case is not None]
    found: dict[str, Any] = {}
    left = sanitize.INPUTS_MAX
    for case in sorted(judging, key=lambda case: int(case["elements"])):
        left -= case["input_bytes"]
        if left < 0:
            break
        tree = job.reference.inputs(case, job.reference.told_seed)
        tensors = [view.cpu() for view in job.reference.views(tree)]
        tensors.reverse()  # a tree is decoded in the order of its tensors
        found[case["name"]] = values.decode(tree, lambda _note: tensors.pop())  # noqa: B023
    if not found:
        raise NotTheCandidate(f"the inputs of its smallest case have more than {sanitize.INPUTS_MAX >> 20} MiB")
    file = io.BytesIO()
    torch.save(found, file)
    return file.getvalue()
