"""Connections: how many there may be, how long they may take, and what a doubtful request gets."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

import pytest
import service
from http_raw import Raw
from scripted import SCRIPTED

LIMIT_S = 60.0
HEADER_S, BODY_S = 1.0, 1.5


@pytest.fixture(scope="module")
def hasty() -> Iterator[service.Daemon]:
    """A daemon with short deadlines."""
    options = {"header_limit_ms": int(HEADER_S * 1000), "body_limit_ms": int(BODY_S * 1000)}
    with service.directory() as directory:
        daemon = service.Daemon(directory, SCRIPTED | options)
        daemon.start()
        try:
            yield daemon
        finally:
            assert daemon.stop() == 0


def is_served(daemon: service.Daemon) -> bool:
    """Whoever says something in time is."""
    began = time.monotonic()
    status = daemon.client.get("/healthz").status
    return status == 200 or (status == 408 and time.monotonic() - began > HEADER_S)


# --- framing ---

GET = b"GET /healthz HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
POST = b"POST /v1/submissions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
SMUGGLED = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

# Each can be read in two ways, or in none: refused once, and what follows is never taken for a second request.
DOUBTFUL = {
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths that differ": POST + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "a length with a sign": POST + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": POST + b"Content-Length: -2\r\n\r\n{}",
    "a length in hex": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "a length with a point": POST + b"Content-Length: 2.0\r\n\r\n{}",
    "a length with a space in it": POST + b"Content-Length: 2 2\r\n\r\n{}",
    "no length in the length": POST + b"Content-Length:\r\n\r\n{}",
    "a length beyond 64 bits": POST + b"Content-Length: 18446744073709551618\r\n\r\n{}",
    "a length and chunks": POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunks and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n" + CHUNKS,
    "chunks twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunks in a list": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS,
    "chunks after gzip": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunks, then identity": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + CHUNKS,
    "identity": POST + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "chunked in quotes": POST + b'Transfer-Encoding: "chunked"\r\n\r\n' + CHUNKS,
    "a tab before chunked and a vertical one": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKS,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "a space before the length's colon": POST + b"Content-Length : 2\r\n\r\n{}",
    "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "no host": GET + b"\r\n",
    "two hosts": GET + b"Host: a\r\nHost: b\r\n\r\n",
    "two hosts alike": GET + b"Host: a\r\nhOST: a\r\n\r\n",
    "a name with a space": GET + HOST + b"Bad Name: x\r\n\r\n",
    "a line without a colon": GET + HOST + b"Content-Length 2\r\n\r\n",
    "an empty name": GET + HOST + b": x\r\n\r\n",
    "a name with a NUL": GET + HOST + b"X\x00Y: b\r\n\r\n",
    "a value with a NUL": GET + HOST + b"X: a\x00b\r\n\r\n",
    "a value with a control character": GET + HOST + b"X: a\x01b\r\n\r\n",
    "a value with a bare CR": GET + HOST + b"X: a\rContent-Length: 5\r\n\r\n",
    "a name beyond ASCII": GET + HOST + b"Content-L\xc3\xa9ngth: 5\r\n\r\n",
    "a folded line": GET + HOST + b"X: a\r\n b\r\n\r\n",
    "a folded encoding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "a folded first line": GET + b" X: y\r\n" + HOST + b"\r\n",
    "a bare LF after the request line": b"GET /healthz HTTP/1.1\n" + HOST + b"\r\n",
    "a bare LF after a header": GET + b"Host: a\nX: b\r\n\r\n",
    "a bare LF at the end": GET + HOST + b"X: b\r\n\n",
    "two bare LFs at the end": GET + b"Host: a\n\n",
    "a NUL in the address": b"GET /healthz\x00/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the address": b"GET /healthz x HTTP/1.1\r\n" + HOST + b"\r\n",
    "two spaces": b"GET  /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a bare CR in the address": b"GET /healthz\rX HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tab in the address": b"GET /healthz\tX HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method that is no token": b"G(T /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method beyond ASCII": b"G\xcbT /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tab for a space": b"GET\t/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "no version": b"GET /healthz\r\n" + HOST + b"\r\n",
    "version 2": b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n",
    "version 1.2": b"GET /healthz HTTP/1.2\r\n" + HOST + b"\r\n",
    "version 01.1": b"GET /healthz HTTP/01.1\r\n" + HOST + b"\r\n",
    "a version in lower case": b"GET /healthz http/1.1\r\n" + HOST + b"\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "nonsense": b"nonsense\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a chunk of a negative size": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "a chunk with 0x": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk of no size": CHUNKED + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk's size beyond 64 bits": CHUNKED + b"fffffffffffffffff2\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"2\r\n{}X\r\n0\r\n\r\n",
    "a chunk's size in words": CHUNKED + b"two\r\n{}\r\n0\r\n\r\n",
}


ANSWER = re.compile(rb"HTTP/1\.1 \d{3} ")


def answers(url: str, request: bytes) -> bytes:
    """All that the daemon says to a request with another behind it, until it ends the connection."""
    with Raw(url) as raw:
        raw.send(request + SMUGGLED)
        return raw.until_closed()


def is_refused_once(said: bytes) -> bool:
    """One refusal or none, and no word to the request behind it."""
    return len(ANSWER.findall(said)) <= 1 and (said == b"" or said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505 ")))


def test_the_corpus_is_no_smaller() -> None:
    assert len(DOUBTFUL) >= 32


@pytest.mark.parametrize("request_", DOUBTFUL.values(), ids=list(DOUBTFUL))
def test_doubtful_framing_is_refused_once(hasty: service.Daemon, request_: bytes) -> None:
    said = answers(hasty.client.url, request_)
    assert is_refused_once(said), said
    assert is_served(hasty)


# A mutation may be a request that is fine. Which ones are, these few lines say, which share nothing with the daemon.
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST_LINE = re.compile(TOKEN + rb" [!-~\x80-\xff]+ HTTP/1\.[01]")
HEADER_LINE = re.compile(rb"(" + TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f]*)")


def is_plain(request: bytes) -> bool:
    """
    Whether the header of a request can be read in one way only. Empty lines before it are none of it (RFC 9112,
    section 2.2); and where a NUL stands before a bare LF, libmicrohttpd leaves no trace of which bytes ended the line.
    """
    head = request.lstrip(b"\r\n").replace(b"\x00\n", b"\r\n").partition(b"\r\n\r\n")[0]
    first, *lines = head.removesuffix(b"\r\n").split(b"\r\n")
    found = [HEADER_LINE.fullmatch(line) for line in lines]
    if not REQUEST_LINE.fullmatch(first) or not all(found):
        return False
    values: dict[bytes, list[bytes]] = {}
    for match in found:
        assert match
        values.setdefault(match[1].lower(), []).append(match[2].strip(b" \t"))
    hosts, lengths = values.get(b"host", []), values.get(b"content-length", [])
    encodings = [value.lower() for value in values.get(b"transfer-encoding", [])]
    is_old = first.endswith(b"1.0")
    return (
        (len(hosts) == 1 or (is_old and not hosts))
        and len(lengths) + len(encodings) <= 1
        and all(re.fullmatch(rb"[0-9]{1,18}", length) for length in lengths)
        and (not encodings or (encodings == [b"chunked"] and not is_old))
    )


def test_the_aid_knows_plain_from_doubtful() -> None:
    for head in (GET + HOST, POST + b"Content-Length: 2\r\n", CHUNKED[:-2], GET + b"X:\r\nhost: \t a:1 \r\n"):
        assert is_plain(head), head
    doubtful = [text for text in DOUBTFUL.values() if not text.startswith(CHUNKED)]
    assert not any(is_plain(text) for text in doubtful)


def mutations(source: random.Random) -> Iterator[bytes]:
    """Headers that are fine, and what one to three accidents make of them."""
    tokens = [
        b"\r",
        b"\n",
        b"\r\n",
        b"\x00",
        b" ",
        b"\t",
        b":",
        b",",
        b"0",
        b"1",
        b"\x0b",
        b"\xff",
        b"chunked",
        b"Host: b\r\n",
    ]
    tokens += [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.0", b"\r\n X: y", b"\x7f", b"%00"]
    heads = [GET + HOST + b"A: b\r\n", POST + b"Content-Length: 2\r\n", CHUNKED[:-2]]
    while True:
        head = source.choice(heads)
        for _ in range(source.randint(1, 3)):
            at = source.randrange(len(head) + 1)
            match source.randrange(4):
                case 0:
                    head = head[:at] + source.choice(tokens) + head[at:]
                case 1:
                    head = head[:at] + head[at + source.randint(1, 3) :]
                case 2:
                    head = head[:at] + source.choice(tokens) + head[at + 1 :]
                case _:
                    lines = head.splitlines(keepends=True) or [b""]
                    head = b"".join(lines) + source.choice(lines)
        yield head


def test_mutations_are_refused_once_or_are_fine(hasty: service.Daemon) -> None:
    url, refused = hasty.client.url, 0
    for head in islice(mutations(random.Random(6)), 600):
        body = CHUNKS if b"chunked" in head.lower() else b"{}" if b"content-length" in head.lower() else b""
        whole = head + b"\r\n" + body
        with Raw(url) as raw:
            raw.send(whole + SMUGGLED)
            raw.end_of_requests()
            said = raw.until_closed()
        if is_plain(whole):
            assert len(ANSWER.findall(said)) <= 2, (whole, said)
        else:
            assert is_refused_once(said), (whole, said)
            refused += 1
    assert refused >= 200
    assert is_served(hasty)


# --- slow clients ---

SLOW = 100  # of each kind


def connections(daemon: service.Daemon) -> int:
    return int(daemon.client.get("/v1/status").json()["http"]["connections"])


def test_slow_clients_are_let_go(hasty: service.Daemon) -> None:
    """Headers and bodies that trickle, and answers that nobody reads: each ends by its deadline; others are served."""
    url = hasty.client.url
    with ExitStack() as stack:
        headers, bodies, answers_ = ([stack.enter_context(Raw(url)) for _ in range(SLOW)] for _ in range(3))
        for raw in headers:
            raw.send(GET + HOST + b"X: ")
        for raw in bodies:
            raw.send(POST + b"Content-Length: 100000\r\n\r\n{")  # more than spaces will come
        for raw in answers_:
            raw.keep_little()
            raw.send((b"GET /openapi.yaml HTTP/1.1\r\n" + HOST + b"\r\n") * 200)
        waiting, deadline = [*headers, *bodies], time.monotonic() + LIMIT_S
        while waiting:
            assert time.monotonic() < deadline
            for raw in waiting:
                raw.send(b" ")
            assert is_served(hasty)
            waiting = [raw for raw in waiting if not raw.is_answered()]
        assert all(raw.reply().status == 408 for raw in (*headers, *bodies))
        service.wait_for(lambda: connections(hasty) <= 1)
