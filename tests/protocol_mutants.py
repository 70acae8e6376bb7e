#!/usr/bin/env python3
"""Take one check after the other out of the protocol of the database, and see a test fail for each: `make slow`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600


@dataclass(frozen=True)
class Mutant:
    """A text of a file, what stands there instead, and the unit test that has to fail."""

    name: str
    file: str
    text: str
    instead: str
    test: str = "test_store_conformance"


MUTANTS = (
    Mutant(
        "a verdict is taken whatever claim it comes under",
        "server/store/pgsql/changes.c",
        "DELETE FROM job WHERE id = $1 AND claim = $2 RETURNING",
        "DELETE FROM job WHERE id = $1 AND $2 = $2 RETURNING",
    ),
    Mutant(
        "a claim is granted without a lease",
        "server/store/pgsql/claims.c",
        'MINE ")) AND EXISTS (SELECT FROM lease)"',
        'MINE "))"',
    ),
    Mutant(
        "a commit of which the server warned counts as durable",
        "server/store/pgsql/transaction.c",
        "if (rc == 0 && p->link.is_warned)",
        "if (false)",
        "test_store_pgsql",
    ),
    Mutant(
        "what to claim is looked for with each row of the table",
        "server/store/pgsql/claims.c",
        '" WHERE id = ANY (ARRAY(SELECT id FROM chosen WHERE " MINE "))',
        '" WHERE state = 0 AND EXISTS (SELECT id FROM chosen WHERE " MINE ")',
    ),
    Mutant(
        "a transaction without an answer is made again without a look",
        "server/store/pgsql/transaction.c",
        "bool is_there = number == p->transaction;",
        "bool is_there = false;",
        "test_store_pgsql",
    ),
    Mutant(
        "two claims at once of what is identical do not see each other",
        "server/store/pgsql/schema/13.sql",
        "IF NOT pg_try_advisory_xact_lock($1) THEN RETURN false; END IF;",
        "",
        "test_store_pgsql",
    ),
    Mutant(
        "two claims at once of a client's do not see each other",
        "server/store/pgsql/schema/13.sql",
        "IF NOT pg_try_advisory_xact_lock(hashtextextended($1, 0)) THEN RETURN 0; END IF;",
        "",
        "test_store_pgsql",
    ),
    Mutant(
        "a text goes though a submission names it that is not committed yet",
        "server/store/sweep.c",
        ' ORDER BY hash FOR UPDATE"',
        ' ORDER BY hash"',
        "test_sweep",
    ),
)


def is_caught(tree: Path, mutant: Mutant) -> bool:
    file = tree / mutant.file
    before = file.read_text()
    if before.count(mutant.text) != 1:
        raise SystemExit(f"{mutant.file}: {mutant.text!r} stands there {before.count(mutant.text)} times, not once")
    file.write_text(before.replace(mutant.text, mutant.instead))
    program = f"build/plain/unit/{mutant.test}"
    try:
        subprocess.run(["make", "-s", program], cwd=tree, check=True, timeout=LIMIT_S)
        done = subprocess.run([program], cwd=tree, capture_output=True, timeout=LIMIT_S, check=False)
    finally:
        file.write_text(before)
    said = done.stdout + done.stderr  # ERROR: what failed left its store open
    return done.returncode != 0 and (b"[  FAILED  ]" in said or b"[  ERROR   ]" in said)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="verifierd-mutants-") as name:
        tree = Path(name)
        tree.chmod(0o755)
        for part in ("server", "common", "proto", "client", "tests", "build/plain"):
            shutil.copytree(ROOT / part, tree / part, symlinks=True)
        shutil.copy2(ROOT / "Makefile", tree)
        missed = [mutant for mutant in MUTANTS if not is_caught(tree, mutant)]
    for mutant in MUTANTS:
        print(f"{'MISSED' if mutant in missed else 'caught'}  {mutant.name} ({mutant.test})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
