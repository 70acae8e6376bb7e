"""A child whose work is recorded, and that lies about the records or ends meanwhile: the referee refuses, and goes on.

CUPTI is made up here, so that no GPU is needed: the children say that it works, and what they then send as records
depends on a word in the candidate's source.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import activity
import pytest
from rig import HONEST, TASK, Rig
from test_evidence import RELU, kernel, packed

RECORDS = {
    "mine": packed([kernel()], [b"kernel"]),
    "theirs": packed([kernel(), kernel(1, end=90_000)], [b"kernel", RELU.encode()]),
    "overrun": packed([kernel()] * activity.RECORDS_MAX, [b"kernel"], lost=1),
    "light": packed([kernel(end=90_010), kernel(1, 91_000, 93_000)], [b"kernel", RELU.encode()]),
    "nonsense": b"x",
    "still": packed([], []),
    "too long": bytes(1 << 21),
}

PRELUDE = """
import child, os, re
def told(self, search=re.search):
    return search("# lies: (.*)", self._source + "# lies: mine")[1]
def watch(self, message):
    self._channel.send({"ev": "watching", "method": "cupti", "why": None})
def begin(self):
    pass
def end(self, told=told, exit=os._exit, failed=child.StepFailed, folder="FOLDER"):
    lie = told(self)
    if lie == "small":
        lie = "theirs" if len(self.asked[0]) < 40 else "mine"
    if lie == "kept":
        lie = "theirs" if self.is_fresh and not self._records else "mine"
    if self._records and lie != "light":
        lie = {"still, then theirs": "theirs"}.get(lie, "mine")
    elif lie.startswith("still"):
        lie = "still"
    if lie == "ends":
        exit(0)
    if lie == "fails":
        raise failed("recorded", RuntimeError("no"), "candidate.py")
    path = folder + "/" + lie
    with open(path if lie in LIES else folder + "/mine", "rb") as file:
        return file.read()
def send(self, event, found, told=told, really=child.Child._send_found):
    if event == "recorded" and told(self) == "nothing":
        found = {}
    if event == "recorded" and told(self) == "more":
        found["more"] = b""
    really(self, event, found)
def answer(self, doorbell, bell, is_timed, really=child.Child._answer):
    asked = [item.tolist() for item in self._bindings[bell.set].call.inputs]
    self.is_fresh, self.asked = asked != getattr(self, "asked", None), asked
    return really(self, doorbell, bell, is_timed)
child.Child._answer = answer
child.Child._op_watch, child.Child._begin_records = watch, begin
child.Child._end_records, child.Child._send_found = end, send
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rig, str, dict[str, Any]]]:
    folder: Path = tmp_path_factory.mktemp("records")
    for name, data in RECORDS.items():
        (folder / name).write_bytes(data)
    prelude = PRELUDE.replace("FOLDER", str(folder)).replace("LIES", repr(tuple(RECORDS)))
    with Rig(tmp_path_factory.mktemp("rig"), child_prelude=prelude) as rig:
        child = rig.child()
        yield rig, child, rig.register(child, TASK)


ENDS: dict[str, tuple[str | None, str | None]] = {
    "mine": (None, None),
    "theirs": ("policy", "foreign_kernel"),
    "overrun": ("policy", "foreign_kernel"),
    "nonsense": ("policy", "evidence_refused"),
    "too long": ("crash", None),
    "nothing": ("crash", None),
    "more": ("crash", None),
    "ends": ("crash", None),
    "fails": ("launch", None),
}


@pytest.mark.parametrize("lie", ENDS)
def test_what_a_child_says_of_the_records_of_full(task: tuple[Rig, str, dict[str, Any]], lie: str) -> None:
    rig, child, spec = task
    report = rig.judge(child, spec, TASK, f"{HONEST}# lies: {lie}\n", evidence=True)["full"]
    assert (report["class"], report["rule"]) == ENDS[lie], report
    assert report["outcome"] == ("pass" if lie == "mine" else "fail")
    if lie == "mine":
        assert report["detail"]["evidence"]["coverage"] == 1 and not report["detail"]["evidence"]["flags"]


EARLY: dict[str, tuple[str | None, str | None]] = {
    "mine": (None, None),
    "still": (None, None),
    "still, then theirs": ("policy", "foreign_kernel"),
    "theirs": ("policy", "foreign_kernel"),
    "kept": ("policy", "foreign_kernel"),  # the kernel copies what torch computed in the call before
    "nonsense": ("policy", "evidence_refused"),
}


@pytest.mark.parametrize("lie", EARLY)
def test_what_full_recorded_decides_at_its_end(task: tuple[Rig, str, dict[str, Any]], lie: str) -> None:
    """Though another stage is to come: who fails in that one was not right by others' work either."""
    rig, child, spec = task
    report = rig.judge(child, spec, TASK, f"{HONEST}# lies: {lie}\n")["full"]
    assert (report["class"], report["rule"]) == EARLY[lie], report
    assert ("evidence" in report["detail"]) == (report["class"] is not None)


LATE = {"mine": ("mismatch", None), "theirs": ("policy", "foreign_kernel"), "nonsense": ("policy", "evidence_refused")}


@pytest.mark.parametrize("lie", LATE)
def test_who_fails_in_the_last_case_is_asked_whose_work_the_others_were(
    task: tuple[Rig, str, dict[str, Any]], lie: str
) -> None:
    """Else they would be paid for: a cheat would fail there on purpose."""
    rig, child, spec = task
    count = "self.n = getattr(self, 'n', 0) + (x.numel() > 64)"
    failing = HONEST.replace("return y", f"{count}\n        return y + (self.n > 4)")
    report = rig.judge(child, spec, TASK, f"{failing}# lies: {lie}\n")["full"]
    assert (report["class"], report["rule"]) == LATE[lie], report
    assert report["done"] > 0 and (report["detail"]["first_mismatch"] is None) == (lie != "mine")


WRONG = {"mine": ("mismatch", None), "small": ("policy", "foreign_kernel"), "kept": ("policy", "foreign_kernel")}


@pytest.mark.parametrize("lie", WRONG)
def test_who_is_right_at_the_tiny_case_alone_is_asked_whose_work_that_was(
    task: tuple[Rig, str, dict[str, Any]], lie: str
) -> None:
    """That is all that it is paid for."""
    rig, child, spec = task
    failing = HONEST.replace("return y", "return y + (x.shape[0] > 39)")
    report = rig.judge(child, spec, TASK, f"{failing}# lies: {lie}\n")["full"]
    assert (report["class"], report["rule"]) == WRONG[lie], report


@pytest.mark.parametrize("is_cheat", [True, False])
def test_a_little_of_the_time_is_not_much_of_the_work(task: tuple[Rig, str, dict[str, Any]], *, is_cheat: bool) -> None:
    """A launch of torch's that counts for little may be a scalar, or a small task's whole answer."""
    rig, child, spec = task
    told = "total = x.numel() + torch.zeros((), device=x.device).exp().mul(0).int().item()"
    helps = "x = torch.relu(x)" if is_cheat else told
    source = HONEST.replace("y = torch.empty_like(x)", f"{helps}; y = torch.empty_like(x)")
    assert source != HONEST
    report = rig.judge(child, spec, TASK, f"{source}# lies: light\n", evidence=True)["full"]
    assert (report["class"], report["rule"]) == (("policy", "foreign_kernel") if is_cheat else (None, None)), report
    if is_cheat:
        assert "elements" in report["error"]["text"], report


FORGET = """
def forget():
    import gc
    for found in gc.get_objects():
        if type(found).__name__ == "Observer" and found.is_on:
            found._elements = 0
"""


def test_who_launches_as_nobody_counts_is_not_asked_for_elements(task: tuple[Rig, str, dict[str, Any]]) -> None:
    """The kernels of a graph are counted nowhere; here what was counted is forgotten."""
    rig, child, spec = task
    helps = "x = x + torch.zeros(x.shape[-1], device=x.device).exp().sub(1); y = torch.empty_like(x)"
    source = HONEST.replace("y = torch.empty_like(x)", helps)
    source = source.replace("        return y", "        forget()\n        return y") + FORGET
    report = rig.judge(child, spec, TASK, f"{source}# lies: light\n", evidence=True)["full"]
    assert report["class"] is None, report
