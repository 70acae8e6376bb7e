"""trainer run and the model's endpoint: what it may answer, how it is started, and a stop meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from pipeline.along import Along
from pipeline.check import Checks
from pipeline.common import PipelineError
from pipeline.plan import Step
from pipeline.run import Run
from pipeline.serving import Serving, ask
from test_client import say, serving


@contextmanager
def saying(data: bytes) -> Iterator[str]:
    """The address of a server that answers this, whatever is asked, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_redirect_does_not_take_the_key_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    with serving(say(200, {})) as other, serving(say(302, {}, Location=other.url)) as stub:
        status, _ = ask(stub.url, 5)
    assert status == 302 and other.asked == [] and stub.asked[0][3]["Authorization"] == "Bearer canary"


@pytest.mark.parametrize("data", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
                                  b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nx"])  # fmt: skip
def test_what_is_no_whole_answer_is_none(tmp_path: Path, data: bytes) -> None:
    with saying(data) as url:
        assert Serving(url, "", "m", "m", tmp_path / "log", 1).models() is None


def test_a_command_may_begin_with_variables(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = "A=1 B='2 3' sh -c 'echo $A $B {model}'"
    with pytest.raises(PipelineError, match=r"ended \(status 0\)"):
        Serving("http://127.0.0.1:1", command, "m", "m", log, 60).start(False, lambda: None)  # type: ignore[arg-type]
    assert log.read_text() == "1 2 3 m\n"


@contextmanager
def a_run(directory: Path, start: str) -> Iterator[Run]:
    (directory / "conf").write_text(
        f'prepare {{ source = kernelbook }}\nendpoint {{ url = "http://127.0.0.1:1/v1"\n start = "{start}" }}\n'
    )
    given = SimpleNamespace(file=directory / "conf", workdir=directory, check=False, estimate=False, dry_run=False,
                            max_samples=None, stage="all", url="http://127.0.0.1:1", endpoint="")  # fmt: skip
    before, where = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], Path.cwd()
    try:
        made = Run(given)
        yield made
    finally:
        made.serving.stop()
        os.chdir(where)
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_PROGRAM", "/bin/true")


ASKS = Step("asks", "evaluate", ["evaluate"], serve="")


def test_a_stop_while_the_endpoint_starts_interrupts_the_step(tmp_path: Path) -> None:
    with a_run(tmp_path, "sleep 60") as run:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        assert run.step(ASKS) == 75 and run.state.document["steps"]["asks"]["state"] == "interrupted"
        timer.join()


@pytest.mark.parametrize(("start", "outputs"), [("false", []), ("sleep 60", ["none"])])
def test_a_step_whose_endpoint_or_output_is_not_there_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, outputs: list[str]
) -> None:
    with a_run(tmp_path, start) as run:
        if outputs:
            monkeypatch.setattr(run.serving, "models", list)
        with pytest.raises(PipelineError):
            run.step(Step("asks", "evaluate", ["evaluate"], outputs=outputs, serve=""))
        assert run.state.document["steps"]["asks"]["state"] == "failed"


@pytest.mark.parametrize("where", ["checks", "probe"])
def test_a_stop_before_the_first_step_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    with a_run(tmp_path, "false") as run:

        def checks(_: object) -> bool:
            if where == "checks":
                signal.raise_signal(signal.SIGTERM)
            return where != "checks"

        def probe(_: object) -> None:
            signal.raise_signal(signal.SIGTERM)
            raise PipelineError("the remote cannot be used", 7)

        monkeypatch.setattr(Checks, "ahead", checks)
        monkeypatch.setattr(Along, "start", probe)
        assert run.go() == 75
