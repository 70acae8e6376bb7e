"""trainer prepare: selects the rows of a data set that are fit to be tasks.

Cheap checks come first: the columns, the syntax tree, duplicates, all in the order of the rows. The remaining rows are
sent to the daemon, a few at once. Rows are written in their order again, so that the files do not depend on the
concurrency, nor on how often the command was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

from finetune import checkpoint

from .ask import Daemon, Inquiry, Journal, Stopped, need_gpu
from .entry import LICENSES, Entry, Rules, entry_of, read_tree
from .errors import FAILED, INTERRUPTED, PrepareError
from .hub import KNOWN, fetch
from .rows import rows_of, tasks_of
from .tree import Parsers
from .write import Outputs, Prompt, print_summary

Json = dict[str, Any]

WAITING_FOR_EACH = 4  # rows in the window for each one that is asked of
CHUNK_ROWS, CHUNK_CHARS = 32, 1 << 20
CHUNKS_AHEAD = 16
TOLD_EVERY_S = 2.0


def options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        "trainer prepare",
        description="Of a data set's rows keep those that are fit to be tasks, in data/processed of the working "
        "directory: tasks.jsonl, sft_train.jsonl (rows with an answer), difficulty_labels.jsonl, dropped.jsonl with a "
        "reason for each other row.",
        allow_abbrev=False,
    )
    a = p.add_argument
    a("--file", type=Path, help="the data set: a JSON array, JSON Lines, parquet, a saved Dataset, a KernelBench "
      "checkout, TritonBench's T")  # fmt: skip
    a("--source", help="what the rows say of where they come from (default: the file's name); without --file, "
      "kernelbook and kernelbench are fetched from the hub (HF_ENDPOINT, HF_TOKEN) into data/raw")  # fmt: skip
    a("--id", help="of the data set on the hub (default: the source's)")
    a("--revision", help="a branch, a tag or a commit of it (default main)")
    a("--files", metavar="PATTERN", help="which of its files (default: the source's)")
    a("--digest", metavar="sha256:HEX", help="what the fetched file's digest has to be")
    a("--labels", choices=("operations", "heuristic"), default="operations", help="operations (default): by how many "
      "forward does; heuristic: level 2 where forward has several calls or + @ *, chained calls, more than 50 tokens, "
      "or the text says fused, fusion or combined; 3 where it says level 3")  # fmt: skip
    a("--overlap", type=Path, metavar="PATH", help="tasks of an evaluation: a row that is one of them is dropped")
    a("--max-samples", type=whole(0), default=1000, metavar="N", help="stop when so many rows are kept (default 1000; "
      "0: all)")  # fmt: skip
    a(
        "--max-lines",
        type=whole(1),
        default=200,
        metavar="N",
        help="of a reference, blank ones not counted (default 200)",
    )
    a(
        "--licenses",
        default=LICENSES,
        metavar="LIST",
        help="SPDX names, one of which a row that names licences must name",
    )
    a("--static", action="store_true", help="ask no daemon: no reference is run")
    a("--verify", action="store_true", help="have each row's own Triton code judged, under --policy (default "
      "kernelbench), and make no fine-tuning row of what fails")  # fmt: skip
    a("-p", "--policy", metavar="FILE|NAME,KEY=VALUE,...", help="of --verify")
    a("--enlarge", action="store_true", help="on a GPU, enlarge each task's shapes until its reference runs 50 us to "
      "20 ms, and leave out of tasks.jsonl what does not get there")  # fmt: skip
    common(p)
    a("--attempts", type=whole(1), default=6, metavar="N", help="of one request to the hub (default 6)")
    a("-c", "--concurrency", type=whole(1), default=8, metavar="N", help="rows asked of at once (default 8)")
    a("--parsed-policy", default='{"1":"kernelbench","2":"kernelbench","sizes":false}', help=argparse.SUPPRESS)
    return p


def common(p: argparse.ArgumentParser) -> None:
    """The options of both prepare and fuse. trainer(1) itself reads --python and --policy."""
    p.add_argument("-u", "--url", help="verifierd (or VERIFIERD_URL; default http://127.0.0.1:8080)")
    p.add_argument("--cacert", metavar="FILE", help="the certificates to believe, PEM (or CURL_CA_BUNDLE)")
    p.add_argument("-w", "--workdir", type=Path, default=Path(), metavar="DIR", help="where data goes (default .)")
    p.add_argument("--python", metavar="PROGRAM", help="the interpreter that has pyarrow, datasets and huggingface_hub "
                   "(or TRAINER_PYTHON; default python3)")  # fmt: skip
    p.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the draws of fuse (default 0)")
    p.add_argument("--check-arguments", action="store_true", help=argparse.SUPPRESS)


def whole(least: int) -> Any:
    def number(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"takes a whole number from {least}, not {text!r}")
        return int(text)

    return number


def believe(p: argparse.ArgumentParser, certificates: str) -> None:
    """Use these certificates for every connection, here and in processes started from here."""
    path = Path(certificates)
    try:
        path.open("rb").close()
    except OSError as error:
        p.error(f"--cacert {certificates}: {error.strerror}")
    os.environ["CURL_CA_BUNDLE"] = str(path.resolve())


def checked(p: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    o = p.parse_args(arguments)
    if o.file and (o.id or o.digest or o.files or o.revision):
        p.error("--file is read as it lies; --id, --revision, --files and --digest are the hub's")
    if not o.file:
        known = KNOWN.get(o.source or "", (None, None))
        o.id, o.files = o.id or known[0], o.files or known[1]
        if not o.id or not o.files:
            p.error("which data set? --file PATH, --source kernelbook or kernelbench, or --id ID --files PATTERN")
        if o.digest and not re.fullmatch("sha256:[0-9a-fA-F]{64}", o.digest):
            p.error(f"--digest takes sha256: and 64 digits, not {o.digest!r}")
        o.digest = o.digest and o.digest.lower()
    if o.static and o.enlarge:
        p.error("--enlarge needs the daemon's GPU, and --static does not ask the daemon")
    if o.policy and not o.verify:
        p.error("--policy is what --verify judges under: give --verify, too")
    if o.static and o.verify:
        p.error("--verify needs the daemon, which --static does not ask")
    o.policy = o.policy or "kernelbench"
    o.source = o.source or (o.file.resolve().name if o.file else o.id.rpartition("/")[2])
    return o


class Prepare:
    """One run of the command."""

    def __init__(self, o: argparse.Namespace) -> None:
        self.o = o
        policies = json.loads(o.parsed_policy)
        licenses = frozenset(name.strip().lower() for name in o.licenses.split(","))
        self.rules = Rules(o.source, licenses, o.max_lines, o.labels)
        self.directory: Path = o.workdir / "data/processed"
        self.began = self.told = time.monotonic()
        self.seen: dict[str, str] = {}  # digest: where it was first
        self.flight: deque[tuple[Entry, Future[Json] | None]] = deque()
        self.rows = 0
        self.inquiry: Inquiry | None = None
        self.daemon: Daemon | None = None
        if not o.static:
            self.daemon = Daemon(o.url)
            o.enlarge = o.enlarge and need_gpu(self.daemon)
            self.directory.mkdir(parents=True, exist_ok=True)
            journal = Journal(self.directory / "prepare.journal.jsonl")
            self.inquiry = Inquiry(self.daemon, journal, policies if o.verify else None, o.policy, o.enlarge)
        verified = o.policy if o.verify else None
        checked = "static" if o.static else "ran"
        self.out = Outputs(self.directory, self.rules, Prompt(policies["sizes"]), checked, verified, o.enlarge)
        self.pool = ThreadPoolExecutor(o.concurrency)
        self.parsers = Parsers()

    @property
    def is_full(self) -> bool:
        return bool(self.o.max_samples) and self.out.kept >= self.o.max_samples

    def run(self) -> int:
        """Its exit status."""
        fetched = None
        files = [self.o.file]
        if not self.o.file:
            o = self.o
            fetched = fetch(o.id, o.revision or "main", o.files, o.digest, o.workdir, o.attempts)
            files = [Path(row["file"]) for row in fetched["files"]]
        is_whole = False
        try:
            self._read_overlap()
            self.out.open()
            for e in self._entries(files):
                self._take(e)
                if self.is_full:
                    break
            while self.flight and not self.is_full:
                self._write_one()
            is_whole = True
        finally:
            self._close(is_whole)
        more = {"file": str(self.o.file) if self.o.file else None, "fetched": fetched}
        summary = self.out.summary(self.rows, more | {"seconds": time.monotonic() - self.began})
        checkpoint.replace(self.directory / "prepare.json", json.dumps(summary, indent=2) + "\n")
        print_summary(summary)
        if self.out.kept == 0:
            print(f"trainer: no row is kept: {self.directory}/dropped.jsonl says why", file=sys.stderr)
            return FAILED
        return 0

    def _close(self, is_whole: bool) -> None:
        """The requests in progress end first, and are in the journal."""
        if self.daemon and not is_whole:
            self.daemon.is_stopping.set()
        self.pool.shutdown(cancel_futures=True)
        self.parsers.close()
        self.out.close(is_whole)

    # --- rows, by their columns and their tree, in their order ---

    def _chunks(self, files: list[Path]) -> Iterator[list[Entry]]:
        chunk: list[Entry] = []
        chars = base = 0
        for file in files:
            number = 0
            for number, row in rows_of(file):
                e = entry_of(base + number, row, self.rules)
                chunk.append(e)
                chars += len(e.source) + len(e.answer or "")
                if len(chunk) >= CHUNK_ROWS or chars > CHUNK_CHARS:
                    yield chunk
                    chunk, chars = [], 0
            base += number
        yield chunk

    def _entries(self, files: list[Path]) -> Iterator[Entry]:
        """With what the parsers say, which are some chunks ahead."""
        ahead: deque[tuple[list[Entry], list[Json], Future[list[Json]]]] = deque()
        for chunk in self._chunks(files):
            rows = [
                {"source": e.source, "entry_point": e.entry_point, "answer": e.answer} for e in chunk if not e.reason
            ]
            ahead.append((chunk, rows, self.parsers.submit(rows)))
            if len(ahead) > CHUNKS_AHEAD or len(ahead) > self._wanted():
                yield from self._parsed(*ahead.popleft())
        while ahead:
            yield from self._parsed(*ahead.popleft())

    def _wanted(self) -> float:
        left = self.o.max_samples - self.out.kept
        return 2 + left / CHUNK_ROWS if self.o.max_samples else CHUNKS_AHEAD

    def _parsed(self, chunk: list[Entry], rows: list[Json], future: Future[list[Json]]) -> Iterator[Entry]:
        trees = iter(self.parsers.results(future, rows))
        for e in chunk:
            if not e.reason:
                read_tree(e, next(trees), self.rules)
            if not e.reason:
                self._compare(e)
            yield e

    def _compare(self, e: Entry) -> None:
        before = self.seen.setdefault(e.digest, f"row {e.number}")
        if before != f"row {e.number}":
            e.drop("duplicate" if before.startswith("row ") else "overlap", before)

    def _read_overlap(self) -> None:
        if not self.o.overlap:
            return
        for name, source, entry_point in tasks_of(self.o.overlap):
            rows: list[Json] = [{"source": source, "entry_point": entry_point, "answer": None}]
            (tree,) = self.parsers.results(self.parsers.submit(rows), rows)
            if "fault" in tree:
                print(f"trainer: {name} of {self.o.overlap}: {tree['fault'][0]}; nothing is compared with it",
                      file=sys.stderr)  # fmt: skip
            else:
                self.seen.setdefault(tree["digest"], name)

    # --- rows in flight ---

    def _take(self, e: Entry) -> None:
        while self.flight and self._must_write():
            self._write_one()
            if self.is_full:
                return
        future = None
        if self.inquiry and not e.reason:
            said = self.inquiry.before(e)
            if said is None:
                future = self.pool.submit(self.inquiry.ask, e)
            else:
                e.said = said
        self.flight.append((e, future))

    def _must_write(self) -> bool:
        """Is the oldest done, the window full, or would one more be asked of in vain?"""
        future = self.flight[0][1]
        if future is None or future.done() or len(self.flight) >= WAITING_FOR_EACH * self.o.concurrency:
            return True
        return bool(self.o.max_samples) and self.out.kept + len(self.flight) >= self.o.max_samples

    def _write_one(self) -> None:
        e, future = self.flight.popleft()
        if future:
            try:
                e.said = future.result()
            except Stopped:
                raise KeyboardInterrupt from None
        self.rows += 1
        self.out.add(e)
        now = time.monotonic()
        if now - self.told > TOLD_EVERY_S:
            self.told = now
            wanted = f" of {self.o.max_samples}" if self.o.max_samples else ""
            print(f"{self.rows} rows read, {self.out.kept}{wanted} kept; {now - self.began:.0f} s", file=sys.stderr)


def stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def prepare(arguments: list[str]) -> int:
    p = options()
    o = checked(p, arguments)
    if o.check_arguments:
        return 0
    if o.cacert:
        believe(p, o.cacert)
    signal.signal(signal.SIGTERM, stop)
    run: Prepare | None = None
    try:
        run = Prepare(o)
        return run.run()
    except KeyboardInterrupt:
        rows = run.rows if run else 0
        print(f"trainer: interrupted after {rows} rows; run it again to go on", file=sys.stderr)
        return INTERRUPTED


def complain(error: PrepareError | OSError) -> int:
    print(f"trainer: {error}", file=sys.stderr)
    return error.status if isinstance(error, PrepareError) else 3
