"""The program that copies to a remote and back: rclone, or another that is configured."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from .common import CONFIG, SERVICE, PipelineError
from .process import end_with_parent

COPY = "rclone copy {source} {target}"
CHECK = "rclone check --one-way {source} {target}"
TAIL_BYTES = 4096

# The meaning of an engine's messages, for all engines.
MEANINGS = {
    "InvalidAccessKeyId": "the service does not know the access key: ",
    "SignatureDoesNotMatch": "the secret is not that of the access key: ",
    "ExpiredToken": "the credentials are no longer valid: ",
    "InvalidToken": "the session token is not that of the access key: ",
    "NoCredentialProviders": "there are no credentials: ",
    "Unable to locate credentials": "there are no credentials: ",
    "AccessDenied": "the credentials do not suffice: ",
    "Access Denied": "the credentials do not suffice: ",
    "Forbidden": "the credentials do not suffice: ",
    "NoSuchBucket": "there is no such bucket (trainer bucket makes one): ",
    "unsupported transport": "AWS_CA_BUNDLE is set, which rclone cannot use: give it RCLONE_CA_CERT: ",
    "--ca-cert": "the file of AWS_CA_BUNDLE (or RCLONE_CA_CERT) has no certificates: ",
    "didn't find section in config file": "rclone knows no such remote: ",
}


def words(command: str, source: str, target: str) -> list[str]:
    """Those of a command with {source} and {target} put in; no shell reads them."""
    places = {"{source}": source, "{target}": target}
    return [re.sub("{source}|{target}", lambda found: places[found[0]], word) for word in command.split()]


def reason(said: str) -> str:
    """The line with the reason, and its meaning; else the last one."""
    for text, means in MEANINGS.items():
        for line in said.splitlines():
            if text in line:
                return means + line
    return (said.rstrip("\n").splitlines() or [""])[-1]


def environment(program: str) -> dict[str, str]:
    """rclone gives up on S3 where AWS_CA_BUNDLE is set, and has RCLONE_CA_CERT for the same."""
    own = dict(os.environ)
    if Path(program).name == "rclone":
        bundle = own.pop("AWS_CA_BUNDLE", "")
        if bundle:
            own.setdefault("RCLONE_CA_CERT", bundle)
    return own


def run(command: str, source: str | Path, target: str | Path) -> None:
    """Run a command and wait; it ends with us. PipelineError says why it failed."""
    argv = words(command, str(source), str(target))
    if not argv:
        raise PipelineError("the engine's command is empty", CONFIG)
    try:
        process = subprocess.Popen(
            argv,
            env=environment(argv[0]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent(),
        )
    except OSError as error:
        raise PipelineError(f"{target}: cannot start {argv[0]}: {error.strerror}", SERVICE) from None
    tail = b""
    with process:
        assert process.stdout is not None
        while block := process.stdout.read1(65536):  # type: ignore[attr-defined]
            tail = (tail + block)[-TAIL_BYTES:]
    if process.returncode != 0:
        raise PipelineError(f"{target}: {reason(tail.decode(errors='replace'))}", SERVICE)
