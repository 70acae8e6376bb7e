"""A data set of the hub by id, revision and digest, with huggingface_hub: HF_ENDPOINT, HF_TOKEN."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from finetune.checkpoint import digest_of

from .errors import SERVICE, PrepareError

# The files that --source fetches without --file.
KNOWN = {
    "kernelbook": ("GPUMODE/KernelBook", "dataset_permissive.json"),
    "kernelbench": ("ScalingIntelligence/KernelBench", "data/level_*.parquet"),
}
PAUSE_MAX_S = 30.0


def fetch(ident: str, revision: str, pattern: str, digest: str | None, workdir: Path, attempts: int) -> dict[str, Any]:
    """{id, revision, commit, files: [{path, size, file, digest}]} of the files below data/raw."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", ident):
        raise PrepareError(f'"{ident:.100}" is no id of a data set')
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise PrepareError(f"{sys.executable} has no {error.name}: make setup-train, or --python") from None
    api = HfApi()
    commit = _again(lambda: api.dataset_info(ident, revision=revision).sha, attempts, f"{ident} at {revision}")
    listed = _again(lambda: list(api.list_repo_tree(ident, repo_type="dataset", revision=commit, recursive=True)),
                    attempts, ident)  # fmt: skip
    files = sorted((one for one in listed if hasattr(one, "size")), key=lambda one: one.path)
    files = [one for one in files if fnmatch.fnmatchcase(one.path, pattern)]
    if not files:
        raise PrepareError(f"no file of {ident} matches {pattern}")
    if digest and len(files) != 1:
        raise PrepareError(f"{len(files)} files match {pattern}; a digest is one file's")
    directory = workdir / "data/raw" / ident.replace("/", "_") / str(commit)
    rows = [_fetch_file(ident, str(commit), one, directory, digest, attempts) for one in files]
    return {"id": ident, "revision": revision, "commit": commit, "files": rows}


def _fetch_file(
    ident: str, commit: str, listed: Any, directory: Path, wanted: str | None, attempts: int
) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download

    path = str(listed.path)
    if path.startswith("/") or ".." in path.split("/"):
        raise PrepareError(f"{path:.100} is no file of {ident}")
    where, size = directory / path, listed.lfs.size if listed.lfs else listed.size
    if not where.exists() or where.stat().st_size != size:
        _again(
            lambda: hf_hub_download(ident, path, repo_type="dataset", revision=commit, local_dir=directory),
            attempts,
            path,
        )
    found = digest_of(where)
    oid = listed.lfs.sha256 if listed.lfs else None
    if oid and f"sha256:{oid}" != found:
        where.unlink()
        raise PrepareError(f"{path} is not what the hub lists: its digest is {found}, not sha256:{oid}")
    if wanted and wanted != found:
        raise PrepareError(f"{path} has the digest {found}, not {wanted}")
    return {"path": path, "size": size, "file": str(where), "digest": found}


def _again(call: Any, attempts: int, what: str) -> Any:
    """The call's value; made again while the hub is away or busy."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    pause_s = 1.0
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except HfHubHTTPError as error:
            status = error.response.status_code
            why = f"{error.response.url.host} answered {status} for {what}"
            if status not in (408, 429) and status < 500:
                token = "; HF_TOKEN says as whom" if status in (401, 403) else ""
                raise PrepareError(why + token) from error
        except (HTTPError, OSError) as error:
            why = f"{os.environ.get('HF_ENDPOINT') or 'huggingface.co'} cannot be reached for {what}: {error}"
        except (KeyError, TypeError, ValueError) as error:
            raise PrepareError(f"what the hub answered for {what} cannot be read: {error!r}") from error
        if attempt < attempts:
            print(f"trainer: waiting: {why}", file=sys.stderr)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
    raise PrepareError(why, SERVICE)
