"""Started by `verifier selftest`, which has read the options and says by VERIFIERD_URL which daemon to ask."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from verifierd_client import Client, Refused, VerifierdError

from .bench import CALL_LIMIT_S, Bench, complain, status_of
from .corpus import CorpusError, load
from .quick import Quick
from .run import Run

PREFIX = Path(__file__).parents[3]
"""Of the programs; not resolved, since what lies there may be links."""


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verifier selftest", add_help=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--corpus", type=Path, default=PREFIX / "share/verifierd/corpus")
    parser.add_argument("--policy")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--in-flight", type=int)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def selftest(client: Client, options: argparse.Namespace) -> bool:
    corpus = load(options.corpus)
    bench = Bench(client)
    if options.quick:
        return Quick(bench, corpus, PREFIX / "bin/trainer", options.json).run()
    return Run(bench, corpus, options.only, options.policy, options.in_flight, options.json).run()


def main() -> int:
    """The exit status of verifier(1)."""
    try:
        # A lost connection is not retried: a daemon that a candidate killed must not pass as a busy one.
        client = Client(wait_s=CALL_LIMIT_S, reconnect=False)
    except ValueError as error:
        complain(error)
        return 3
    try:
        return 0 if selftest(client, options_of(sys.argv[1:])) else 1
    except CorpusError as error:
        complain(error)
        return 2
    except OSError as error:
        complain(f"{error.filename or 'standard output'}: {error.strerror}")
        return 2 if error.filename else 3
    except VerifierdError as error:
        status = status_of(error)
        complain(f"cannot talk to {error}" if status == 7 else error)
        if status == 7:
            print("  is verifierd running there? --url or VERIFIERD_URL names another", file=sys.stderr)
        if isinstance(error, Refused) and status == 4 and not os.environ.get("VERIFIERD_TOKEN"):
            print("  give a token with --token or VERIFIERD_TOKEN", file=sys.stderr)
        return status


def leave() -> None:
    """End at once, also on Ctrl-C: threads may still wait for verdicts."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    status = main()
    sys.stdout.flush()
    os._exit(status)
