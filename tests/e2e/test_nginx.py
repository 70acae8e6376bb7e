"""TLS by the nginx configuration that is shipped, with the real nginx before a real daemon."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import corpus
import pytest
import service
from service import Client, Json

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"


@dataclass(frozen=True)
class Proxy:
    port: int
    log: Path
    certificate: Path
    context: ssl.SSLContext

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self.port, context=self.context, timeout=120)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Json, http.client.HTTPMessage]:
        connection = self.connect()
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        is_json = "json" in (answer.headers["Content-Type"] or "")
        return answer.status, json.loads(text) if is_json else {}, answer.headers


def certificate(directory: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip


def configuration(directory: Path, port: int, url: str) -> str:
    """The shipped file, with this test's places in it; each has to be found."""
    text = (service.ROOT / "server/deploy/nginx.conf").read_text()
    for old, new in {
        "127.0.0.1:8080": url.removeprefix("http://"),
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "server_name verifierd.example.org": "server_name localhost",
        "/etc/ssl/certs/verifierd.pem": str(directory / "cert.pem"),
        "/etc/ssl/private/verifierd.key": str(directory / "key.pem"),
        "/var/log/nginx/verifierd.log": str(directory / "access.log"),
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    user = "user root;\n" if os.geteuid() == 0 else ""
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"{user}daemon off;\nmaster_process on;\nworker_processes 1;\npid {directory}/pid;\n"
        f"error_log {directory}/error.log;\nevents {{ worker_connections 256; }}\nhttp {{\n{temporary}{text}}}\n"
    )


@pytest.fixture(scope="module")
def proxy(client: Client) -> Iterator[Proxy]:
    with service.directory() as directory:
        certificate(directory)
        port = service.free_port()
        (directory / "nginx.conf").write_text(configuration(directory, port, client.url))
        process = subprocess.Popen(
            [NGINX, "-p", str(directory), "-e", str(directory / "error.log"), "-c", str(directory / "nginx.conf")]
        )
        try:
            proxy = Proxy(
                port,
                directory / "access.log",
                directory / "cert.pem",
                ssl.create_default_context(cafile=str(directory / "cert.pem")),
            )
            deadline = time.monotonic() + 30
            while True:
                assert process.poll() is None and time.monotonic() < deadline, (directory / "error.log").read_text()
                try:
                    if proxy.call("GET", "/healthz")[0] == 200:
                        break
                except OSError:
                    time.sleep(0.05)
            yield proxy
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def task(client: Client) -> str:
    return client.add_task(corpus.load_tasks()["relu"].registration())


def test_a_submission_and_a_long_poll(proxy: Proxy, task: str) -> None:
    status, accepted, headers = proxy.call("POST", "/v1/submissions", {"task": task, "candidate": "def (# nginx"})
    assert status == 202 and headers["Location"] == f"/v1/submissions/{accepted['id']}"
    assert headers["Strict-Transport-Security"]
    status, verdict, headers = proxy.call("GET", f"/v1/submissions/{accepted['id']}?wait=60")
    assert (status, verdict["state"], verdict["class"]) == (200, "done", "syntax")
    # Whose call it was stands in the proxy's log, with the id that the daemon's log has.
    deadline = time.monotonic() + 60
    while not (lines := [one for one in proxy.log.read_text().splitlines() if headers["X-Request-Id"] in one]):
        assert time.monotonic() < deadline, "nginx has not written its line"
        time.sleep(0.02)
    (line,) = lines
    assert line.startswith(f'127.0.0.1 "GET /v1/submissions/{accepted["id"]}" 200')


def test_events_come_as_they_happen(proxy: Proxy, client: Client, task: str) -> None:
    connection = proxy.connect()
    connection.request("GET", "/v1/events")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, "text/event-stream")
    submission = proxy.call("POST", "/v1/submissions", {"task": task, "candidate": "def (# events"})[1]["id"]
    # The stream stays open, so what is read here cannot have waited for its end.
    seen = b""
    while submission.encode() not in seen:
        line = answer.readline()
        assert line, "the stream ended"
        seen += line
    connection.close()
    client.wait(submission)  # it was told that it waits: no other test finds it half judged


def test_a_body_that_is_too_large(proxy: Proxy) -> None:
    status, _, _ = proxy.call("POST", "/v1/submissions", b"x" * (9 << 20))
    assert status == 413


def test_an_export_goes_through(proxy: Proxy, client: Client) -> None:
    here = client.get("/v1/export?what=rewards").body
    connection = proxy.connect()
    connection.request("GET", "/v1/export?what=rewards")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, here) and here


def test_without_tls_nothing_is_told(proxy: Proxy) -> None:
    connection = http.client.HTTPConnection("localhost", proxy.port, timeout=60)
    connection.request("GET", "/v1/status")
    assert connection.getresponse().status == 400


def plain_environment(**own: str) -> dict[str, str]:
    """This machine's own bundles are left out."""
    return {name: value for name, value in os.environ.items() if name not in BUNDLES} | own


BUNDLES = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
PYTHON_CLIENTS = {
    "finetune": "from finetune.judge import Judge; Judge(sys.argv[1], 'binary', '', 'r')._call('GET', '/v1/status')",
    "verifierd_client": "from verifierd_client import Client;"
    "Client(sys.argv[1]).call('GET', '/v1/status', deadline=time.monotonic() + 600)",
}


def command_of(program: str, proxy: Proxy, directory: Path) -> list[str]:
    """Each asks the daemon once, and ends well when it was answered."""
    url = f"https://localhost:{proxy.port}"
    if program == "verifier":
        return [str(service.BINARY.with_name("verifier")), "--url", url, "status"]
    if program in PYTHON_CLIENTS:
        return [sys.executable, "-c", f"import sys, time; {PYTHON_CLIENTS[program]}", url]
    rows = directory / "rows.jsonl"
    rows.write_text(
        json.dumps({"name": "relu", "pytorch_code": corpus.load_tasks()["relu"].registration()["reference"]})
    )
    return [
        *(str(service.BINARY.with_name("trainer")), "prepare", "--url", url, "--file", str(rows)),
        *("--workdir", str(directory), "--python", sys.executable),
    ]


@pytest.mark.parametrize("program", ["verifier", "trainer", *PYTHON_CLIENTS])
def test_a_certificate_of_ones_own_is_believed_by_curls_variable_and_by_cacert(
    proxy: Proxy, tmp_path: Path, program: str
) -> None:
    command = command_of(program, proxy, tmp_path)
    packages = {"PYTHONPATH": str(service.ROOT / "client/python")}

    def run(*more: str, **own: str) -> subprocess.CompletedProcess[str]:
        environment = plain_environment(**packages, **own)
        return subprocess.run(
            [*command, *more], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    refused = run()
    assert refused.returncode != 0 and "certificate" in refused.stderr, refused.stderr
    for variable in ("CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        done = run(**{variable: str(proxy.certificate)})
        assert done.returncode == 0, (variable, done.stderr)
    if program in PYTHON_CLIENTS:
        return
    done = run("--cacert", str(proxy.certificate))
    assert done.returncode == 0, done.stderr
    wrong = run("--cacert", "/nowhere.pem")
    assert wrong.returncode == 2 and "--cacert /nowhere.pem: No such file" in wrong.stderr
