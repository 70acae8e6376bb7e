"""A run's curves in W&B, MLflow or TensorBoard: python3 -m verifierd_client.tracking RUN --to wandb

For each step of the run (metadata.run and metadata.step): the mean reward, the shares of verdicts that were correct,
that cheated and that were faster than the reference, the best speed-up, and how many verdicts there were. Each library
is an extra of this package: pip install './client/python[wandb]', [mlflow], [tensorboard]. Its own settings hold, such
as WANDB_MODE, WANDB_PROJECT, MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .client import Client, VerifierdError

FIGURES = ("reward", "correct", "hack", "fast_1", "fast_1.5", "fast_2", "speedup", "n", "infra")

Log = Callable[[dict[str, float], int], object]


@contextmanager
def wandb(run: str, directory: str | None) -> Iterator[Log]:
    """A run of W&B with the same name and id, which goes on where it is there already."""
    import wandb as library

    ident = "".join(one if one.isalnum() or one in "-_" else "-" for one in run)
    with library.init(name=run, id=ident, resume="allow", dir=directory) as there:
        yield lambda values, step: there.log(values, step=step)


@contextmanager
def mlflow(run: str, directory: str | None) -> Iterator[Log]:
    """A run of MLflow in the experiment that its settings name."""
    import mlflow as library

    if directory is not None:
        library.set_tracking_uri(directory)
    with library.start_run(run_name=run):
        yield lambda values, step: library.log_metrics(values, step=step)


@contextmanager
def tensorboard(run: str, directory: str | None) -> Iterator[Log]:
    """Event files in the directory (runs/RUN), by tensorboardX, which needs no torch."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(directory or f"runs/{run.replace('/', '_')}") as writer:
        yield lambda values, step: [writer.add_scalar(name, value, step) for name, value in values.items()]


SINKS = {"wandb": wandb, "mlflow": mlflow, "tensorboard": tensorboard}


def send(steps: list[dict[str, Any]], log: Log, after: int) -> int:
    """Log what of the steps comes after the step that was logged last; the step that is now the last one."""
    for step in steps:
        if step["step"] is not None and step["step"] > after:
            log({f"verifierd/{key}": step[key] for key in FIGURES if step[key] is not None}, after := step["step"])
    return after


def export(client: Client, run: str, log: Log, interval_s: float | None = None) -> int:
    """Log the run's steps, oldest first; the last step. interval_s: go on with each step once a later one has begun.

    An interrupt (KeyboardInterrupt) ends that, and logs the last step, too.
    """
    last = -1
    if interval_s is not None:
        with suppress(KeyboardInterrupt):
            while True:
                last = send(client.run(run)["steps"][:-1], log, last)
                time.sleep(interval_s)
    return send(client.run(run)["steps"], log, last)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="verifierd_client.tracking", description="A run's curves, elsewhere.")
    parser.add_argument("run", help="the label run of what was judged")
    parser.add_argument("--to", choices=SINKS, required=True)
    parser.add_argument(
        "--directory", help="wandb: for its files; mlflow: its tracking URI; tensorboard: of its events"
    )
    parser.add_argument(
        "--follow", type=float, metavar="SECONDS", help="look for new steps so often, until interrupted"
    )
    given = parser.parse_args(arguments)
    try:
        client = Client()
        client.run(given.run)  # before there is anything of it elsewhere
        with SINKS[given.to](given.run, given.directory) as log:
            last = export(client, given.run, log, given.follow)
    except ImportError as error:
        print(f"tracking: {error}: pip install './client/python[{given.to}]'", file=sys.stderr)
        return 3
    except VerifierdError as error:
        print(f"tracking: {error}", file=sys.stderr)
        return 1
    print(f"tracking: {given.run} up to step {last} is in {given.to}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
